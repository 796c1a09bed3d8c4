#include "runtime/tuning/tuner.h"

#include <algorithm>
#include <array>
#include <random>
#include <utility>

#include "base/median.h"
#include "runtime/group_id.h"
#include "runtime/tuning/tuning_cache.h"

namespace tersum {
namespace {

// Sizes of the arrays in bytes. Eightfold steps, at most: between two of them time is close to a
// power law.
constexpr std::array<size_t, 6> kSizes = {1 << 10, 8 << 10, 64 << 10, 512 << 10, 4 << 20, 16 << 20};
// Rounds at each size, odd: as many as fit into kRoundsSeconds, so that short calls, whose times
// vary most, are measured often.
constexpr int kRoundsMin = 3;
constexpr int kRoundsMax = 21;
constexpr double kRoundsSeconds = 8e-3;
// One to warm up, one to see how long a round takes.
constexpr int kTurnsBefore = 2;
// one_shot sends (n - 1) arrays per rank: beyond this it has lost everywhere.
constexpr size_t kOneShotBytesMax = 256 * 1024;
constexpr int kOneShotRanksMax = 8;
// A cached table holds while probes are within this factor of it.
constexpr double kCacheSlack = 2.0;
constexpr size_t kProbeBytes = 64 << 10;
constexpr int kProbeRounds = 5;

class Tuning {
 public:
  Tuning(const TuningRequest& request, const Clock& clock, const RunCall& run_call)
      : request_(request), clock_(clock), run_call_(run_call) {}

  Result<TuningTable> run() {
    if (!request_.fresh && !request_.key.empty()) {
      Result<TuningTable> cached = agreed_cache();
      if (!cached.ok() || !cached->empty()) return cached;
    }
    begun_ns_ = clock_.now_ns();
    for (size_t i = 0; i < kSizes.size(); ++i) {
      TERSUM_RETURN_IF_ERROR(measure_size(kSizes[i]));
      if (i + 1 == kSizes.size()) break;
      // All ranks know the same longest times, so all stop at the same size.
      const auto growth = static_cast<double>(kSizes[i + 1]) / static_cast<double>(kSizes[i]);
      const double next_s = growth * turn_s_ * (kTurnsBefore + kRoundsMin);
      if (elapsed_s_ + next_s > static_cast<double>(request_.budget_ms) * 1e-3) break;
    }
    TuningTable table(std::move(points_));
    if (!request_.key.empty()) write_tuning_cache(request_.key, table);
    return table;
  }

 private:
  [[nodiscard]] std::vector<PlanKind> plans_for(size_t bytes) const;
  Status measure_size(size_t bytes);
  Status measure_way(const TuningWay& way, size_t bytes, int rounds, std::vector<double>& seconds);
  Status agree_on_largest(std::vector<double>& values);
  Result<TuningTable> agreed_cache();
  Result<bool> still_true(const TuningTable& table, size_t bytes, int rounds);
  [[nodiscard]] double seconds_since(int64_t begun_ns) const {
    return static_cast<double>(clock_.now_ns() - begun_ns) * 1e-9;
  }
  // Values as gradients have them, not zeros: zeros flatter quantizers.
  void grow_arrays(size_t count);

  const TuningRequest& request_;
  const Clock& clock_;
  const RunCall& run_call_;
  std::vector<float> input_;
  std::vector<float> output_;
  std::vector<TuningPoint> points_;
  int64_t begun_ns_ = 0;
  double elapsed_s_ = 0;  // agreed
  double turn_s_ = 0;     // agreed: every way once, at the size measured last
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

std::vector<PlanKind> Tuning::plans_for(size_t bytes) const {
  if (request_.topology != nullptr && !request_.topology->all_adjacent) return {PlanKind::kAuto};
  if (bytes > kOneShotBytesMax || request_.size > kOneShotRanksMax) return {PlanKind::kTwoStep};
  return {PlanKind::kOneShot, PlanKind::kTwoStep};
}

Status Tuning::measure_way(const TuningWay& way, size_t bytes, int rounds,
                           std::vector<double>& seconds) {
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
  for (int round = 0; round < rounds; ++round) {
    const int64_t begun_ns = clock_.now_ns();
    TERSUM_RETURN_IF_ERROR(run_call_(arguments, options));
    seconds.push_back(seconds_since(begun_ns));
  }
  return {};
}

int rounds_for(double turn_s) {
  const double fit = std::min(kRoundsSeconds / std::max(turn_s, 1e-9), double{kRoundsMax});
  return std::max(static_cast<int>(fit), kRoundsMin) | 1;
}

// The slowest rank decides how long a call took, and the median round how long it takes: a way that
// is quick only when all goes well is not the best one.
Status Tuning::measure_size(size_t bytes) {
  grow_arrays(bytes / sizeof(float));
  std::vector<TuningWay> ways;
  for (const PlanKind plan : plans_for(bytes)) {
    for (const std::string_view codec : tuning_codecs()) ways.push_back({codec, plan});
  }
  std::vector<double> unused;
  for (const TuningWay& way : ways) TERSUM_RETURN_IF_ERROR(measure_way(way, bytes, 1, unused));
  const int64_t begun_ns = clock_.now_ns();
  for (const TuningWay& way : ways) TERSUM_RETURN_IF_ERROR(measure_way(way, bytes, 1, unused));
  std::vector<double> turn = {seconds_since(begun_ns)};
  TERSUM_RETURN_IF_ERROR(agree_on_largest(turn));
  turn_s_ = turn[0];
  const auto rounds = static_cast<size_t>(rounds_for(turn_s_));
  // The ways take turns, so that a disturbance does not fall on one of them alone.
  std::vector<double> seconds;
  for (size_t round = 0; round < rounds; ++round) {
    for (const TuningWay& way : ways) TERSUM_RETURN_IF_ERROR(measure_way(way, bytes, 1, seconds));
  }
  seconds.push_back(seconds_since(begun_ns_));
  TERSUM_RETURN_IF_ERROR(agree_on_largest(seconds));
  elapsed_s_ = seconds.back();
  for (size_t w = 0; w < ways.size(); ++w) {
    std::vector<double> own(rounds);
    for (size_t round = 0; round < rounds; ++round) own[round] = seconds[round * ways.size() + w];
    points_.push_back({ways[w], bytes, std::max(median(std::move(own)), 1e-9)});
  }
  return {};
}

Status Tuning::agree_on_largest(std::vector<double>& values) {
  CallOptions exact;
  exact.codec = "exact";
  return run_call_({Collective::kAllReduce, values.data(), values.data(), values.size(),
                    DataType::kFloat64, ReduceOp::kMax, 0},
                   exact);
}

// Empty unless all ranks have the same table and it still tells the truth.
Result<TuningTable> Tuning::agreed_cache() {
  TuningTable table = read_tuning_cache(request_.key);
  const std::string text = table.to_text(request_.key);
  // Doubles carry 52 bits unharmed; largest and (negated) smallest are equal if all are.
  const auto digest = table.empty() ? 0.0 : static_cast<double>((text_digest(text) >> 12) + 1);
  std::vector<double> ends = {digest, -digest};
  TERSUM_RETURN_IF_ERROR(agree_on_largest(ends));
  if (ends[0] == 0 || ends[0] != -ends[1]) return TuningTable();
  // The largest size tells of the link's rate where latency hides it from the small one.
  size_t largest = kProbeBytes;
  for (const TuningPoint& point : table.points()) largest = std::max(largest, point.bytes);
  Result<bool> holds = still_true(table, kProbeBytes, kProbeRounds);
  if (holds.ok() && holds.value() && largest > kProbeBytes) holds = still_true(table, largest, 1);
  if (!holds.ok()) return holds.status();
  return holds.value() ? table : TuningTable();
}

// Whether exact values of this size take about as long as the table says, after one call to warm
// up; the same answer on all ranks.
Result<bool> Tuning::still_true(const TuningTable& table, size_t bytes, int rounds) {
  grow_arrays(bytes / sizeof(float));
  const TuningWay probe{"exact", plans_for(bytes).back()};
  const auto expected = table.seconds(probe, bytes);
  if (!expected) return false;
  std::vector<double> seconds;
  TERSUM_RETURN_IF_ERROR(measure_way(probe, bytes, rounds + 1, seconds));
  TERSUM_RETURN_IF_ERROR(agree_on_largest(seconds));
  const double measured = median({seconds.begin() + 1, seconds.end()});
  return measured < kCacheSlack * *expected && *expected < kCacheSlack * measured;
}

}  // namespace

Result<TuningTable> tune_group(const TuningRequest& request, const Clock& clock,
                               const RunCall& run_call) {
  return Tuning(request, clock, run_call).run();
}

}  // namespace tersum
