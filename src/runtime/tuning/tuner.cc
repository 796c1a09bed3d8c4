#include "runtime/tuning/tuner.h"

#include <algorithm>
#include <numeric>
#include <random>
#include <utility>

#include "base/median.h"
#include "runtime/group_id.h"
#include "runtime/tuning/tuning_cache.h"
#include "runtime/tuning/tuning_codecs.h"
#include "runtime/tuning/tuning_probes.h"

namespace tersum {
namespace {

// A cached table holds while probes are within this factor of it.
constexpr double kCacheSlack = 2.0;
// The first probe has 64 KiB, or less where these took longer than 2 ms: ten times that, and twice,
// leaves most of the budget. It is timed up to five times, while that takes 12 ms.
constexpr size_t kProbeBytes = 64 << 10;
constexpr double kProbeSeconds = 2e-3;
constexpr int kProbeRounds = 5;
constexpr double kProbeRoundsSeconds = 12e-3;
// Of the budget: what two calls of the next size may take at 100 Mbit/s for one to be left out.
constexpr double kLeapShare = 0.1;
constexpr int kLooksMax = 5;
constexpr size_t kColdBytesMax = 4 << 20;
// Of what is left of the budget, for another look.
constexpr double kLookShare = 0.125;

// One size of a tuning.
struct Probe {
  size_t bytes = 0;
  std::vector<TuningWay> ways;
  std::vector<double> first;    // agreed: the first turn of the ways that counts
  double turn_s = 0;            // agreed: that turn, with the calls that are not timed
  bool is_single_look = false;  // that turn is all there is time for
};

class Tuning {
 public:
  Tuning(const TuningRequest& request, const Clock& clock, const RunCall& run_call)
      : request_(request), clock_(clock), run_call_(run_call) {}

  Result<TuningTable> run() {
    begun_ns_ = clock_.now_ns();
    if (!request_.fresh) {
      Result<TuningTable> known = table_that_holds();
      if (!known.ok() || !known->empty()) return known;
    }
    TERSUM_RETURN_IF_ERROR(look_at_all_sizes());
    TERSUM_RETURN_IF_ERROR(look_further());
    // From the largest to the smallest: when a group is new, the system has not yet given each rank
    // a core, and short calls take several times as long as they will.
    std::vector<double> turns_s;
    turns_s.reserve(probes_.size());
    for (const Probe& probe : probes_) {
      if (!probe.is_single_look) turns_s.push_back(probe.turn_s);
    }
    for (auto probe = probes_.rbegin(); probe != probes_.rend(); ++probe) {
      // Anew for each size: where long calls took longer than they had at first, there is less left
      // for the others.
      const double left_s = budget_s() - elapsed_s_;
      const double turns_each_s = affordable_turns_seconds(turns_s, left_s);
      if (!probe->is_single_look) turns_s.pop_back();
      const double kept_s = (kTurnsMin - 1) * std::accumulate(turns_s.begin(), turns_s.end(), 0.0);
      TERSUM_RETURN_IF_ERROR(measure(*probe, std::min(turns_each_s, left_s - kept_s)));
    }
    TuningTable table = smooth_table();
    if (!request_.key.empty()) write_tuning_cache(request_.key, table);
    return table;
  }

 private:
  Status look_at_all_sizes();
  Status look_further();
  Status look_once(size_t bytes, bool warms_up);
  Status look_at(Probe& probe, const std::vector<TuningWay>& ways);
  Status look_again(Probe& probe, const std::vector<TuningWay>& ways, size_t next,
                    double to_come_s);
  Status measure(const Probe& probe, double turns_s);
  Status run_turns(const Probe& probe, size_t turns, std::vector<double>& seconds);
  TuningTable smooth_table();
  Status run_turn(const std::vector<TuningWay>& ways, size_t bytes, std::vector<double>& seconds);
  Status call(const TuningWay& way, size_t bytes);
  Status time_call(const TuningWay& way, size_t bytes, std::vector<double>& seconds);
  // In a row, of which the last is timed.
  [[nodiscard]] int calls_of(const TuningWay& way, size_t bytes) const {
    const bool is_exact = way.codec == tuning_codecs().front();
    // A ring reaches nothing, but is to be compared with what does.
    const bool may_settle =
        is_exact && (way.plan == PlanKind::kTwoStep || way.plan == PlanKind::kRing);
    const bool settles = may_settle && bytes >= kReachingBytesMin && bytes < request_.reached_bytes;
    return settles ? kReachingCallsInARow : calls_in_a_row(bytes);
  }
  // A turn of the few ways over one call of each of the first two.
  [[nodiscard]] double few_calls(const FewSeen& seen, size_t bytes) const {
    const double exact_calls = calls_of(first_way(bytes), bytes);
    return (exact_calls * seen.exact_s + calls_in_a_row(bytes) * seen.coded_s) /
           (seen.exact_s + seen.coded_s);
  }
  Status agree_on_largest(std::vector<double>& values);
  Status agree_on_times(std::vector<double>& seconds);
  Result<TuningTable> table_that_holds();
  Result<TuningTable> agreed_cache();
  Result<bool> holds(const TuningTable& table);
  [[nodiscard]] bool may_leap_over(size_t bytes) const;
  [[nodiscard]] double rest_turn_s(const Probe& probe, const std::vector<TuningWay>& rest) const;
  [[nodiscard]] TuningWay first_way(size_t bytes) const {
    return probe_ways(bytes, request_.ground).front();
  }
  Result<bool> still_true(const TuningTable& table, size_t bytes, int rounds);
  // Of the few ways at size number `i`, by a mean call of them at the size that was `seen`.
  [[nodiscard]] double least_seconds_of(size_t i, const FewSeen& seen, double mean_s) const {
    if (i >= kProbeSizes.size()) return 0;
    const auto ways = static_cast<double>(few_ways(kProbeSizes[i], request_.ground));
    const double least_s = least_seconds_at(i, seen, ranks(), ways * mean_s);
    // That takes all ways to be called equally often.
    const size_t bytes = kProbeSizes[i];
    const double more = few_calls(seen, bytes) / few_calls(seen, seen.bytes);
    return least_s * more * calls_in_a_row(seen.bytes) / calls_in_a_row(bytes);
  }
  // Less a little for what ranks agree on between the sizes.
  [[nodiscard]] double budget_s() const {
    return static_cast<double>(request_.budget_ms) * 0.99e-3;
  }
  [[nodiscard]] double seconds_since(int64_t begun_ns) const {
    return static_cast<double>(clock_.now_ns() - begun_ns) * 1e-9;
  }
  [[nodiscard]] int ranks() const { return request_.ground.size; }
  // Values as gradients have them, not zeros: zeros flatter quantizers.
  void grow_arrays(size_t count);
  // By the probe and the one before it.
  [[nodiscard]] FewSeen few_seen(const Probe& probe) const;

  const TuningRequest& request_;
  const Clock& clock_;
  const RunCall& run_call_;
  std::vector<float> input_;
  std::vector<float> output_;
  std::vector<Probe> probes_;
  std::vector<TuningPoint> points_;
  int64_t begun_ns_ = 0;
  double elapsed_s_ = 0;  // agreed
  // Agreed: a turn of the few ways over their number, at the size that was looked at last.
  double few_mean_s_ = 0;
  double to_come_s_ = 0;  // agreed: further turns of the sizes that are not looked at once only
};

void Tuning::grow_arrays(size_t count) {
  std::minstd_rand random(1);
  std::normal_distribution<float> normal;
  constexpr size_t kPeriod = 4096;  // drawing millions would take longer than measuring
  const size_t begin = input_.size();
  if (begin >= count) return;
  input_.resize(count);
  output_.resize(count);
  for (size_t i = begin; i < count; ++i) {
    input_[i] = i < kPeriod ? normal(random) : input_[i - kPeriod];
  }
}

FewSeen Tuning::few_seen(const Probe& probe) const {
  FewSeen seen = {probe.bytes, probe.first[0], probe.first[1], std::nullopt};
  const auto before = std::find_if(probes_.rbegin(), probes_.rend(),
                                   [&](const Probe& other) { return other.bytes < probe.bytes; });
  if (before != probes_.rend()) {
    const double more_s = seen.exact_s + seen.coded_s - before->first[0] - before->first[1];
    seen.seconds_per_byte = more_s / static_cast<double>(probe.bytes - before->bytes);
  }
  return seen;
}

// What a turn of the other ways is taken to take. So far the probe has the few.
double Tuning::rest_turn_s(const Probe& probe, const std::vector<TuningWay>& rest) const {
  const auto more_s = [&](const TuningWay& way) {
    return (calls_of(way, probe.bytes) - calls_in_a_row(probe.bytes)) * probe.first[0];
  };
  double few_s = probe.turn_s;
  for (const TuningWay& way : probe.ways) few_s -= more_s(way);
  const double mean_s = few_s / static_cast<double>(probe.ways.size());
  double turn_s = rest_turn_seconds(rest, ranks(), few_seen(probe), mean_s);
  for (const TuningWay& way : rest) turn_s += more_s(way);
  return turn_s;
}

Status Tuning::call(const TuningWay& way, size_t bytes) {
  const CallArguments arguments{Collective::kAllReduce,
                                input_.data(),
                                output_.data(),
                                bytes / sizeof(float),
                                DataType::kFloat32,
                                ReduceOp::kSum,
                                0};
  CallOptions options;
  options.codec = way.codec;
  options.plan = way.plan;
  return run_call_(arguments, options);
}

Status Tuning::time_call(const TuningWay& way, size_t bytes, std::vector<double>& seconds) {
  const int64_t begun_ns = clock_.now_ns();
  TERSUM_RETURN_IF_ERROR(call(way, bytes));
  seconds.push_back(seconds_since(begun_ns));
  return {};
}

// The ways take turns, so that a disturbance does not fall on one of them alone.
Status Tuning::run_turn(const std::vector<TuningWay>& ways, size_t bytes,
                        std::vector<double>& seconds) {
  for (const TuningWay& way : ways) {
    const int calls = calls_of(way, bytes);
    for (int i = 1; i < calls; ++i) TERSUM_RETURN_IF_ERROR(call(way, bytes));
    TERSUM_RETURN_IF_ERROR(time_call(way, bytes, seconds));
  }
  return {};
}

// Upwards, until what is left of the budget is needed for the sizes that have been seen. All ranks
// know the same longest times, so all stop at the same size.
Status Tuning::look_at_all_sizes() {
  double to_come_s = 0;
  for (size_t i = 0; i < kProbeSizes.size(); ++i) {
    const double left_s = budget_s() - elapsed_s_ - to_come_s;
    if (i > 0 && least_seconds_of(i, few_seen(probes_.back()), few_mean_s_) > left_s) break;
    Probe probe;
    probe.bytes = kProbeSizes[i];
    const auto ways = probe_ways(probe.bytes, request_.ground);
    const size_t few_count = few_ways(probe.bytes, request_.ground);
    const std::vector<TuningWay> few = {ways.begin(), ways.begin() + few_count};
    const std::vector<TuningWay> rest = {ways.begin() + few_count, ways.end()};
    TERSUM_RETURN_IF_ERROR(look_at(probe, few));
    TERSUM_RETURN_IF_ERROR(look_again(probe, few, i + 1, to_come_s));
    few_mean_s_ = probe.turn_s / static_cast<double>(few_count);
    const double rest_s = least_seconds(probe.bytes, rest_turn_s(probe, rest));
    const double next_s = least_seconds_of(i + 1, few_seen(probe), few_mean_s_);
    const double few_to_come_s = seconds_to_come(probe.turn_s);
    if (rest_fits(rest_s, next_s, budget_s() - elapsed_s_ - to_come_s - few_to_come_s)) {
      TERSUM_RETURN_IF_ERROR(look_at(probe, rest));
    }
    to_come_s += seconds_to_come(probe.turn_s);
    probes_.push_back(std::move(probe));
  }
  to_come_s_ = to_come_s;
  return {};
}

// Where no further size fits as it should be measured, few ways are called once each at those that
// a single look may take. On a link of a long latency, or while others hold the cores, small arrays
// say nothing of what bytes cost, by which all larger ones are foretold: so where only the smallest
// was reached, its further turns are given up for this.
Status Tuning::look_further() {
  for (;;) {
    const Probe& last = probes_.back();
    const FewSeen seen = few_seen(last);
    const double kept_s = probes_.size() > 1 ? to_come_s_ : 0;
    // By one more call the ranks agree.
    const double left_s = budget_s() - elapsed_s_ - kept_s - seen.exact_s;
    const size_t bytes = further_size(seen, ranks(), left_s);
    if (bytes == 0) return {};
    const bool warms_up = 2 * further_seconds(seen, ranks(), bytes) <= left_s;
    // Large arrays that are met cold take longer by more than those before them foretell it wrong.
    if (!warms_up && bytes > kColdBytesMax) return {};
    TERSUM_RETURN_IF_ERROR(look_once(bytes, warms_up));
  }
}

// Adds a size that is measured no further.
Status Tuning::look_once(size_t bytes, bool warms_up) {
  Probe probe;
  probe.bytes = bytes;
  probe.is_single_look = true;
  const auto ways = probe_ways(bytes, request_.ground);
  // Exact as an untuned call takes it, and a codec: what two ways are foretold to take.
  probe.ways = {ways[few_ways(bytes, request_.ground) > 2 ? 2 : 0], ways[1]};
  grow_arrays(bytes / sizeof(float));
  for (const TuningWay& way : probe.ways) {
    if (warms_up) TERSUM_RETURN_IF_ERROR(call(way, bytes));
    TERSUM_RETURN_IF_ERROR(time_call(way, bytes, probe.first));
  }
  TERSUM_RETURN_IF_ERROR(agree_on_times(probe.first));
  probes_.push_back(std::move(probe));
  return {};
}

// Where the next size, number `next`, seems out of reach, a rank may only have waited for a core:
// the quickest of some looks decides, of each way, too. All ranks know the same of each.
Status Tuning::look_again(Probe& probe, const std::vector<TuningWay>& ways, size_t next,
                          double to_come_s) {
  for (int look = 1; look < kLooksMax; ++look) {
    const double left_s = budget_s() - elapsed_s_ - to_come_s - seconds_to_come(probe.turn_s);
    const double look_s = probe.turn_s * (1 + turns_before(probe.bytes));
    const double mean_s = probe.turn_s / static_cast<double>(ways.size());
    const double next_s = least_seconds_of(next, few_seen(probe), mean_s);
    if (next_s <= left_s || look_s > kLookShare * left_s) break;
    Probe other;
    other.bytes = probe.bytes;
    TERSUM_RETURN_IF_ERROR(look_at(other, ways));
    probe.turn_s = std::min(probe.turn_s, other.turn_s);
    for (size_t w = 0; w < ways.size(); ++w) {
      probe.first[w] = std::min(probe.first[w], other.first[w]);
    }
  }
  return {};
}

// Adds `ways` to the probe.
Status Tuning::look_at(Probe& probe, const std::vector<TuningWay>& ways) {
  grow_arrays(probe.bytes / sizeof(float));
  for (int turn = 0; turn < turns_before(probe.bytes); ++turn) {
    for (const TuningWay& way : ways) TERSUM_RETURN_IF_ERROR(call(way, probe.bytes));
  }
  std::vector<double> agreed;
  const int64_t turn_begun_ns = clock_.now_ns();
  TERSUM_RETURN_IF_ERROR(run_turn(ways, probe.bytes, agreed));
  agreed.push_back(seconds_since(turn_begun_ns));
  TERSUM_RETURN_IF_ERROR(agree_on_times(agreed));
  probe.turn_s += agreed.back();
  agreed.pop_back();
  probe.ways.insert(probe.ways.end(), ways.begin(), ways.end());
  probe.first.insert(probe.first.end(), agreed.begin(), agreed.end());
  return {};
}

// The slowest rank decides how long a call took, and the median turn how long it takes: a way that
// is quick only when all goes well is not the best one. In several goes: each shows how long a turn
// takes by now, and how many more fit into `turns_s`. Where nothing is left for the fewest turns,
// the first has to do.
Status Tuning::measure(const Probe& probe, double turns_s) {
  const size_t ways = probe.ways.size();
  std::vector<double> seconds = probe.first;
  size_t turns = 1;
  const double begun_s = elapsed_s_;
  // With two calls by which ranks agree: the last one has not been counted.
  double calls = 0;
  for (const TuningWay& way : probe.ways) calls += calls_of(way, probe.bytes);
  const bool has_time = (kTurnsMin - 1 + 2 / calls) * probe.turn_s <= budget_s() - elapsed_s_;
  size_t further = has_time && !probe.is_single_look ? kTurnsMin - 1 : 0;
  while (further > 0) {
    const double go_begun_s = elapsed_s_;
    TERSUM_RETURN_IF_ERROR(run_turns(probe, further, seconds));
    turns += further;
    const double go_s = elapsed_s_ - go_begun_s;
    const double turn_s = std::max(go_s / static_cast<double>(further), 1e-9);
    const double left_s = turns_s - (elapsed_s_ - begun_s);
    const double fit = std::clamp(left_s / turn_s, 0.0, static_cast<double>(kTurnsMax - turns));
    further = static_cast<size_t>(fit) / 2 * 2;
    // Looks and first turns of short calls meet memory that nobody has touched, and take up to ten
    // times as long as the others, which are to outvote them.
    const bool may_be_cold = turns == kTurnsMin && calls_in_a_row(probe.bytes) > 1;
    const double spare_s = (budget_s() - elapsed_s_) / 2;  // the other half for smaller sizes
    if (further == 0 && may_be_cold && 2 * turn_s <= spare_s) further = 2;
  }
  for (size_t w = 0; w < ways; ++w) {
    std::vector<double> own(turns);
    for (size_t turn = 0; turn < turns; ++turn) own[turn] = seconds[turn * ways + w];
    const double seconds_each = std::max(median(std::move(own)), 1e-9);
    points_.push_back({probe.ways[w], probe.bytes, seconds_each, turns == 1});
  }
  return {};
}

// Adds what the slowest rank took for each call.
Status Tuning::run_turns(const Probe& probe, size_t turns, std::vector<double>& seconds) {
  if (turns == 0) return {};
  std::vector<double> taken;
  for (size_t turn = 0; turn < turns; ++turn) {
    TERSUM_RETURN_IF_ERROR(run_turn(probe.ways, probe.bytes, taken));
  }
  TERSUM_RETURN_IF_ERROR(agree_on_times(taken));
  seconds.insert(seconds.end(), taken.begin(), taken.end());
  return {};
}

TuningTable Tuning::smooth_table() {
  std::vector<TuningPoint> points = TuningTable(std::move(points_)).points();
  for (auto first = points.begin(); first != points.end();) {
    const auto end = std::find_if(
        first, points.end(), [&](const TuningPoint& point) { return !(point.way == first->way); });
    make_monotone({first, end});
    first = end;
  }
  return TuningTable(std::move(points));
}

Status Tuning::agree_on_largest(std::vector<double>& values) {
  CallOptions exact;
  exact.codec = "exact";
  return run_call_({Collective::kAllReduce, values.data(), values.data(), values.size(),
                    DataType::kFloat64, ReduceOp::kMax, 0},
                   exact);
}

// And on how long the tuning has taken so far.
Status Tuning::agree_on_times(std::vector<double>& seconds) {
  seconds.push_back(seconds_since(begun_ns_));
  TERSUM_RETURN_IF_ERROR(agree_on_largest(seconds));
  elapsed_s_ = seconds.back();
  seconds.pop_back();
  return {};
}

// The group's own table, or the cache's, if it still tells the truth; else empty. What is kept for
// a group whose own table does not hold is that table, so it is not asked.
Result<TuningTable> Tuning::table_that_holds() {
  TuningTable table;
  if (request_.known != nullptr) {
    table = *request_.known;
  } else if (!request_.key.empty()) {
    Result<TuningTable> cached = agreed_cache();
    if (!cached.ok()) return cached;
    table = std::move(cached).value();
  }
  if (table.empty()) return table;
  const Result<bool> held = holds(table);
  if (!held.ok()) return held.status();
  return held.value() ? table : TuningTable();
}

// Empty unless all ranks have the same table.
Result<TuningTable> Tuning::agreed_cache() {
  TuningTable table = read_tuning_cache(request_.key);
  const std::string text = table.to_text(request_.key);
  // Doubles carry 52 bits unharmed; largest and (negated) smallest are equal if all are.
  const auto digest = table.empty() ? 0.0 : static_cast<double>((text_digest(text) >> 12) + 1);
  std::vector<double> ends = {digest, -digest};
  TERSUM_RETURN_IF_ERROR(agree_on_largest(ends));
  return ends[0] == 0 || ends[0] != -ends[1] ? TuningTable() : table;
}

// A small size tells most, and the largest of the link's rate where latency hides it from small
// ones. Those between keep a slower link from spending the whole budget on the largest: it is
// noticed at the first size whose bytes take as long as its latency. One that would tell nothing
// unless the link had become much slower is left out where the next would be soon done even then.
Result<bool> Tuning::holds(const TuningTable& table) {
  size_t largest = 0;
  for (const TuningPoint& point : table.points()) largest = std::max(largest, point.bytes);
  size_t smallest = kProbeSizes[0];
  for (const size_t bytes : kProbeSizes) {
    const auto seconds = table.seconds(first_way(bytes), bytes);
    const bool quick = seconds && *seconds <= kProbeSeconds;
    if (quick && bytes <= std::min(kProbeBytes, largest)) smallest = bytes;
  }
  Result<bool> held = still_true(table, smallest, kProbeRounds);
  double looked_at_s = table.seconds(first_way(smallest), smallest).value_or(0);
  for (const size_t bytes : kProbeSizes) {
    if (!held.ok() || !held.value()) break;
    if (bytes <= smallest || bytes > largest) continue;
    const double expected_s = table.seconds(first_way(bytes), bytes).value_or(0);
    if (bytes < largest && expected_s < kGrowthMin * looked_at_s && may_leap_over(bytes)) continue;
    looked_at_s = expected_s;
    held = still_true(table, bytes, 1);
  }
  return held;
}

bool Tuning::may_leap_over(size_t bytes) const {
  const auto next = std::upper_bound(kProbeSizes.begin(), kProbeSizes.end(), bytes);
  if (next == kProbeSizes.end()) return false;
  return 2 * slow_seconds(ranks(), *next) <= kLeapShare * budget_s();
}

// Whether exact values of this size take about as long as the table says, after one call to warm
// up; the same answer on all ranks.
Result<bool> Tuning::still_true(const TuningTable& table, size_t bytes, int rounds) {
  grow_arrays(bytes / sizeof(float));
  const TuningWay probe = first_way(bytes);
  const auto expected = table.seconds(probe, bytes);
  if (!expected) return false;
  std::vector<double> first;
  TERSUM_RETURN_IF_ERROR(time_call(probe, bytes, first));
  for (int i = 2; i < calls_of(probe, bytes); ++i) TERSUM_RETURN_IF_ERROR(call(probe, bytes));
  TERSUM_RETURN_IF_ERROR(agree_on_largest(first));
  const double affordable = kProbeRoundsSeconds / std::max(first[0], 1e-9);
  if (affordable < rounds) rounds = std::max(static_cast<int>(affordable), 1);
  std::vector<double> seconds;
  for (int round = 0; round < rounds; ++round) {
    TERSUM_RETURN_IF_ERROR(time_call(probe, bytes, seconds));
  }
  TERSUM_RETURN_IF_ERROR(agree_on_largest(seconds));
  const double measured = median(std::move(seconds));
  // What was called once came behind another way, or waited for a core.
  const bool is_rough = std::any_of(table.points().begin(), table.points().end(), [&](auto& point) {
    return point.way == probe && point.bytes == bytes && point.is_rough;
  });
  const double less = is_rough ? kCacheSlack * kCacheSlack : kCacheSlack;
  return measured < kCacheSlack * *expected && *expected < less * measured;
}

}  // namespace

Result<TuningTable> tune_group(const TuningRequest& request, const Clock& clock,
                               const RunCall& run_call) {
  Result<TuningTable> table = Tuning(request, clock, run_call).run();
  if (table.ok()) table.value().set_cached_bytes(request.cached_bytes);
  return table;
}

}  // namespace tersum
