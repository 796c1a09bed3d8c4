// Plans on topologies: what each link carries, which plans fit, and what is said of those that do
// not.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "plan/plan.h"
#include "plan/rank_cycle.h"
#include "plan_matrix.h"
#include "plan_walker.h"

namespace tersum::testing {
namespace {

constexpr size_t kCount = 1'008'000;  // divides well: rounding to elements stays below 1e-4

std::shared_ptr<const Topology> topology_of(std::string_view name) {
  return std::move(make_topology(name)).value();
}

PlanRequest request_on(const Topology& topology, Collective collective, PlanKind kind) {
  PlanRequest request = request_of({collective, kind}, topology.ranks(), kCount);
  request.topology = &topology;
  return request;
}

Plan must_make(const PlanRequest& request) {
  Result<Plan> plan = make_plan(request);
  EXPECT_TRUE(plan.ok()) << describe(request) << ": " << plan.status().to_string();
  return std::move(plan).value();
}

// Elements that each directed link carries, as shares of the array.
std::vector<double> link_loads(const Plan& plan) {
  const Topology& topology = *plan.topology;
  std::vector<double> loads(topology.links.size(), 0);
  for (int rank = 0; rank < plan.size; ++rank) {
    for (const Step& step : plan.steps[static_cast<size_t>(rank)]) {
      const bool sends = step.kind == StepKind::kSendPartial || step.kind == StepKind::kSendFinal ||
                         step.kind == StepKind::kForward;
      if (!sends) continue;
      const ChunkRange& range = plan.chunks[step.chunk];
      const auto from = topology.host_of[static_cast<size_t>(rank)];
      const auto to = topology.host_of[static_cast<size_t>(step.peer)];
      for (const size_t link : topology.path(from, to)) {
        loads[link] += static_cast<double>(range.end - range.begin);
      }
    }
  }
  for (double& load : loads) load /= static_cast<double>(plan.count);
  return loads;
}

double busiest_link(const Plan& plan) {
  const std::vector<double> loads = link_loads(plan);
  return *std::max_element(loads.begin(), loads.end());
}

// The bounds of docs/plans.md: the time of an all_reduce of S bytes is this times S / rate.
TEST(TopologyPlans, TheBusiestLinkCarriesWhatTheBoundSays) {
  struct Case {
    const char* topology;
    PlanKind kind;
    double load;
  };
  for (const Case& c :
       {Case{"pair", PlanKind::kTwoStep, 1}, Case{"pair", PlanKind::kRing, 1},
        Case{"ring4", PlanKind::kBidirectionalRing, 0.75},
        Case{"ring8", PlanKind::kBidirectionalRing, 0.875},
        Case{"ring7", PlanKind::kBidirectionalRing, 6.0 / 7}, Case{"ring8", PlanKind::kRing, 1.75},
        Case{"torus2x2", PlanKind::kTorus, 0.75},
        Case{"torus2x2", PlanKind::kBidirectionalRing, 0.75},
        Case{"torus2x4", PlanKind::kTorus, 7.0 / 12}, Case{"torus4x2", PlanKind::kTorus, 7.0 / 12},
        Case{"torus4x4", PlanKind::kTorus, 15.0 / 32},
        Case{"torus2x2x2", PlanKind::kTorus, 7.0 / 12}, Case{"torus3x3", PlanKind::kTorus, 4.0 / 9},
        Case{"torus4x4x4", PlanKind::kTorus, 63.0 / 192}, Case{"mesh4", PlanKind::kTwoStep, 0.5},
        Case{"star8", PlanKind::kTwoStep, 1.75}, Case{"star8", PlanKind::kHalvingDoubling, 1.75},
        Case{"star8", PlanKind::kBidirectionalRing, 1.75}}) {
    const auto topology = topology_of(c.topology);
    const Plan plan = must_make(request_on(*topology, Collective::kAllReduce, c.kind));
    const Status proof = verify_plan(plan);
    EXPECT_TRUE(proof.ok()) << proof.to_string();
    EXPECT_NEAR(busiest_link(plan), c.load, 1e-3) << c.topology << " " << plan_kind_name(c.kind);
  }
}

// All links of a ring, and of a torus whose dimensions differ, are busy all the time: what they
// carry differs by rounding only.
TEST(TopologyPlans, AllLinksAreEquallyBusy) {
  for (const char* name : {"ring6", "torus2x4", "torus3x4", "torus2x3x4", "torus4x4"}) {
    const auto topology = topology_of(name);
    const PlanKind kind = topology->dims.empty() ? PlanKind::kBidirectionalRing : PlanKind::kTorus;
    const std::vector<double> loads =
        link_loads(must_make(request_on(*topology, Collective::kAllReduce, kind)));
    const auto [low, high] = std::minmax_element(loads.begin(), loads.end());
    EXPECT_NEAR(*low, *high, 1e-3) << name;
  }
}

TEST(TopologyPlans, ASlowDimensionGetsFewerBytes) {
  const auto even = topology_of("torus4x4");
  Topology lame = *even;
  for (TopologyLink& link : lame.links) {
    if (link.from % 4 == link.to % 4) link.bytes_per_s /= 2;
  }
  const Plan plan = must_make(request_on(lame, Collective::kAllReduce, PlanKind::kTorus));
  ASSERT_TRUE(verify_plan(plan).ok());
  const std::vector<double> loads = link_loads(plan);
  double slow = 0, fast = 0;
  for (size_t i = 0; i < loads.size(); ++i) {
    double& worst = lame.links[i].from % 4 == lame.links[i].to % 4 ? slow : fast;
    worst = std::max(worst, loads[i] / lame.links[i].bytes_per_s);
  }
  EXPECT_NEAR(slow / fast, 1, 1e-3);
}

// Two hosts of 3 and 1 and 2 ranks on a switch: whatever their number, a host's bytes cross once.
TEST(TopologyPlans, AHierarchySendsEachHostsBytesOnce) {
  const auto topology = parse_topology(R"({"rate": "1gbit", "switches": ["s"],
      "hosts": [{"name": "a", "ranks": [0, 2, 4]}, {"name": "b", "ranks": [1]},
                {"name": "c", "ranks": [3, 5]}],
      "links": [{"between": ["a", "s"]}, {"between": ["b", "s"]}, {"between": ["c", "s"]}]})")
                            .value();
  for (const Collective collective :
       {Collective::kAllReduce, Collective::kReduceScatter, Collective::kAllGather}) {
    const Plan plan = must_make(request_on(*topology, collective, PlanKind::kHierarchical));
    const Status proof = verify_plan(plan);
    ASSERT_TRUE(proof.ok()) << proof.to_string();
    EXPECT_EQ(wrong_in(plan, PlanWalker(plan, 5).walk()), "");
    if (collective != Collective::kAllReduce) continue;
    for (const double load : link_loads(plan)) EXPECT_NEAR(load, 2.0 * 2 / 3, 1e-3);
    const Plan flat = must_make(request_on(*topology, collective, PlanKind::kTwoStep));
    EXPECT_GT(busiest_link(flat), 1.6);
  }
}

void expect_cycle(const Topology& topology, const std::vector<int>& cycle) {
  ASSERT_EQ(cycle.size(), static_cast<size_t>(topology.ranks())) << topology.name;
  std::vector<int> sorted = cycle;
  std::sort(sorted.begin(), sorted.end());
  for (int rank = 0; rank < topology.ranks(); ++rank) {
    EXPECT_EQ(sorted[static_cast<size_t>(rank)], rank) << topology.name;
  }
  for (size_t i = 0; i < cycle.size(); ++i) {
    EXPECT_TRUE(topology.adjacent(cycle[i], cycle[(i + 1) % cycle.size()])) << topology.name;
  }
}

TEST(RankCycle, GoesThroughEveryTorus) {
  for (int a = 2; a <= 7; ++a) {
    for (int b = 2; b <= 7; ++b) {
      const std::string flat = "torus" + std::to_string(a) + "x" + std::to_string(b);
      const auto topology = topology_of(flat);
      expect_cycle(*topology, grid_cycle(topology->dims));
      for (int c = 2; c <= 5; ++c) {
        const auto deep = topology_of(flat + "x" + std::to_string(c));
        expect_cycle(*deep, grid_cycle(deep->dims));
      }
    }
  }
}

TEST(RankCycle, IsSearchedForWhereNoOrderIsKnown) {
  // A ring in a strange order, and two ranks in the middle of a line of hosts.
  const auto shuffled = parse_topology(R"({"rate": "1gbit", "hosts": ["a", "b", "c", "d", "e"],
      "links": [{"between": ["a", "c"]}, {"between": ["c", "e"]}, {"between": ["e", "b"]},
                {"between": ["b", "d"]}, {"between": ["d", "a"]}]})")
                            .value();
  expect_cycle(*shuffled, find_rank_cycle(shuffled.get(), 5));
  const auto middle = parse_topology(R"({"rate": "1gbit",
      "hosts": ["a", {"name": "b", "ranks": [1, 2]}, "c"],
      "links": [{"between": ["a", "b"]}, {"between": ["b", "c"]}]})")
                          .value();
  expect_cycle(*middle, find_rank_cycle(middle.get(), 4));
  const auto line = parse_topology(R"({"rate": "1gbit", "hosts": ["a", "b", "c"],
      "links": [{"between": ["a", "b"]}, {"between": ["b", "c"]}]})")
                        .value();
  EXPECT_TRUE(find_rank_cycle(line.get(), 3).empty());
}

void expect_misfit(const Topology& topology, Collective collective, PlanKind kind,
                   std::string_view message) {
  const Result<Plan> plan = make_plan(request_on(topology, collective, kind));
  ASSERT_FALSE(plan.ok()) << message;
  EXPECT_EQ(plan.status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(plan.status().message(), message);
}

TEST(TopologyPlans, AMisfitNamesTheMissingLinkAndWhatFits) {
  const auto ring = topology_of("ring4");
  expect_misfit(*ring, Collective::kAllReduce, PlanKind::kTwoStep,
                "two_step needs a link between rank 0 and rank 2; topology ring4 has none; use "
                "ring, bidirectional_ring, tree or hierarchical");
  expect_misfit(*ring, Collective::kAllReduce, PlanKind::kOneShot,
                "one_shot needs a link between rank 0 and rank 2; topology ring4 has none; use "
                "ring, bidirectional_ring, tree or hierarchical");
  expect_misfit(*ring, Collective::kAllReduce, PlanKind::kTorus,
                "torus needs a torus of links; for one of 2 x 2 topology ring4 has no link between "
                "rank 0 and rank 2; use ring, bidirectional_ring, tree or hierarchical");
  expect_misfit(*ring, Collective::kBroadcast, PlanKind::kTwoStep,
                "two_step needs a link between rank 1 and rank 3; topology ring4 has none; use "
                "ring, bidirectional_ring or tree");
  expect_misfit(
      *ring, Collective::kGather, PlanKind::kTwoStep,
      "two_step needs a link between rank 0 and rank 2; topology ring4 has none; use tree");
  const auto line = parse_topology(R"({"name": "line", "rate": "1gbit", "hosts": ["a", "b", "c"],
      "links": [{"between": ["a", "b"]}, {"between": ["b", "c"]}]})")
                        .value();
  expect_misfit(
      *line, Collective::kAllReduce, PlanKind::kRing,
      "ring needs a ring of links through all ranks; topology line has no link between "
      "rank 0 and rank 2, and no other order of them was found; use tree or hierarchical");
  PlanRequest request = request_on(*ring, Collective::kAllReduce, PlanKind::kRing);
  request.size = 5;
  EXPECT_EQ(make_plan(request).status().message(),
            "all_reduce: topology ring4 has 4 ranks, the group has 5");
}

TEST(TopologyPlans, ABarrierNeedsNoLinks) {
  const auto ring = topology_of("ring8");
  EXPECT_TRUE(make_plan(request_on(*ring, Collective::kBarrier, PlanKind::kTwoStep)).ok());
}

TEST(TopologyPlans, TheVerifierKnowsTheLinks) {
  const auto ring = topology_of("ring5");
  Plan plan = std::move(make_plan({.size = 5, .count = 100})).value();
  ASSERT_TRUE(verify_plan(plan).ok());
  plan.topology = ring.get();
  const Status status = verify_plan(plan);
  EXPECT_NE(status.message().find("topology ring5 has no link to the peer"), std::string_view::npos)
      << status.message();
  const auto larger = topology_of("ring6");
  plan.topology = larger.get();
  EXPECT_NE(verify_plan(plan).message().find("ring6 has 6 ranks"), std::string_view::npos);
}

TEST(TopologyPlans, OneRanksStepsAreThoseOfTheWholePlan) {
  for (const char* name : {"ring6", "torus2x4", "star5", "torus3x3"}) {
    const auto topology = topology_of(name);
    for (const Algorithm& algorithm : kAlgorithms) {
      PlanRequest request = request_on(*topology, algorithm.collective, algorithm.kind);
      const Result<Plan> whole = make_plan(request);
      if (!whole.ok()) continue;
      request.only_rank = topology->ranks() - 1;
      const Plan part = must_make(request);
      EXPECT_EQ(part.steps.back(), whole.value().steps.back());
      EXPECT_TRUE(part.steps.front().empty());
      EXPECT_EQ(part.incoming_flows_max, whole.value().incoming_flows_max);
    }
  }
}

// On a line what 0 has for 3 passes through 1 and 2, and nobody else; they keep nothing of it.
TEST(TopologyPlans, WhatIsNotForNeighboursIsHandedOn) {
  const auto line = parse_topology(R"({"rate": "1gbit", "hosts": ["a", "b", "c", "d"],
      "links": [{"between": ["a", "b"]}, {"between": ["b", "c"]}, {"between": ["c", "d"]}]})")
                        .value();
  const Plan plan = must_make(request_on(*line, Collective::kAllToAll, PlanKind::kTree));
  const auto steps_of = [&](size_t rank) {
    std::vector<Step> steps;
    for (const Step& step : plan.steps[rank]) {
      if (step.chunk == 3) steps.push_back(step);
    }
    return steps;
  };
  EXPECT_EQ(steps_of(0),
            (std::vector<Step>{{StepKind::kFinish, -1, 3}, {StepKind::kSendFinal, 1, 3}}));
  EXPECT_EQ(steps_of(1),
            (std::vector<Step>{{StepKind::kReceiveStore, 0, 3}, {StepKind::kForward, 2, 3}}));
  EXPECT_EQ(steps_of(2),
            (std::vector<Step>{{StepKind::kReceiveStore, 1, 3}, {StepKind::kForward, 3, 3}}));
  EXPECT_EQ(steps_of(3), (std::vector<Step>{{StepKind::kReceiveStore, 2, 3}}));
  Plan cut = plan;
  std::erase_if(cut.steps[2], [](const Step& s) { return s == Step{StepKind::kForward, 3, 3}; });
  std::erase_if(cut.steps[3], [](const Step& s) { return s.chunk == 3; });
  EXPECT_FALSE(verify_plan(cut).ok());
}

// What the executor shares its memory out among is what the steps need.
TEST(TopologyPlans, IncomingFlowsAreThoseOfTheBusiestRank) {
  for (const Algorithm& algorithm : kAlgorithms) {
    const Plan plan = must_make(request_of(algorithm, 7, 77'000, 32, 2));
    size_t most = 0;
    for (const auto& steps : plan.steps) {
      most = std::max(
          most, static_cast<size_t>(std::count_if(steps.begin(), steps.end(), [](const Step& step) {
            return step.kind == StepKind::kReceiveAdd || step.kind == StepKind::kReceiveStore;
          })));
    }
    EXPECT_EQ(plan.incoming_flows_max, most) << describe(request_of(algorithm, 7, 77'000));
  }
}

TEST(TopologyPlans, LargeTorusesArePlanned) {
  const auto topology = topology_of("torus8x8x8");
  PlanRequest request = request_on(*topology, Collective::kAllReduce, PlanKind::kTorus);
  request.only_rank = 77;
  const Plan plan = must_make(request);
  EXPECT_EQ(plan.chunks.size(), 512U * 3 * 2);
  // It gives and takes every chunk but its own six once, and finishes those.
  const auto count_of = [&](StepKind kind) {
    return std::count_if(plan.steps[77].begin(), plan.steps[77].end(),
                         [kind](const Step& step) { return step.kind == kind; });
  };
  EXPECT_EQ(count_of(StepKind::kSendPartial), 511 * 6);
  EXPECT_EQ(count_of(StepKind::kReceiveStore), 511 * 6);
  EXPECT_EQ(count_of(StepKind::kFinish), 6);
}

TEST(ChoosePlanOnATopology, TakesWhatFitsAndLoadsTheLinksLeast) {
  const auto choice = [](const char* name, Collective collective, size_t bytes) {
    const auto topology = topology_of(name);
    return choose_plan(collective, topology->ranks(), bytes, topology.get());
  };
  constexpr size_t kLarge = 16 << 20;
  EXPECT_EQ(choice("torus2x4", Collective::kAllReduce, kLarge), PlanKind::kTorus);
  EXPECT_EQ(choice("torus2x4", Collective::kBroadcast, kLarge), PlanKind::kBidirectionalRing);
  EXPECT_EQ(choice("ring8", Collective::kAllReduce, kLarge), PlanKind::kBidirectionalRing);
  EXPECT_EQ(choice("ring8", Collective::kAllGather, kLarge), PlanKind::kBidirectionalRing);
  EXPECT_EQ(choice("ring8", Collective::kAllReduce, 1000), PlanKind::kTree);
  EXPECT_EQ(choice("ring8", Collective::kAllToAll, kLarge), PlanKind::kTree);
  // On slow links a few KiB count for more than a few messages; on fast ones 32 KiB do not.
  const auto at_rate = [](const char* name, double rate, size_t bytes) {
    const auto topology = make_topology(name, rate).value();
    return choose_plan(Collective::kAllReduce, topology->ranks(), bytes, topology.get());
  };
  EXPECT_EQ(at_rate("ring4", 25e6, 17'000), PlanKind::kBidirectionalRing);
  EXPECT_EQ(at_rate("torus2x4", 12.5e6, 1000), PlanKind::kTorus);
  EXPECT_EQ(at_rate("torus2x4", 12.5e6, 500), PlanKind::kTree);
  EXPECT_EQ(at_rate("ring4", 10e9, 32'000), PlanKind::kTree);
  EXPECT_EQ(at_rate("ring4", 10e9, 33'000), PlanKind::kBidirectionalRing);
  EXPECT_EQ(at_rate("mesh4", 25e6, 17'000), PlanKind::kTwoStep);
  EXPECT_EQ(at_rate("mesh4", 10e9, 17'000), PlanKind::kOneShot);
  EXPECT_EQ(choice("torus2x4", Collective::kGather, 1000), PlanKind::kTree);
  EXPECT_EQ(choice("mesh4", Collective::kAllToAll, kLarge), PlanKind::kTwoStep);
  EXPECT_EQ(choice("mesh4", Collective::kAllReduce, kLarge), PlanKind::kTwoStep);
  EXPECT_EQ(choice("star8", Collective::kAllReduce, kLarge), PlanKind::kTwoStep);
  EXPECT_EQ(choice("mesh4", Collective::kAllReduce, 1000), PlanKind::kOneShot);
  const auto hosts = parse_topology(R"({"rate": "1gbit", "hosts": [{"name": "a", "ranks": [0, 1]},
      {"name": "b", "ranks": [2, 3]}], "links": [{"between": ["a", "b"]}]})")
                         .value();
  EXPECT_EQ(choose_plan(Collective::kAllReduce, 4, kLarge, hosts.get()), PlanKind::kHierarchical);
  const auto line = parse_topology(R"({"rate": "1gbit", "hosts": ["a", "b", "c"],
      "links": [{"between": ["a", "b"]}, {"between": ["b", "c"]}]})")
                        .value();
  EXPECT_EQ(choose_plan(Collective::kBroadcast, 3, kLarge, line.get()), PlanKind::kTree);
}

}  // namespace
}  // namespace tersum::testing
