#include "runtime/tuning/time_model.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "plan/topology.h"
#include "runtime/tuning/tuning_codecs.h"

namespace tersum {
namespace {

using Points = std::span<const TuningPoint>;

// How far beyond its largest measured size a plan may be used that is measured only where it may
// win: one_shot and tree while small, what the cost model brought in where it foretold it.
constexpr double kReach = 2;

// Links that have not shown what they carry are taken to carry this, as in the cost model. Of two
// ranks: eight send 1.75 times as much of each byte, which the points do not tell.
constexpr double kHiddenSecondsPerByte = 1 / kDefaultRateBytesPerSecond;

// What a byte costs out of the cache, over what it costs within: 2 and 4 ranks on two cores that
// share 260 MiB, whose host has other guests, take 1.17 to 1.35 times as long for each byte between
// 16 and 64 MiB as for one between 4 and 16, over loopback and in shared memory.
constexpr double kPastCacheCost = 1.3;

// Whether `plan` is such a one, which others have outlasted, or would have if there had been time
// for larger sizes. Where ranks are not all neighbours only the plan of untuned calls, which is
// kAuto in a table, is measured at every size for which there is time; elsewhere two_step and ring,
// or hierarchical, which then reaches as far as any.
bool has_been_outlasted(Points points, PlanKind plan) {
  if (plan == PlanKind::kOneShot) return true;
  bool is_wired = false;
  size_t own_bytes = 0;
  size_t most_bytes = 0;
  for (const TuningPoint& point : points) {
    is_wired |= point.way.plan == PlanKind::kAuto;
    most_bytes = std::max(most_bytes, point.bytes);
    if (point.way.plan == plan) own_bytes = std::max(own_bytes, point.bytes);
  }
  if (plan == PlanKind::kTree && !is_wired) return true;
  const bool is_main = plan == PlanKind::kTwoStep || plan == PlanKind::kRing;
  if (plan == PlanKind::kAuto || (is_main && !is_wired)) return false;
  return own_bytes < most_bytes;
}

// y at x on the line through two points.
double on_line(double x0, double y0, double x1, double y1, double x) {
  return y0 + (y1 - y0) * (x - x0) / (x1 - x0);
}

Points points_of(Points points, const TuningWay& way) {
  const auto is_own = [&](const TuningPoint& point) { return point.way == way; };
  const auto first = std::find_if(points.begin(), points.end(), is_own);
  return {first, std::find_if_not(first, points.end(), is_own)};
}

double size_of(const TuningPoint& point) { return static_cast<double>(point.bytes); }

// Within the sizes of `own`, and below them.
double seconds_within(Points own, double bytes) {
  const auto above =
      std::find_if(own.begin(), own.end(), [&](const auto& p) { return size_of(p) >= bytes; });
  if (above == own.begin() || size_of(*above) == bytes) return above->seconds;
  const TuningPoint& low = *(above - 1);
  if (above->seconds / size_of(*above) < low.seconds / size_of(low)) {
    return on_line(size_of(low), low.seconds, size_of(*above), above->seconds, bytes);
  }
  const double share = std::log(bytes / size_of(low)) / std::log(size_of(*above) / size_of(low));
  return std::exp(on_line(0, std::log(low.seconds), 1, std::log(above->seconds), share));
}

// Beyond all measured sizes. Where the last two took about as long, or there is one only, bytes
// were hidden by latency, and are taken to cost what 1 Gbit/s makes of them.
double seconds_beyond(Points own, double bytes) {
  const TuningPoint& end = own.back();
  const double hidden = std::min(end.seconds / size_of(end),
                                 kHiddenSecondsPerByte * tuning_wire_ratio(end.way.codec));
  double slope = hidden;
  if (own.size() > 1) {
    const TuningPoint& before = own[own.size() - 2];
    slope = (end.seconds - before.seconds) / (size_of(end) - size_of(before));
    if (end.seconds < kGrowthMin * before.seconds) slope = std::max(slope, hidden);
  }
  return end.seconds + std::max(slope, 0.0) * (bytes - size_of(end));
}

// The codecs that were measured furthest with `plan`, beyond `bytes`.
std::vector<TuningWay> ways_of_plan(Points points, PlanKind plan, size_t bytes) {
  size_t furthest = bytes;
  for (const TuningPoint& point : points) {
    if (point.way.plan == plan) furthest = std::max(furthest, point.bytes);
  }
  std::vector<TuningWay> ways;
  for (const TuningPoint& point : points) {
    if (point.way.plan == plan && point.bytes == furthest && furthest > bytes) {
      ways.push_back(point.way);
    }
  }
  return ways;
}

// The same; if there are none, of the plan that speaks for all where there is no time for more:
// two_step, or hierarchical where hosts hold several ranks. The plan stands in the ways.
std::vector<TuningWay> ways_reaching_further(Points points, PlanKind plan, size_t bytes) {
  std::vector<TuningWay> ways = ways_of_plan(points, plan, bytes);
  if (plan == PlanKind::kOneShot) return ways;
  for (const PlanKind other : {PlanKind::kTwoStep, PlanKind::kHierarchical}) {
    if (ways.empty()) ways = ways_of_plan(points, other, bytes);
  }
  return ways;
}

// By how much longer `bytes` take than the last measured size of `own`, going by `theirs`, which
// was measured further. As many times their seconds as own bytes cost of theirs: what both took
// beyond the first size of `own`, latency as far as it is known, says that where that is not all
// they took; it lies between what wire bytes say, which leave coding out, and the whole times,
// which have latency in them.
double seconds_more(Points own, Points theirs, double bytes) {
  const TuningPoint& end = own.back();
  const double there = bytes <= size_of(theirs.back()) ? seconds_within(theirs, bytes)
                                                       : seconds_beyond(theirs, bytes);
  const double theirs_s = seconds_within(theirs, size_of(end));
  const double whole = end.seconds / theirs_s;
  double share = whole;
  if (own.size() > 1) {
    const double wire =
        tuning_wire_ratio(end.way.codec) / tuning_wire_ratio(theirs.front().way.codec);
    const double grown_s = theirs_s - seconds_within(theirs, size_of(own.front()));
    const double own_grown_s = end.seconds - own.front().seconds;
    if (grown_s > 0) share = own_grown_s / grown_s;
    share = std::clamp(share, std::min(wire, whole), std::max(wire, whole));
  }
  return share * (there - theirs_s);
}

// The time of `bytes`, which are more than those of the last size of `own`, by the ways that were
// measured further; nullopt if there are none.
std::optional<double> seconds_as_others(Points points, Points own, double bytes) {
  const TuningPoint& end = own.back();
  const double ratio = tuning_wire_ratio(end.way.codec);
  double low_ratio = 0;
  double high_ratio = 0;
  double low = 0;
  double high = 0;
  for (const TuningWay& way : ways_reaching_further(points, end.way.plan, end.bytes)) {
    const double seconds = end.seconds + seconds_more(own, points_of(points, way), bytes);
    const double theirs_ratio = tuning_wire_ratio(way.codec);
    if (theirs_ratio <= ratio && theirs_ratio > low_ratio) {
      low_ratio = theirs_ratio;
      low = seconds;
    }
    if (theirs_ratio >= ratio && (high_ratio == 0 || theirs_ratio < high_ratio)) {
      high_ratio = theirs_ratio;
      high = seconds;
    }
  }
  if (low == 0 && high == 0) return std::nullopt;
  if (low == 0 || high == 0 || low_ratio == high_ratio) return std::max(low, high);
  return on_line(low_ratio, low, high_ratio, high, ratio);
}

// The same, or by own sizes alone where there are no such ways.
double seconds_by_growth(Points points, Points own, double bytes) {
  const TuningPoint& end = own.back();
  const double seconds = seconds_as_others(points, own, bytes).value_or(seconds_beyond(own, bytes));
  return std::isfinite(seconds) ? std::max(seconds, end.seconds) : end.seconds;
}

size_t largest_of(Points points) {
  return std::ranges::max_element(points, {}, &TuningPoint::bytes)->bytes;
}

struct Transport {
  double wire_ratio = 0;
  double seconds = 0;  // a measured time less its kernels' own
};

// Linear between the neighbours by wire bytes. What needs fewer bytes than all that was measured
// saves at the same rate, but takes at least its part of the least one's time.
double transport_at(const std::vector<Transport>& known, double wire_ratio) {
  size_t high = 1;
  while (high + 1 < known.size() && known[high].wire_ratio < wire_ratio) ++high;
  const Transport& a = known[high - 1];
  const Transport& b = known[high];
  const double seconds = on_line(a.wire_ratio, a.seconds, b.wire_ratio, b.seconds, wire_ratio);
  const Transport& least = known.front();
  return std::max(seconds, least.seconds * std::min(wire_ratio / least.wire_ratio, 1.0));
}

}  // namespace

std::optional<double> model_seconds(std::span<const TuningPoint> points, const TuningWay& way,
                                    size_t bytes, size_t cached_bytes) {
  const Points own = points_of(points, way);
  if (own.empty()) return std::nullopt;
  const auto size = static_cast<double>(bytes);
  const TuningPoint& end = own.back();
  if (bytes <= end.bytes) return seconds_within(own, size);
  if (size > kReach * size_of(end) && has_been_outlasted(points, way.plan)) return std::nullopt;
  const double seconds = seconds_by_growth(points, own, size);
  if (cached_bytes == 0 || bytes <= cached_bytes || largest_of(points) > cached_bytes) {
    return seconds;
  }
  const double cached_s = seconds_by_growth(points, own, static_cast<double>(cached_bytes));
  return seconds + (kPastCacheCost - 1) * std::max(seconds - cached_s, 0.0);
}

std::optional<double> model_seconds(std::span<const TuningPoint> points, PlanKind plan,
                                    size_t bytes, const CodecCost& codec,
                                    std::span<const CodecPrice> prices, size_t cached_bytes) {
  const auto size = static_cast<double>(bytes);
  std::vector<Transport> known;
  for (const CodecPrice& price : prices) {
    const auto seconds = model_seconds(points, {price.codec, plan}, bytes, cached_bytes);
    if (!seconds) continue;
    known.push_back({price.cost.wire_ratio, *seconds - price.cost.seconds_per_byte * size});
  }
  if (known.size() < 2) return std::nullopt;
  std::sort(known.begin(), known.end(),
            [](const Transport& a, const Transport& b) { return a.wire_ratio < b.wire_ratio; });
  const double coding = codec.seconds_per_byte * size;
  return std::max(transport_at(known, codec.wire_ratio) + coding, coding);
}

}  // namespace tersum
