// Groups whose ranks do not all reach each other: descriptors and notices are handed on, payloads
// travel between neighbours only.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "plan/topology.h"
#include "runtime/group_routes.h"
#include "support/cluster.h"
#include "tests/unit/runtime/two_switches.h"

namespace tersum::testing {
namespace {

constexpr CallOptions kExact{"exact", PlanKind::kAuto, 0};

struct Wires {
  ClusterKind kind;
  std::string topology;
};

class TopologyGroup : public ::testing::TestWithParam<Wires> {
 protected:
  Cluster make_cluster(int64_t timeout_ms = 20'000, uint64_t seed = 1) {
    ClusterOptions options;
    options.kind = GetParam().kind;
    options.size = open_topology(GetParam().topology).value()->ranks();
    options.seed = seed;
    options.communicator.timeout_ms = timeout_ms;
    options.communicator.topology = GetParam().topology;
    return Cluster(options);
  }

  static std::vector<Status> sum(Cluster& cluster, std::vector<std::vector<float>>& data,
                                 const CallOptions& options = kExact) {
    return cluster.run([&](int rank, Communicator& communicator) {
      auto& values = data[static_cast<size_t>(rank)];
      return communicator.start_all_reduce(values.data(), values.data(), values.size(),
                                           DataType::kFloat32, ReduceOp::kSum, options);
    });
  }
};

TEST_P(TopologyGroup, SumsOfAnyLengthAreRightAndTheSameEverywhere) {
  Cluster cluster = make_cluster();
  for (const size_t count : {size_t{0}, size_t{1}, size_t{13}, size_t{1000}, size_t{70'001}}) {
    std::vector<std::vector<float>> data;
    for (int rank = 0; rank < cluster.size(); ++rank) {
      data.emplace_back(count, static_cast<float>(rank + 1));
    }
    for (const Status& status : sum(cluster, data)) EXPECT_TRUE(status.ok()) << status.to_string();
    const auto expected = static_cast<float>(cluster.size() * (cluster.size() + 1) / 2);
    for (const auto& values : data) EXPECT_EQ(values, std::vector<float>(count, expected));
  }
}

// What i has for j, and what the root has or gets, passes through the ranks between.
TEST_P(TopologyGroup, PartsReachRanksThatAreNoNeighbours) {
  Cluster cluster = make_cluster();
  const auto ranks = static_cast<size_t>(cluster.size());
  const auto mark = [](size_t from, size_t to) { return static_cast<float>(100 * from + to + 1); };
  for (const size_t count : {size_t{0}, size_t{1}, size_t{777}, size_t{20'001}}) {
    const int root = static_cast<int>(count % ranks);
    std::vector<std::vector<float>> all(ranks), out(ranks, std::vector<float>(ranks * count));
    for (size_t from = 0; from < ranks; ++from) {
      for (size_t to = 0; to < ranks; ++to) {
        all[from].insert(all[from].end(), count, mark(from, to));
      }
    }
    const auto expect_part = [&](size_t rank, size_t part, float value) {
      const auto begin = out[rank].begin() + static_cast<ptrdiff_t>(part * count);
      EXPECT_EQ(std::vector<float>(begin, begin + static_cast<ptrdiff_t>(count)),
                std::vector<float>(count, value))
          << "rank " << rank << ", part " << part << " of " << count;
    };
    const auto run = [&](const auto& start) {
      for (const Status& status : cluster.run(start))
        EXPECT_TRUE(status.ok()) << status.to_string();
    };
    run([&](int rank, Communicator& group) {
      const auto r = static_cast<size_t>(rank);
      return group.start_all_to_all(all[r].data(), out[r].data(), count, DataType::kFloat32,
                                    kExact);
    });
    for (size_t rank = 0; rank < ranks; ++rank) {
      for (size_t from = 0; from < ranks; ++from) expect_part(rank, from, mark(from, rank));
    }
    run([&](int rank, Communicator& group) {
      const auto r = static_cast<size_t>(rank);
      return group.start_gather(all[r].data(), rank == root ? out[r].data() : nullptr, count,
                                DataType::kFloat32, root, kExact);
    });
    for (size_t from = 0; from < ranks; ++from) {
      expect_part(static_cast<size_t>(root), from, mark(from, 0));
    }
    run([&](int rank, Communicator& group) {
      const auto r = static_cast<size_t>(rank);
      return group.start_scatter(rank == root ? all[r].data() : nullptr, out[r].data(), count,
                                 DataType::kFloat32, root, kExact);
    });
    for (size_t rank = 0; rank < ranks; ++rank) {
      expect_part(rank, 0, mark(static_cast<size_t>(root), rank));
    }
  }
}

// Ranks leave as soon as their own last call has ended; what passes through them must have.
TEST_P(TopologyGroup, NobodyIsCutOffByARankThatLeavesEarly) {
  for (uint64_t seed = 1; seed <= 5; ++seed) {
    Cluster cluster = make_cluster(20'000, seed);
    std::vector<Work> works;
    for (int rank = 0; rank < cluster.size(); ++rank) {
      works.push_back(cluster.at(rank).start_barrier());
    }
    std::vector<bool> left(works.size(), false);
    if (GetParam().kind == ClusterKind::kSim) {
      for (const Status& status : cluster.finish(works)) {
        EXPECT_TRUE(status.ok()) << status.to_string();
      }
      continue;
    }
    for (size_t remaining = works.size(); remaining > 0;) {
      for (size_t rank = 0; rank < works.size(); ++rank) {
        if (left[rank] || !works[rank].done()) continue;
        const Status status = works[rank].wait();
        EXPECT_TRUE(status.ok()) << status.to_string();
        cluster.at(static_cast<int>(rank)).close();
        left[rank] = true;
        --remaining;
      }
    }
  }
}

TEST_P(TopologyGroup, DisagreementReachesRanksThatAreNoNeighbours) {
  Cluster cluster = make_cluster();
  std::vector<std::vector<float>> data;
  for (int rank = 0; rank < cluster.size(); ++rank) {
    data.emplace_back(rank == 1 ? 99 : 100, 1.0F);
  }
  for (const Status& status : sum(cluster, data)) {
    EXPECT_EQ(status.code(), StatusCode::kDisagreement) << status.to_string();
  }
  data.assign(static_cast<size_t>(cluster.size()), std::vector<float>(10, 1.0F));
  for (const Status& status : sum(cluster, data)) EXPECT_TRUE(status.ok()) << status.to_string();
}

TEST_P(TopologyGroup, AnAbortReachesEverybody) {
  Cluster cluster = make_cluster();
  std::vector<Work> works;
  for (int rank = 1; rank < cluster.size(); ++rank) {
    works.push_back(cluster.at(rank).start_barrier());
  }
  cluster.at(0).abort("the test says so");
  for (const Status& status : cluster.finish(works)) {
    EXPECT_EQ(status.code(), StatusCode::kAborted) << status.to_string();
    EXPECT_NE(status.message().find("the test says so"), std::string::npos) << status.to_string();
  }
}

INSTANTIATE_TEST_SUITE_P(
    , TopologyGroup,
    ::testing::Values(Wires{ClusterKind::kTcp, "ring5"}, Wires{ClusterKind::kTcp, "torus2x4"},
                      Wires{ClusterKind::kTcp, "star4"}, Wires{ClusterKind::kShm, "ring4"},
                      Wires{ClusterKind::kLocal, "ring6"}, Wires{ClusterKind::kSim, "ring8"},
                      Wires{ClusterKind::kSim, "torus3x3"}),
    [](const auto& info) {
      return cluster_kind_name(info.param.kind) + "_" + info.param.topology;
    });

// A broadcast that goes straight from the middle fits three in a line, a longer one, which the
// others hand on to each other, does not.
TEST(TopologyGroups, GoOnAfterAPlanThatDoesNotFit) {
  ClusterOptions options;
  options.kind = ClusterKind::kSim;
  options.size = 3;
  options.communicator.timeout_ms = 20'000;
  options.communicator.topology = R"({"rate": "1gbit", "hosts": ["a", "b", "c"],
      "links": [{"between": ["a", "b"]}, {"between": ["b", "c"]}]})";
  Cluster cluster(options);
  const auto broadcast = [&](size_t count, PlanKind plan) {
    std::vector<std::vector<float>> data(3, std::vector<float>(count));
    data[1].assign(count, 7.0F);
    const auto statuses = cluster.run([&](int rank, Communicator& communicator) {
      auto& values = data[static_cast<size_t>(rank)];
      return communicator.start_broadcast(values.data(), count, DataType::kFloat32, 1,
                                          {"exact", plan, 0});
    });
    for (size_t rank = 0; rank < 3; ++rank) {
      if (!statuses[rank].ok()) continue;
      EXPECT_EQ(data[rank], std::vector<float>(count, 7.0F));
    }
    return statuses;
  };
  for (int round = 0; round < 2; ++round) {
    for (const Status& status : broadcast(1000, PlanKind::kTwoStep)) EXPECT_TRUE(status.ok());
    for (const Status& status : broadcast(2000, PlanKind::kTwoStep)) {
      EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
      EXPECT_NE(status.message().find("two_step needs a link between rank 0 and rank 2"),
                std::string_view::npos);
    }
    for (const Status& status : broadcast(2000, PlanKind::kAuto)) EXPECT_TRUE(status.ok());
  }
}

// With two slices of a flow under way, of whatever a format has beside its values: rows, scales of
// all ranks, which go ahead of them, and pairs of contributions.
TEST(TopologyGroups, BehindASwitchEveryPlanAndFormatComesThrough) {
  ClusterOptions options;
  options.kind = ClusterKind::kSim;
  options.size = 4;
  options.communicator.timeout_ms = 20'000;
  options.communicator.topology =
      describe_topology(*make_topology("star4", 31.25e6, 20e-6).value());
  Cluster cluster(options);
  constexpr size_t kCount = 384 * 1024;
  int served = 0;
  for (const char* codec : {"exact", "int8/128", "int8/128+rows:384", "sum8:tensor", "sum:exp",
                            "lut2", "int4/128+sparse:0.5%"}) {
    for (const PlanKind plan : {PlanKind::kTwoStep, PlanKind::kBidirectionalRing, PlanKind::kTree,
                                PlanKind::kHalvingDoubling, PlanKind::kHierarchical}) {
      std::vector<std::vector<float>> data(4, std::vector<float>(kCount));
      for (size_t rank = 0; rank < 4; ++rank) {
        for (size_t i = 0; i < kCount; ++i) {
          data[rank][i] = static_cast<float>((i * 37 + rank * 101) % 201) / 100 - 1;
        }
      }
      CallOptions call;
      call.codec = codec;
      call.plan = plan;
      const auto statuses = cluster.run([&](int rank, Communicator& communicator) {
        auto& values = data[static_cast<size_t>(rank)];
        return communicator.start_all_reduce(values.data(), values.data(), kCount,
                                             DataType::kFloat32, ReduceOp::kSum, call);
      });
      if (statuses[0].code() == StatusCode::kUnsupported) continue;
      ++served;
      for (size_t rank = 0; rank < 4; ++rank) {
        ASSERT_TRUE(statuses[rank].ok())
            << codec << ' ' << plan_kind_name(plan) << ' ' << statuses[rank].to_string();
        EXPECT_EQ(data[rank], data[0]) << codec << ' ' << plan_kind_name(plan);
      }
    }
  }
  EXPECT_GE(served, 25) << "some formats refuse some plans";
}

// Two_step would fill the link between the switches for twice as long: every rank asks the cost
// model, takes the same other plan, and is no more wrong than error_bound says of an open plan.
TEST(TopologyGroups, OnDescribedLinksCallsTakeThePlanOfTheCostModel) {
  ClusterOptions options;
  options.kind = ClusterKind::kSim;
  options.size = 8;
  options.communicator.timeout_ms = 20'000;
  options.communicator.topology = kTwoSwitches;
  Cluster cluster(options);
  constexpr size_t kCount = 1 << 18;
  std::vector<std::vector<float>> data(8, std::vector<float>(kCount));
  std::vector<double> exact(kCount, 0);
  for (size_t rank = 0; rank < 8; ++rank) {
    for (size_t i = 0; i < kCount; ++i) {
      data[rank][i] = static_cast<float>((i * 37 + rank * 101) % 201) / 100 - 1;
      exact[i] += data[rank][i];
    }
  }
  const CallOptions call;  // int8/128, plan open
  const double bound =
      cluster.at(0)
          .error_bound(call.codec, PlanKind::kAuto, kCount, DataType::kFloat32, 1.0, 8.0)
          .value();
  for (int rank = 0; rank < 8; ++rank) {
    auto choice = cluster.at(rank).choose(Collective::kAllReduce, kCount, DataType::kFloat32,
                                          ReduceOp::kSum, call);
    ASSERT_TRUE(choice.ok());
    EXPECT_EQ(choice->plan, PlanKind::kBidirectionalRing);
    EXPECT_NE(choice->reason.find("faster than two_step"), std::string::npos) << choice->reason;
    EXPECT_GT(choice->seconds, 0);
    const double own =
        cluster.at(rank)
            .error_bound(call.codec, choice->plan, kCount, DataType::kFloat32, 1.0, 8.0)
            .value();
    EXPECT_LE(own, bound);
  }
  const auto statuses = cluster.run([&](int rank, Communicator& communicator) {
    auto& values = data[static_cast<size_t>(rank)];
    return communicator.start_all_reduce(values.data(), values.data(), kCount, DataType::kFloat32,
                                         ReduceOp::kSum, call);
  });
  for (size_t rank = 0; rank < 8; ++rank) {
    EXPECT_TRUE(statuses[rank].ok()) << statuses[rank].to_string();
    EXPECT_EQ(data[rank], data[0]);
  }
  for (size_t i = 0; i < kCount; ++i) ASSERT_NEAR(data[0][i], exact[i], bound) << i;
}

TEST(GroupRoutes, AllNeighboursNeedNone) {
  EXPECT_TRUE(make_routes(*make_topology("mesh4").value(), 2).direct());
  EXPECT_TRUE(make_routes(*make_topology("star5").value(), 0).direct());
}

TEST(GroupRoutes, ARingOfFiveGoesTheShorterWay) {
  const GroupRoutes routes = make_routes(*make_topology("ring5").value(), 0);
  EXPECT_EQ(routes.next_to(1), 1);
  EXPECT_EQ(routes.next_to(2), 1);
  EXPECT_EQ(routes.next_to(3), 4);
  EXPECT_EQ(routes.last_from(2), 1);
  EXPECT_EQ(routes.last_from(3), 4);
  // Only 1 to 4 and 4 to 1 have rank 0 between them.
  EXPECT_EQ(routes.transits, 2U);
}

TEST(GroupRoutes, WhatIsSentArrivesByTheNeighbourThatIsExpected) {
  for (const char* name : {"ring7", "torus3x4", "torus2x2x2"}) {
    const auto topology = make_topology(name).value();
    std::vector<GroupRoutes> routes;
    for (int rank = 0; rank < topology->ranks(); ++rank) {
      routes.push_back(make_routes(*topology, rank));
    }
    for (int from = 0; from < topology->ranks(); ++from) {
      for (int to = 0; to < topology->ranks(); ++to) {
        if (from == to) continue;
        int at = from;
        int before = from;
        for (int hops = 0; at != to; ++hops) {
          ASSERT_LT(hops, topology->ranks()) << name;
          before = at;
          at = routes[static_cast<size_t>(at)].next_to(to);
          ASSERT_TRUE(topology->adjacent(before, at)) << name;
        }
        EXPECT_EQ(routes[static_cast<size_t>(to)].last_from(from), before) << name;
      }
    }
  }
}

}  // namespace
}  // namespace tersum::testing
