// Large calls in flight together over loopback take turns; short ones do not wait for them.
// Simulated, as who has sent how much would else be for the scheduler to say.
#include <gtest/gtest.h>

#include <map>
#include <vector>

#include "support/cluster.h"

namespace tersum::testing {
namespace {

constexpr size_t kMebi = 1024 * 1024;
constexpr size_t kTurnBytes = 16 * kMebi;  // node_turns.cc

// Exact sums of so many floats each, started on both ranks in this order.
class CallTurns : public ::testing::Test {
 protected:
  static ClusterOptions options() {
    ClusterOptions options;
    options.kind = ClusterKind::kSim;
    options.seed = 11;
    options.network.gathers = true;
    options.trace_events = 1 << 16;
    return options;
  }

  void sum(const std::vector<size_t>& counts) {
    std::vector<std::vector<float>> data;
    std::vector<Work> works;
    for (int rank = 0; rank < 2; ++rank) {
      for (const size_t count : counts) data.emplace_back(count, 1.0F);
    }
    for (int rank = 0; rank < 2; ++rank) {
      for (size_t call = 0; call < counts.size(); ++call) {
        float* const values = data[static_cast<size_t>(rank) * counts.size() + call].data();
        works.push_back(cluster_.at(rank).start_all_reduce(values, values, counts[call],
                                                           DataType::kFloat32, ReduceOp::kSum,
                                                           {"exact", PlanKind::kTwoStep, 0}));
      }
    }
    for (const Status& status : cluster_.finish(works)) {
      ASSERT_TRUE(status.ok()) << status.to_string();
    }
    for (const auto& array : data) ASSERT_EQ(array, std::vector<float>(array.size(), 2.0F));
  }

  // What rank 0 had queued of each call when the first of them had ended, and which that was.
  struct Standing {
    std::map<uint64_t, uint64_t> queued;
    uint64_t first = 0;
  };
  Standing at_first_end() {
    const TraceRecorder& trace = cluster_.trace(0);
    EXPECT_EQ(trace.dropped(), 0U);
    Standing standing;
    for (size_t i = 0; i < trace.size(); ++i) {
      if (trace.at(i).kind == TraceKind::kQueued) {
        standing.queued[trace.at(i).call] += trace.at(i).bytes;
      }
      standing.first = trace.at(i).call;
      if (trace.at(i).kind == TraceKind::kCall) break;
    }
    return standing;
  }

  Cluster cluster_{options()};
};

// Without turns each has sent about as much as the others by then.
TEST_F(CallTurns, OfLargeCallsLeaveTheOthersBehind) {
  sum({4 * kMebi, 4 * kMebi, 4 * kMebi});
  const Standing standing = at_first_end();
  uint64_t all = 0;
  for (const auto& [call, bytes] : standing.queued) all += bytes;
  EXPECT_LT(all, 2 * kTurnBytes);
}

TEST_F(CallTurns, PassSoThatNoneWaitsForTheEndOfAnother) {
  sum({16 * kMebi, 16 * kMebi});
  const Standing standing = at_first_end();
  ASSERT_EQ(standing.queued.size(), 2U);
  for (const auto& [call, bytes] : standing.queued) EXPECT_GE(bytes, 2 * kTurnBytes) << call;
}

TEST_F(CallTurns, AreNotForShortCalls) {
  sum({16 * kMebi, 1024});
  const Standing standing = at_first_end();
  uint64_t least = UINT64_MAX;
  for (const auto& [call, bytes] : standing.queued) least = std::min(least, bytes);
  EXPECT_LT(least, kMebi);
  EXPECT_EQ(standing.queued.at(standing.first), least) << "the short one ends first";
}

}  // namespace
}  // namespace tersum::testing
