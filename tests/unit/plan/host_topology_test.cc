// What is made of hosts alone: when there is a topology of them, and what plans make of it.
#include "plan/host_topology.h"

#include <gtest/gtest.h>

#include <numeric>

#include "plan/plan.h"
#include "plan/plan_fit.h"
#include "plan/rank_cycle.h"

namespace tersum::testing {
namespace {

TEST(HostTopology, EqualNamesAreOneHost) {
  const std::vector<std::string> names = {"b", "a", "b", "c", "a"};
  const std::vector<int> hosts = number_hosts(names);
  EXPECT_EQ(hosts, (std::vector<int>{0, 1, 0, 2, 1}));
  EXPECT_EQ(hosts_of_part(hosts, std::vector<int>{3, 4, 1}), (std::vector<int>{0, 1, 1}));
  EXPECT_TRUE(number_hosts({}).empty());
}

TEST(HostTopology, ThereIsNoneWhereHostsTellNothing) {
  EXPECT_EQ(topology_of_hosts(std::vector<int>{}), nullptr);
  EXPECT_EQ(topology_of_hosts(std::vector<int>{0}), nullptr);
  EXPECT_EQ(topology_of_hosts(std::vector<int>{0, 0, 0}), nullptr) << "one host";
  EXPECT_EQ(topology_of_hosts(std::vector<int>{0, 1, 2}), nullptr) << "a host each";
  EXPECT_EQ(topology_of_hosts(std::vector<int>(kTopologyRanksMax + 1, 0)), nullptr);
  std::vector<int> many(kTopologyRanksMax);
  for (size_t rank = 0; rank < many.size(); ++rank) many[rank] = static_cast<int>(rank / 8);
  ASSERT_NE(topology_of_hosts(many), nullptr);
  EXPECT_EQ(topology_of_hosts(many)->host_count(), kTopologyRanksMax / 8);
}

TEST(HostTopology, EverybodyReachesEverybody) {
  const auto topology = topology_of_hosts(std::vector<int>{0, 1, 1, 0, 2});
  ASSERT_NE(topology, nullptr);
  EXPECT_TRUE(topology->all_adjacent);
  EXPECT_EQ(topology->ranks_of[0], (std::vector<int>{0, 3}));
  EXPECT_EQ(find_rank_cycle(topology.get(), 5), (std::vector<int>{0, 3, 1, 2, 4}))
      << "each wire once a way round";
}

// A line of hosts that is walked out and back: the ranks' own order closes, host by host does not.
TEST(HostTopology, TheRanksOwnRingIsFound) {
  std::string hosts, links;
  for (int host = 0; host < 12; ++host) {
    hosts += (host == 0 ? "" : ", ") + std::string("{\"name\": \"h") + std::to_string(host) +
             "\", \"ranks\": [" + std::to_string(host) + ", " + std::to_string(23 - host) + "]}";
    if (host == 0) continue;
    links += (host == 1 ? "" : ", ") + std::string("{\"between\": [\"h") +
             std::to_string(host - 1) + "\", \"h" + std::to_string(host) + "\"]}";
  }
  const auto line =
      parse_topology(R"({"rate": "1gbit", "hosts": [)" + hosts + R"(], "links": [)" + links + "]}");
  ASSERT_TRUE(line.ok()) << line.status().to_string();
  std::vector<int> own(24);
  std::iota(own.begin(), own.end(), 0);
  EXPECT_EQ(find_rank_cycle(line.value().get(), 24), own);
}

// Whatever serves a collective without a topology does with one of hosts: that was nobody's wish.
TEST(HostTopology, EveryPlanStillFits) {
  for (const auto& hosts : {std::vector<int>{0, 0, 1}, std::vector<int>{0, 1, 0, 1, 0, 1},
                            std::vector<int>{0, 1, 1, 1, 2, 2, 2, 2}}) {
    const auto topology = topology_of_hosts(hosts);
    for (const Collective collective :
         {Collective::kAllReduce, Collective::kReduceScatter, Collective::kAllGather,
          Collective::kBroadcast, Collective::kAllToAll, Collective::kGather,
          Collective::kScatter}) {
      PlanRequest request;
      request.collective = collective;
      request.size = static_cast<int>(hosts.size());
      request.count = hosts.size() * hosts.size() * 125;
      const std::vector<PlanKind> without = fitting_kinds(request);
      request.topology = topology.get();
      EXPECT_EQ(fitting_kinds(request), without);
      for (const PlanKind kind : without) {
        request.kind = kind;
        const Result<Plan> plan = make_plan(request);
        ASSERT_TRUE(plan.ok()) << plan.status().to_string();
        const Status proof = verify_plan(plan.value());
        EXPECT_TRUE(proof.ok()) << plan_kind_name(kind) << ": " << proof.to_string();
      }
    }
  }
}

TEST(HostTopology, AutoAddsUpOnTheHostsWhereThatSparesTheWire) {
  const auto topology = topology_of_hosts(std::vector<int>{0, 0, 1, 1});
  constexpr size_t kLarge = 1 << 20;
  const auto choose = [&](Collective collective, size_t bytes) {
    return choose_plan(collective, 4, bytes, topology.get());
  };
  for (const Collective collective :
       {Collective::kAllReduce, Collective::kReduceScatter, Collective::kAllGather}) {
    EXPECT_EQ(choose(collective, kLarge), PlanKind::kHierarchical);
  }
  EXPECT_EQ(choose(Collective::kAllReduce, 1024), PlanKind::kOneShot);
  EXPECT_EQ(choose(Collective::kBroadcast, kLarge), PlanKind::kTwoStep);
  EXPECT_EQ(choose(Collective::kAllToAll, kLarge), PlanKind::kTwoStep);
}

}  // namespace
}  // namespace tersum::testing
