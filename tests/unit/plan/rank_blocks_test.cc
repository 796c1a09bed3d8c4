// Which plans add ranks two by two in their order, and what each rank then holds.
#include "plan/rank_blocks.h"

#include <gtest/gtest.h>

#include <string>

#include "plan/plan.h"
#include "plan/topology.h"

namespace tersum {
namespace {

PlanRequest request_of(PlanKind kind, int size, const Topology* topology = nullptr) {
  PlanRequest request;
  request.kind = kind;
  request.size = size;
  request.topology = topology;
  return request;
}

TEST(RankBlocks, ArePowersOfTwoInBinomialTrees) {
  for (int size = 2; size <= 64; size *= 2) {
    for (const PlanKind kind : {PlanKind::kHalvingDoubling, PlanKind::kTree, PlanKind::kTwoStep,
                                PlanKind::kHierarchical}) {
      EXPECT_TRUE(adds_in_pairs(request_of(kind, size))) << plan_kind_name(kind) << ' ' << size;
    }
  }
  EXPECT_FALSE(adds_in_pairs(request_of(PlanKind::kHalvingDoubling, 6)));
  EXPECT_FALSE(adds_in_pairs(request_of(PlanKind::kTwoStep, 3)));
}

TEST(RankBlocks, AreNoneInARing) {
  for (const PlanKind kind : {PlanKind::kRing, PlanKind::kBidirectionalRing, PlanKind::kTorus}) {
    EXPECT_TRUE(adds_in_pairs(request_of(kind, 2))) << plan_kind_name(kind);
    EXPECT_FALSE(adds_in_pairs(request_of(kind, 4))) << plan_kind_name(kind);
  }
}

TEST(RankBlocks, DependOnWhichRanksShareAHost) {
  const auto on_hosts = [](const std::string& a, const std::string& b) {
    return parse_topology(R"({"hosts": [{"name": "a", "ranks": [)" + a +
                          R"(]}, {"name": "b", "ranks": [)" + b +
                          R"(]}], "rate": "1gbit", "links": [{"between": ["a", "b"]}]})")
        .value();
  };
  const auto neighbours = on_hosts("4, 5, 6, 7", "0, 1, 2, 3");
  const auto others = on_hosts("0, 2, 4, 6", "1, 3, 5, 7");
  const auto unequal = on_hosts("0, 1, 2", "3, 4, 5, 6, 7");
  for (const PlanKind kind : {PlanKind::kTree, PlanKind::kHierarchical}) {
    EXPECT_TRUE(adds_in_pairs(request_of(kind, 8, neighbours.get())));
    EXPECT_FALSE(adds_in_pairs(request_of(kind, 8, others.get())));
    EXPECT_FALSE(adds_in_pairs(request_of(kind, 8, unequal.get())));
  }
  EXPECT_TRUE(adds_in_pairs(request_of(PlanKind::kHalvingDoubling, 8, others.get())));
}

TEST(RankBlocks, AreCountedRankByRank) {
  PlanTrees trees = make_trees(request_of(PlanKind::kHalvingDoubling, 8)).value();
  ChunkTree tree;
  trees.fill(5, tree);
  RankBlocks blocks;
  blocks.measure(tree);
  EXPECT_TRUE(blocks.pair_up());
  // Of owner 5: rank 4 is its neighbour, 7 stands for the pair with 6, 1 for the other half.
  const uint32_t held[] = {1, 4, 1, 2, 1, 8, 1, 2};
  for (int rank = 0; rank < 8; ++rank) EXPECT_EQ(blocks.held(rank), held[rank]) << rank;
}

}  // namespace
}  // namespace tersum
