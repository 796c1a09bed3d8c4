// Calls in flight together share the wire: none waits until another is through.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <vector>

#include "support/cluster.h"

namespace tersum::testing {
namespace {

class FairShare : public ::testing::TestWithParam<int> {};

TEST_P(FairShare, EqualCallsAdvanceTogether) {
  constexpr size_t kCount = 1'000'000;
  constexpr size_t kCalls = 3;
  ClusterOptions options;
  options.kind = ClusterKind::kSim;
  options.seed = 500 + static_cast<uint64_t>(GetParam());
  options.trace_events = 1 << 16;
  Cluster cluster(options);
  std::vector<std::vector<float>> data(2 * kCalls, std::vector<float>(kCount, 1.0F));
  std::vector<Work> works;
  for (int rank = 0; rank < 2; ++rank) {
    for (size_t call = 0; call < kCalls; ++call) {
      float* const values = data[static_cast<size_t>(rank) * kCalls + call].data();
      works.push_back(cluster.at(rank).start_all_reduce(values, values, kCount, DataType::kFloat32,
                                                        ReduceOp::kSum,
                                                        {"exact", PlanKind::kTwoStep, 0}));
    }
  }
  for (const Status& status : cluster.finish(works)) {
    ASSERT_TRUE(status.ok()) << status.to_string() << " seed " << options.seed;
  }
  // What each call had sent when the first of them had ended.
  const TraceRecorder& trace = cluster.trace(0);
  std::map<uint64_t, uint64_t> sent;
  for (size_t i = 0; i < trace.size() && trace.at(i).kind != TraceKind::kCall; ++i) {
    if (trace.at(i).kind == TraceKind::kTaken) sent[trace.at(i).call] += trace.at(i).bytes;
  }
  ASSERT_EQ(trace.dropped(), 0U);
  ASSERT_EQ(sent.size(), kCalls) << "seed " << options.seed;
  uint64_t least = UINT64_MAX, most = 0;
  for (const auto& [call, bytes] : sent) {
    least = std::min(least, bytes);
    most = std::max(most, bytes);
  }
  EXPECT_GE(2 * least, most) << "seed " << options.seed;
}

INSTANTIATE_TEST_SUITE_P(Seeds, FairShare, ::testing::Range(0, 8));

}  // namespace
}  // namespace tersum::testing
