// sum:exp in calls: the same bits on all ranks and in every run, within the bound; and which plans
// are refused, with the reason.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "support/small_slices.h"

namespace tersum::testing {
namespace {

using ::testing::HasSubstr;
using Floats = std::vector<float>;

constexpr uint64_t kSeed = 20261122;

Cluster make_cluster(int size, ClusterKind kind = ClusterKind::kLocal) {
  return make_small_slices(size, kSeed, kind);
}

std::vector<Floats> random_ranks(int size, size_t count) {
  return normal_ranks(size, count, kSeed);
}

// The results of all ranks, which are the same.
Floats all_reduce(Cluster& cluster, const std::vector<Floats>& ranks, ReduceOp op) {
  const size_t count = ranks[0].size();
  std::vector<Floats> outputs(ranks.size(), Floats(count));
  const auto statuses = cluster.run([&](int rank, Communicator& communicator) {
    const auto r = static_cast<size_t>(rank);
    return communicator.start_all_reduce(ranks[r].data(), outputs[r].data(), count,
                                         DataType::kFloat32, op, {"sum:exp", PlanKind::kAuto, 0});
  });
  for (const Status& status : statuses) EXPECT_TRUE(status.ok()) << status.to_string();
  for (const Floats& output : outputs) {
    EXPECT_TRUE(
        std::equal(output.begin(), output.end(), outputs[0].begin(),
                   [](float a, float b) { return a == b || (std::isnan(a) && std::isnan(b)); }))
        << "ranks differ, seed " << kSeed;
  }
  return outputs[0];
}

double largest_of(const std::vector<Floats>& ranks) {
  double largest = 0;
  for (const Floats& rank : ranks) {
    for (const float x : rank) largest = std::max(largest, std::abs(double{x}));
  }
  return largest;
}

class ExponentCallsOf : public ::testing::TestWithParam<int> {};

TEST_P(ExponentCallsOf, AreWithinTheirBoundAndTheSameInEveryRun) {
  const int size = GetParam();
  for (const size_t count : {1, 7, 1024, 10007, 40001}) {
    const std::vector<Floats> ranks = random_ranks(size, count);
    Cluster cluster = make_cluster(size);
    Cluster slow = make_cluster(size, ClusterKind::kSim);
    const double largest = largest_of(ranks);
    const Result<double> bound =
        cluster.at(0).error_bound("sum:exp", PlanKind::kTwoStep, count, DataType::kFloat32, largest,
                                  size * largest, Collective::kAllReduce);
    ASSERT_TRUE(bound.ok()) << bound.status().to_string();
    for (const ReduceOp op : {ReduceOp::kSum, ReduceOp::kAverage}) {
      const double parts = op == ReduceOp::kSum ? 1 : size;
      const Floats sum = all_reduce(cluster, ranks, op);
      EXPECT_EQ(all_reduce(slow, ranks, op), sum) << "count " << count;
      for (size_t i = 0; i < count; ++i) {
        double exact = 0;
        for (const Floats& rank : ranks) exact += double{rank[i]};
        ASSERT_LE(std::abs(double{sum[i]} * parts - exact), bound.value()) << "value " << i;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Sizes, ExponentCallsOf, ::testing::Values(2, 3, 8));

TEST(ExponentCalls, PartsOfAReduceScatterHaveTheErrorOfASum) {
  constexpr size_t kSize = 3;
  constexpr size_t kCount = 5003;
  Cluster cluster = make_cluster(kSize);
  const std::vector<Floats> ranks = random_ranks(kSize, kSize * kCount);
  std::vector<Floats> outputs(kSize, Floats(kCount));
  const auto statuses = cluster.run([&](int rank, Communicator& communicator) {
    const auto r = static_cast<size_t>(rank);
    return communicator.start_reduce_scatter(ranks[r].data(), outputs[r].data(), kCount,
                                             DataType::kFloat32, ReduceOp::kSum,
                                             {"sum:exp", PlanKind::kAuto, 0});
  });
  for (const Status& status : statuses) ASSERT_TRUE(status.ok()) << status.to_string();
  double off = 0;
  double all = 0;
  for (size_t i = 0; i < kSize * kCount; ++i) {
    double exact = 0;
    for (const Floats& rank : ranks) exact += double{rank[i]};
    const double error = double{outputs[i / kCount][i % kCount]} - exact;
    off += error * error;
    all += exact * exact;
  }
  // Between those of 2 and of 4 ranks.
  const double relative = std::sqrt(off / all);
  EXPECT_TRUE(relative > 0.4 && relative < 0.5) << relative << ", seed " << kSeed;
}

TEST(ExponentCalls, CallsDrawOtherNumbers) {
  Cluster cluster = make_cluster(2);
  const std::vector<Floats> ranks = random_ranks(2, 1000);
  const Floats first = all_reduce(cluster, ranks, ReduceOp::kSum);
  EXPECT_NE(all_reduce(cluster, ranks, ReduceOp::kSum), first);
}

TEST(ExponentCalls, WhatIsNotFiniteOnOneRankIsLostOnAll) {
  Cluster cluster = make_cluster(3);
  std::vector<Floats> ranks = random_ranks(3, 2000);
  ranks[1][1500] = -std::numeric_limits<float>::infinity();
  for (const float sum : all_reduce(cluster, ranks, ReduceOp::kSum)) ASSERT_TRUE(std::isnan(sum));
  for (Floats& rank : ranks) std::fill(rank.begin(), rank.end(), 0.0F);
  EXPECT_EQ(all_reduce(cluster, ranks, ReduceOp::kSum), Floats(2000, 0.0F));
}

TEST(ExponentCalls, PlansButTwoStepAreRefused) {
  Cluster cluster = make_cluster(2);
  Floats values(3, 1.0F);
  const auto refused = [&](PlanKind plan) {
    const Status status = cluster.at(0).all_reduce(
        values.data(), values.data(), 3, DataType::kFloat32, ReduceOp::kSum, {"sum:exp", plan, 0});
    EXPECT_EQ(status.code(), StatusCode::kUnsupported);
    return std::string(status.message());
  };
  for (const PlanKind plan : {PlanKind::kRing, PlanKind::kBidirectionalRing, PlanKind::kTree,
                              PlanKind::kTorus, PlanKind::kHalvingDoubling}) {
    EXPECT_THAT(refused(plan), HasSubstr("where they lie side by side; use plan two_step"));
  }
  EXPECT_EQ(refused(PlanKind::kOneShot),
            "codec sum:exp/1024 is refused on plan one_shot, in which every rank adds up all: it "
            "adds by random numbers of the rank that does it, so that no two would have the same; "
            "use plan two_step");
}

}  // namespace
}  // namespace tersum::testing
