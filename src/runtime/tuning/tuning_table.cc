#include "runtime/tuning/tuning_table.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <tuple>
#include <utility>

namespace tersum {
namespace {

// A quantized way must be faster than exact by this factor, and a ring or a tree than other plans:
// medians of twenty calls wander by some percent, those of the three to five that there is time for
// of large arrays by more.
double clear_gain(size_t bytes) { return bytes > (size_t{2} << 20) ? 1.15 : 1.05; }

// Plans that are measured because the cost model finds them quick (plans_to_measure) have two
// witnesses, and need less.
constexpr double kForetoldGain = 1.03;

double handicap(PlanKind plan, double gain) {
  switch (plan) {
    case PlanKind::kRing:
    case PlanKind::kTree:
      return gain;
    case PlanKind::kBidirectionalRing:
    case PlanKind::kHalvingDoubling:
    case PlanKind::kTorus:
      return kForetoldGain;
    case PlanKind::kAuto:
    case PlanKind::kTwoStep:
    case PlanKind::kOneShot:
    case PlanKind::kHierarchical:
      return 1;
  }
  return 1;
}

// No luck of either median makes such a lead, whatever the exact path is said to take of as few
// bytes, which may have been disturbed itself.
constexpr double kPlainGain = 1.5;

// The time of a codec that was not measured is worked out from those of others, which says less of
// short calls, where it is their noise that is continued.
constexpr double kWorkedOutGain = 1.05;

// No call takes less than a picosecond or more than twelve days. Beyond these the time model's
// differences and products could overflow.
constexpr double kShortestSeconds = 1e-12;
constexpr double kLongestSeconds = 1e6;

// Tells a whole text from one that was cut off behind a line.
constexpr std::string_view kLastLine = "end\n";
// Ends the line of a time that is no median.
constexpr std::string_view kRough = "once";

std::tuple<std::string_view, PlanKind> way_key(const TuningWay& way) {
  return {way.codec, way.plan};
}

bool before(const TuningPoint& a, const TuningPoint& b) {
  return std::tuple(way_key(a.way), a.bytes) < std::tuple(way_key(b.way), b.bytes);
}

std::optional<std::string_view> known_codec(std::string_view name) {
  for (const std::string_view codec : tuning_codecs()) {
    if (codec == name) return codec;
  }
  return std::nullopt;
}

// The next word of a line, cut off its front.
std::string_view take_word(std::string_view& line) {
  const size_t end = std::min(line.find(' '), line.size());
  const std::string_view word = line.substr(0, end);
  line.remove_prefix(std::min(end + 1, line.size()));
  return word;
}

template <typename Number>
bool parse_number(std::string_view word, Number& value) {
  const auto parsed = std::from_chars(word.data(), word.data() + word.size(), value);
  return parsed.ec == std::errc() && parsed.ptr == word.data() + word.size();
}

std::optional<TuningPoint> parse_point(std::string_view line) {
  TuningPoint point;
  const auto codec = known_codec(take_word(line));
  const auto plan = parse_plan_kind(take_word(line));
  if (!codec || !plan) return std::nullopt;
  point.way = {*codec, *plan};
  if (!parse_number(take_word(line), point.bytes) || point.bytes == 0) return std::nullopt;
  if (!parse_number(take_word(line), point.seconds)) return std::nullopt;
  // Written so that nan is refused, too.
  const bool is_time = point.seconds >= kShortestSeconds && point.seconds <= kLongestSeconds;
  if (!is_time) return std::nullopt;
  point.is_rough = line == kRough;
  if (!point.is_rough && !line.empty()) return std::nullopt;
  return point;
}

}  // namespace

TuningTable::TuningTable(std::vector<TuningPoint> points) : points_(std::move(points)) {
  std::sort(points_.begin(), points_.end(), before);
}

std::optional<double> TuningTable::seconds(const TuningWay& way, size_t bytes) const {
  return model_seconds(points_, way, bytes, cached_bytes_);
}

double TuningTable::exact_seconds(size_t wire_bytes) const {
  double least = 0;
  for (size_t i = 1; i < points_.size(); ++i) {
    const TuningWay& way = points_[i].way;
    const bool is_second = points_[i - 1].way == way && (i == 1 || points_[i - 2].way != way);
    if (way.codec != "exact" || !is_second) continue;
    const auto predicted = seconds(way, wire_bytes);
    if (predicted && (least == 0 || *predicted < least)) least = *predicted;
  }
  return least;
}

std::vector<TuningOption> TuningTable::rank_ways(
    size_t exact_bytes, size_t float_bytes, const std::vector<std::string_view>& codecs) const {
  std::vector<TuningOption> options;
  for (size_t i = 0; i < points_.size(); ++i) {
    const TuningWay& way = points_[i].way;
    if (i > 0 && points_[i - 1].way == way) continue;
    if (std::find(codecs.begin(), codecs.end(), way.codec) == codecs.end()) continue;
    const size_t bytes = way.codec == "exact" ? exact_bytes : float_bytes;
    const auto predicted = seconds(way, bytes);
    if (!predicted) continue;
    const auto wire =
        static_cast<size_t>(tuning_wire_ratio(way.codec) * static_cast<double>(bytes));
    options.push_back({way, *predicted, false, exact_seconds(wire)});
  }
  return rank(std::move(options), exact_bytes);
}

std::vector<TuningOption> TuningTable::rank(std::vector<TuningOption> options, size_t exact_bytes) {
  const double gain = clear_gain(exact_bytes);
  const auto handicapped_s = [&](const TuningOption& option) {
    const double doubt = option.is_worked_out ? kWorkedOutGain : 1;
    return option.seconds * handicap(option.way.plan, gain) * doubt;
  };
  const auto faster = [&](const TuningOption& a, const TuningOption& b) {
    return std::pair(handicapped_s(a), way_key(a.way)) <
           std::pair(handicapped_s(b), way_key(b.way));
  };
  const auto lossy = std::partition(options.begin(), options.end(), [](const TuningOption& option) {
    return option.way.codec == "exact";
  });
  std::sort(options.begin(), lossy, faster);
  // What leads the exact way that would be taken goes before it.
  const double to_beat_s = lossy == options.begin() ? 0 : options.front().seconds / gain;
  const auto leads = [&](const TuningOption& option) {
    const double seconds = handicapped_s(option);
    const bool is_plain = seconds * kPlainGain < to_beat_s;
    return seconds < to_beat_s && (is_plain || option.least_s < to_beat_s);
  };
  const auto leading_end = std::partition(lossy, options.end(), leads);
  std::sort(lossy, leading_end, faster);
  std::sort(leading_end, options.end(), faster);
  std::rotate(options.begin(), lossy, leading_end);
  return options;
}

std::string TuningTable::to_text(std::string_view key) const {
  std::string text(key);
  text += '\n';
  for (const TuningPoint& point : points_) {
    std::array<char, 32> digits;
    const auto end = std::to_chars(digits.data(), digits.data() + digits.size(), point.seconds);
    text += std::string(point.way.codec) + ' ' + std::string(plan_kind_name(point.way.plan)) + ' ' +
            std::to_string(point.bytes) + ' ' + std::string(digits.data(), end.ptr);
    if (point.is_rough) text.append(" ").append(kRough);
    text += '\n';
  }
  return text.append(kLastLine);
}

TuningTable TuningTable::parse(std::string_view text, std::string_view key) {
  if (!text.ends_with(kLastLine)) return {};
  text.remove_suffix(kLastLine.size());
  std::vector<TuningPoint> points;
  bool first = true;
  while (!text.empty()) {
    const size_t end = text.find('\n');
    if (end == std::string_view::npos) return {};
    const std::string_view line = text.substr(0, end);
    text.remove_prefix(end + 1);
    if (std::exchange(first, false)) {
      if (line != key) return {};
      continue;
    }
    const auto point = parse_point(line);
    if (!point) return {};
    points.push_back(*point);
  }
  TuningTable table(std::move(points));
  // No writer says a thing twice, and between two times of one size there is no power law.
  const bool twice = std::adjacent_find(table.points_.begin(), table.points_.end(),
                                        [](const TuningPoint& a, const TuningPoint& b) {
                                          return a.way == b.way && a.bytes == b.bytes;
                                        }) != table.points_.end();
  return twice ? TuningTable() : table;
}

}  // namespace tersum
