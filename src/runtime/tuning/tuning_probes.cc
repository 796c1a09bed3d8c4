#include "runtime/tuning/tuning_probes.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "runtime/tuning/open_plans.h"
#include "runtime/tuning/tuning_codecs.h"

namespace tersum {
namespace {

// one_shot sends (n - 1) arrays per rank: beyond this it has lost everywhere. Two ranks send no
// more by it than by two_step.
constexpr size_t kOneShotBytesMax = 256 * 1024;
constexpr size_t kOneShotBytesMaxOfTwo = 1024 * 1024;
constexpr int kOneShotRanksMax = 8;
// A tree has the fewest messages, which is what short calls of ranks cost that share cores, and
// sends more of each byte than two_step.
constexpr size_t kTreeBytesMax = 1024 * 1024;
// The codecs that speak for all where there is no time to try all.
constexpr std::string_view kFewCodecs[] = {"exact", "int8/128"};
constexpr double kLeastRate = 12.5e6;  // bytes/s that links are taken to carry
// How many times as long as behind another of its way a call is taken to take: up to twice, seldom.
constexpr double kColdFactor = 1.5;
// To get an input and an output of that size, and fill them.
constexpr double kFillSecondsPerByte = 1e-9;

double coded_ratio() { return tuning_wire_ratio(kFewCodecs[1]); }

// What a byte of the array costs few ways together: since the size before, or, at the first, by
// what the fewer bytes of one of them saved.
double byte_seconds(const FewSeen& seen) {
  const double saved_bytes = (1 - coded_ratio()) * static_cast<double>(seen.bytes);
  const double saved_s = (1 + coded_ratio()) * (seen.exact_s - seen.coded_s) / saved_bytes;
  return seen.seconds_per_byte.value_or(saved_s);
}

bool goes_by_tree(size_t bytes, const PlanGround& ground) {
  return choose_lossless_plan(Collective::kAllReduce, ground.size, bytes, ground.topology,
                              ground.host_cpus) == PlanKind::kTree &&
         ground.topology == nullptr;
}

bool is_few(std::string_view codec) {
  return std::find(std::begin(kFewCodecs), std::end(kFewCodecs), codec) != std::end(kFewCodecs);
}

}  // namespace

size_t few_ways(size_t bytes, const PlanGround& ground) {
  return goes_by_tree(bytes, ground) ? 3 : 2;
}

std::vector<TuningWay> probe_ways(size_t bytes, const PlanGround& ground) {
  const auto [size, topology, host_cpus] = ground;
  std::vector<TuningWay> ways;
  const auto add = [&](PlanKind plan, bool few, bool others) {
    for (const std::string_view codec : tuning_codecs()) {
      if (is_few(codec) ? few : others) ways.push_back({codec, plan});
    }
  };
  const bool is_wired = topology != nullptr && !topology->all_adjacent;
  // Without missing links a topology is there because hosts hold several ranks.
  const bool shares_hosts = topology != nullptr && topology->ranks() > topology->host_count() &&
                            topology->host_count() > 1;
  const PlanKind over_hosts = shares_hosts ? PlanKind::kHierarchical : PlanKind::kTwoStep;
  const PlanKind main_plan = is_wired ? PlanKind::kAuto : over_hosts;
  add(main_plan, true, false);
  if (goes_by_tree(bytes, ground)) ways.push_back({kFewCodecs[0], PlanKind::kTree});
  add(main_plan, false, true);
  const auto has = [&](PlanKind plan) {
    return std::any_of(ways.begin(), ways.end(), [&](const auto& way) { return way.plan == plan; });
  };
  const auto add_quickest = [&] {
    for (const PlanKind plan : plans_to_measure(bytes, size, topology)) {
      if (!has(plan)) add(plan, true, false);
    }
  };
  if (is_wired) {
    add_quickest();
    return ways;
  }
  const size_t one_shot_max = size == 2 ? kOneShotBytesMaxOfTwo : kOneShotBytesMax;
  if (bytes <= one_shot_max && size <= kOneShotRanksMax) add(PlanKind::kOneShot, true, true);
  if (size > 2) add(PlanKind::kRing, true, false);
  if (shares_hosts) add(PlanKind::kTwoStep, true, true);
  add_quickest();
  // Exact alone: what quantizes does so at every hop.
  if (size > 2 && !shares_hosts && bytes <= kTreeBytesMax && !has(PlanKind::kTree)) {
    ways.push_back({kFewCodecs[0], PlanKind::kTree});
  }
  return ways;
}

double rest_turn_seconds(std::span<const TuningWay> rest, int size, const FewSeen& seen,
                         double mean_s) {
  const double bytes_s = byte_seconds(seen) * static_cast<double>(seen.bytes);
  const double share = std::clamp(bytes_s / (seen.exact_s + seen.coded_s), 0.0, 1.0);
  // (n - 1) arrays instead of 2 (n - 1) / n, that is n / 2 times as much, and none too little; but
  // no more messages.
  const double of_one_shot = 1 + share * std::max(0.75 * size - 1, 0.0);
  double turn_s = 0;
  for (const TuningWay& way : rest) {
    turn_s += (way.plan == PlanKind::kOneShot ? of_one_shot : 1) * mean_s;
  }
  return turn_s;
}

int probe_turns(double turn_s, double all_s) {
  const double fit = std::min(all_s / std::max(turn_s, 1e-9), double{kTurnsMax});
  return std::max(static_cast<int>(fit), kTurnsMin) | 1;
}

double affordable_turns_seconds(const std::vector<double>& turns_s, double left_s) {
  constexpr double kStep = 1.25;
  const auto all_s = [&](double each_s) {
    double sum_s = 0;
    for (const double turn_s : turns_s) sum_s += seconds_to_come(turn_s, each_s);
    return sum_s;
  };
  double each_s = kTurnsSeconds;
  while (kStep * each_s < left_s && all_s(kStep * each_s) <= left_s) each_s *= kStep;
  return each_s;
}

void make_monotone(std::span<TuningPoint> points) {
  // Runs of equal times, and how many points each has.
  std::vector<std::pair<double, size_t>> runs;
  for (const TuningPoint& point : points) {
    runs.emplace_back(point.seconds, 1);
    while (runs.size() > 1 && runs[runs.size() - 2].first > runs.back().first) {
      const auto [last_s, last] = runs.back();
      runs.pop_back();
      auto& [run_s, run] = runs.back();
      const auto share = static_cast<double>(last) / static_cast<double>(run + last);
      run_s = std::exp((1 - share) * std::log(run_s) + share * std::log(last_s));
      run += last;
    }
  }
  size_t next = 0;
  for (const auto& [seconds, count] : runs) {
    for (size_t i = 0; i < count; ++i) points[next++].seconds = seconds;
  }
}

double slow_seconds(int size, size_t bytes) {
  const double sent = 2.0 * (size - 1) / size;  // of each byte, in both hops
  return sent * static_cast<double>(bytes) / kLeastRate;
}

double expected_growth(const FewSeen& seen, int size, size_t bytes) {
  const double byte_s = std::max(byte_seconds(seen), (1 + coded_ratio()) * slow_seconds(size, 1));
  const auto seen_bytes = static_cast<double>(seen.bytes);
  const double more = static_cast<double>(bytes) - seen_bytes;
  return 1 + more * std::min(byte_s / (seen.exact_s + seen.coded_s), 1 / seen_bytes);
}

double least_seconds_at(size_t i, const FewSeen& seen, int size, double turn_s) {
  if (i == 0 || i >= kProbeSizes.size()) return 0;
  const size_t bytes = kProbeSizes[i];
  const double calls = 1.0 * calls_in_a_row(bytes) / calls_in_a_row(kProbeSizes[i - 1]);
  return least_seconds(bytes, expected_growth(seen, size, bytes) * calls * turn_s);
}

double further_seconds(const FewSeen& seen, int size, size_t bytes) {
  const double calls_s = (seen.exact_s + seen.coded_s) * expected_growth(seen, size, bytes);
  return kColdFactor * calls_s + kFillSecondsPerByte * static_cast<double>(bytes - seen.bytes);
}

size_t further_size(const FewSeen& seen, int size, double left_s) {
  size_t fitting = 0;
  for (const size_t bytes : kProbeSizes) {
    if (bytes <= seen.bytes) continue;
    if (further_seconds(seen, size, bytes) > left_s) break;
    fitting = bytes;
    if (seen.seconds_per_byte) break;
  }
  return fitting;
}

}  // namespace tersum
