// Groups to which nobody named a topology: which ranks share a host is found when they meet, and
// calls that leave their plan open add up there what crosses the wire.
#include <gtest/gtest.h>

#include <vector>

#include "support/cluster.h"

namespace tersum::testing {
namespace {

constexpr size_t kCount = 60'000;
const CallOptions kOpen{"exact", PlanKind::kAuto, 0};

ClusterOptions sim_of(int size, int hosts, int ranks_per_process = 1) {
  ClusterOptions options;
  options.kind = ClusterKind::kSim;
  options.size = size;
  options.ranks_per_process = ranks_per_process;
  options.network.hosts = hosts;
  return options;
}

PlanKind chosen(Communicator& group, size_t count, std::string_view codec = "exact") {
  CallOptions options = kOpen;
  options.codec = codec;
  auto choice =
      group.choose(Collective::kAllReduce, count, DataType::kFloat32, ReduceOp::kSum, options);
  EXPECT_TRUE(choice.ok()) << choice.status().to_string();
  return choice.ok() ? choice->plan : PlanKind::kAuto;
}

void expect_sums(Cluster& cluster, std::vector<Communicator>& groups, const CallOptions& options) {
  std::vector<std::vector<float>> data;
  float sum = 0;
  for (size_t rank = 0; rank < groups.size(); ++rank) {
    data.emplace_back(kCount, static_cast<float>(rank + 1));
    sum += static_cast<float>(rank + 1);
  }
  std::vector<Work> works;
  works.reserve(groups.size());
  for (size_t rank = 0; rank < groups.size(); ++rank) {
    works.push_back(groups[rank].start_all_reduce(data[rank].data(), data[rank].data(), kCount,
                                                  DataType::kFloat32, ReduceOp::kSum, options));
  }
  for (const Status& status : cluster.finish(works)) EXPECT_TRUE(status.ok()) << status.to_string();
  for (const auto& values : data) EXPECT_EQ(values, std::vector<float>(kCount, sum));
}

std::vector<Communicator> all_of(Cluster& cluster) {
  std::vector<Communicator> groups;
  groups.reserve(static_cast<size_t>(cluster.size()));
  for (int rank = 0; rank < cluster.size(); ++rank) groups.push_back(cluster.at(rank));
  return groups;
}

TEST(FoundHosts, AreTheSameOnEveryRank) {
  Cluster cluster(sim_of(5, 2));
  for (int rank = 0; rank < 5; ++rank) {
    EXPECT_EQ(cluster.at(rank).hosts(), (std::vector<int>{0, 1, 0, 1, 0}));
    EXPECT_EQ(chosen(cluster.at(rank), kCount), PlanKind::kHierarchical);
  }
  auto groups = all_of(cluster);
  expect_sums(cluster, groups, kOpen);
}

TEST(FoundHosts, RanksOfOneProcessShareIts) {
  Cluster cluster(sim_of(6, 0, 2));
  EXPECT_EQ(cluster.at(4).hosts(), (std::vector<int>{0, 0, 1, 1, 2, 2}));
  EXPECT_EQ(chosen(cluster.at(4), kCount), PlanKind::kHierarchical);
  auto groups = all_of(cluster);
  expect_sums(cluster, groups, kOpen);
}

TEST(FoundHosts, ChangeNothingWhereTheyTellNothing) {
  Cluster apart(sim_of(3, 0));
  EXPECT_EQ(apart.at(0).hosts(), (std::vector<int>{0, 1, 2}));
  EXPECT_EQ(chosen(apart.at(0), kCount), PlanKind::kTwoStep);
  Cluster together(sim_of(3, 1));
  EXPECT_EQ(together.at(0).hosts(), (std::vector<int>{0, 0, 0}));
  EXPECT_EQ(chosen(together.at(0), kCount), PlanKind::kTwoStep);
}

// More than two ranks a CPU: each message takes time from all, and a tree has the fewest.
TEST(FoundHosts, RanksThatShareCpusAddUpSmallArraysByTree) {
  ClusterOptions options = sim_of(5, 1);
  options.network.cpus = "3";
  Cluster cluster(options);
  for (int rank = 0; rank < 5; ++rank) {
    EXPECT_EQ(chosen(cluster.at(rank), kCount), PlanKind::kTree);
    EXPECT_EQ(chosen(cluster.at(rank), 5 * kCount), PlanKind::kTwoStep);
    EXPECT_EQ(chosen(cluster.at(rank), kCount, "int8/128"), PlanKind::kTwoStep);
  }
  auto groups = all_of(cluster);
  const uint64_t before = cluster.at(4).stats().wire_bytes_sent;
  expect_sums(cluster, groups, kOpen);
  // A leaf of the tree sends its array; of two_step each rank 8/5 of one.
  EXPECT_LT(cluster.at(4).stats().wire_bytes_sent - before, 1.1 * sizeof(float) * kCount);
}

// Sums of 16-bit values would be rounded at every hop.
TEST(FoundHosts, TreesAreForWhatTheyDoNotRound) {
  ClusterOptions options = sim_of(5, 1);
  options.network.cpus = "3";
  Cluster cluster(options);
  const auto chosen_of = [&](DataType type, ReduceOp op) {
    return cluster.at(0).choose(Collective::kAllReduce, kCount, type, op, kOpen)->plan;
  };
  EXPECT_EQ(chosen_of(DataType::kBFloat16, ReduceOp::kSum), PlanKind::kTwoStep);
  EXPECT_EQ(chosen_of(DataType::kFloat16, ReduceOp::kAverage), PlanKind::kTwoStep);
  EXPECT_EQ(chosen_of(DataType::kBFloat16, ReduceOp::kMax), PlanKind::kTree);
  EXPECT_EQ(chosen_of(DataType::kInt32, ReduceOp::kSum), PlanKind::kTree);
}

TEST(FoundHosts, NamedWiresComeFirst) {
  ClusterOptions options = sim_of(4, 2);
  options.communicator.topology = "mesh4";
  Cluster cluster(options);
  EXPECT_EQ(cluster.at(0).hosts(), (std::vector<int>{0, 1, 2, 3}));
  EXPECT_EQ(chosen(cluster.at(0), kCount), PlanKind::kTwoStep);
}

TEST(FoundHosts, EveryPlanSumsOverThem) {
  Cluster cluster(sim_of(6, 3));
  auto groups = all_of(cluster);
  for (const PlanKind plan :
       {PlanKind::kTwoStep, PlanKind::kRing, PlanKind::kOneShot, PlanKind::kBidirectionalRing,
        PlanKind::kHalvingDoubling, PlanKind::kTorus, PlanKind::kTree, PlanKind::kHierarchical}) {
    CallOptions options = kOpen;
    options.plan = plan;
    SCOPED_TRACE(plan_kind_name(plan));
    expect_sums(cluster, groups, options);
  }
}

// A format that adds in one order alone stays with the plan that it needs.
TEST(FoundHosts, ACodecThatNeedsAPlanKeepsIt) {
  Cluster cluster(sim_of(4, 2));
  EXPECT_EQ(chosen(cluster.at(0), kCount, "lut2"), PlanKind::kTwoStep);
}

}  // namespace
}  // namespace tersum::testing
