// The cost model against closed forms: where only the wire counts it gives the bounds of
// docs/plans.md; each other cost shows in its own term.
#include "plan/cost_model.h"

#include <gtest/gtest.h>

namespace tersum::testing {
namespace {

constexpr double kRate = 125e6;
constexpr double kGoodput = 1448.0 / 1514;
constexpr double kBytes = 64e6;

// Nothing but links: cores and memory are infinitely fast, and no flow waits for another.
CostRequest only_wires(const Topology& topology) {
  CostRequest request;
  request.topology = &topology;
  request.value_bytes = kBytes;
  request.machine = {};
  request.machine.send_s_per_byte = request.machine.receive_s_per_byte = 0;
  request.machine.read_s_per_byte = 0;
  request.machine.memory_bytes_per_s = 0;
  request.machine.message_s = request.machine.local_latency_s = request.machine.call_s = 0;
  request.machine.port_share = request.machine.limited_port_share = 0;
  return request;
}

std::shared_ptr<const Topology> topology_of(std::string_view name, double latency_s = 0) {
  return std::move(make_topology(name, kRate, latency_s)).value();
}

PlanCost must_price(const CostRequest& request, PlanKind kind) {
  const Result<PlanCost> cost = price_plan(request, kind);
  EXPECT_TRUE(cost.ok()) << cost.status().to_string();
  return cost.value();
}

TEST(CostModel, GivesTheClosedFormsWhereOnlyTheWireCounts) {
  struct Case {
    const char* topology;
    PlanKind kind;
    double share;
  };
  for (const Case& c :
       {Case{"pair", PlanKind::kTwoStep, 1}, Case{"ring4", PlanKind::kBidirectionalRing, 0.75},
        Case{"ring8", PlanKind::kBidirectionalRing, 0.875},
        Case{"torus2x2", PlanKind::kTorus, 0.75}, Case{"torus2x4", PlanKind::kTorus, 7.0 / 12},
        Case{"mesh4", PlanKind::kTwoStep, 0.5}, Case{"star8", PlanKind::kTwoStep, 1.75}}) {
    const auto topology = topology_of(c.topology);
    const CostRequest request = only_wires(*topology);
    const double expected = c.share * kBytes / (kRate * kGoodput);
    const PlanCost cost = must_price(request, c.kind);
    EXPECT_NEAR(cost.wire_s / expected, 1, 1e-4) << c.topology;
    EXPECT_NEAR(cost.time_s / expected, 1, 0.01) << c.topology;
    EXPECT_EQ(cost.dominant, CostTerm::kWire);
    EXPECT_NEAR(wire_bound_s(request) / expected, 1, 1e-9) << c.topology;
    EXPECT_EQ(choose_plan_by_cost(request), price_plans(request).front().kind);
    EXPECT_LE(price_plans(request).front().cost.value().time_s, 1.005 * cost.time_s) << c.topology;
  }
}

TEST(CostModel, NoPlanBeatsTheBound) {
  for (const char* name : {"pair", "ring5", "torus2x4", "torus3x3", "mesh5", "star6"}) {
    const auto topology = topology_of(name);
    for (const Collective collective :
         {Collective::kAllReduce, Collective::kReduceScatter, Collective::kAllGather,
          Collective::kBroadcast, Collective::kAllToAll, Collective::kGather,
          Collective::kScatter}) {
      CostRequest request = only_wires(*topology);
      request.collective = collective;
      const double bound = wire_bound_s(request);
      EXPECT_GT(bound, 0) << name;
      for (const PricedPlan& plan : price_plans(request)) {
        if (plan.cost.ok()) {
          EXPECT_GE(plan.cost.value().time_s, bound * (1 - 1e-6))
              << name << " " << collective_name(collective) << " " << plan_kind_name(plan.kind);
        }
      }
    }
  }
}

TEST(CostModel, CodecsShortenTheWire) {
  const auto topology = topology_of("ring8");
  CostRequest request = only_wires(*topology);
  const double exact = must_price(request, PlanKind::kBidirectionalRing).time_s;
  request.codec.wire_ratio = 130.0 / 512;
  const double coded = must_price(request, PlanKind::kBidirectionalRing).time_s;
  EXPECT_NEAR(exact / coded, 512.0 / 130, 0.05);
}

// A message of a few bytes takes as many latencies as it has dependent hops.
TEST(CostModel, SmallArraysAreLatency) {
  constexpr double kLatency = 50e-6;
  struct Case {
    const char* topology;
    PlanKind kind;
    int hops;
    double links_per_hop;
  };
  for (const Case& c :
       {Case{"pair", PlanKind::kTwoStep, 2, 1}, Case{"pair", PlanKind::kOneShot, 1, 1},
        Case{"ring8", PlanKind::kRing, 14, 1}, Case{"ring8", PlanKind::kBidirectionalRing, 8, 1},
        Case{"mesh8", PlanKind::kHalvingDoubling, 6, 1}, Case{"mesh8", PlanKind::kTree, 6, 1},
        Case{"star8", PlanKind::kTwoStep, 2, 2}, Case{"torus4x4", PlanKind::kTorus, 8, 1}}) {
    const auto topology = topology_of(c.topology, kLatency);
    CostRequest request = only_wires(*topology);
    request.value_bytes = 64;
    const PlanCost cost = must_price(request, c.kind);
    EXPECT_EQ(cost.hops, c.hops) << c.topology;
    EXPECT_NEAR(cost.time_s / (c.hops * c.links_per_hop * kLatency), 1, 0.05) << c.topology;
    EXPECT_EQ(cost.dominant, CostTerm::kLatency) << c.topology;
  }
}

// The formula of plans.md for arrays in one message, two ranks: S / B + 2 L.
TEST(CostModel, OneSliceCannotHideItsLatencies) {
  const auto topology = topology_of("pair", 30e-6);
  CostRequest request = only_wires(*topology);
  request.value_bytes = 16e3;
  const double expected = 16e3 / (kRate * kGoodput) + 60e-6;
  EXPECT_NEAR(must_price(request, PlanKind::kTwoStep).time_s / expected, 1, 0.02);
}

// Half of each call the links of a tree rest; what a bucket has saved up meanwhile passes at once.
TEST(CostModel, BucketsSpendWhatRestSaved) {
  const auto resting = topology_of("mesh4");
  Topology filling = *resting;
  for (TopologyLink& link : filling.links) link.burst_bytes = 72 * 1024;
  CostRequest request = only_wires(*resting);
  request.value_bytes = 128e3;
  const PlanCost slow = must_price(request, PlanKind::kTree);
  EXPECT_GT(slow.time_s, 1.15 * slow.wire_s);
  request.topology = &filling;
  const PlanCost quick = must_price(request, PlanKind::kTree);
  // No more passes in the long run than the rate lets through.
  EXPECT_EQ(quick.wire_s, slow.wire_s);
  EXPECT_NEAR(quick.time_s / quick.wire_s, 1, 0.01);
  request.value_bytes = 128e6;
  const PlanCost large = must_price(request, PlanKind::kTree);
  EXPECT_NEAR(large.time_s / large.wire_s, 1, 0.01);
}

TEST(CostModel, RanksThatShareCoresAddUp) {
  const auto topology = topology_of("mesh4");
  CostRequest request = only_wires(*topology);
  request.codec = {1e9, 1e9, 1e9, 1e9, 1};
  const double alone = must_price(request, PlanKind::kTwoStep).cpu_s;
  // Each encodes 3/4, combines 1/4 of three peers', decodes 3/4.
  EXPECT_NEAR(alone, kBytes * (0.75 + 0.25 * 3 + 0.75) / 1e9, 1e-6);
  request.machine.one_machine = true;
  request.machine.cores = 2;
  const PlanCost together = must_price(request, PlanKind::kTwoStep);
  EXPECT_NEAR(together.cpu_s, 2 * alone, 1e-6);
  EXPECT_EQ(together.codec_share, 1);
  EXPECT_EQ(together.dominant, CostTerm::kCodec);
  request.machine.cores = 4;
  EXPECT_EQ(must_price(request, PlanKind::kTwoStep).dominant, CostTerm::kWire);
}

TEST(CostModel, SendingAndReceivingCostTheirCores) {
  const auto topology = topology_of("pair");
  CostRequest request = only_wires(*topology);
  request.machine.send_s_per_byte = 2e-6;
  request.machine.receive_s_per_byte = 1e-6;
  const PlanCost cost = must_price(request, PlanKind::kTwoStep);
  EXPECT_NEAR(cost.cpu_s, kBytes * 3e-6, 1e-3);
  EXPECT_EQ(cost.dominant, CostTerm::kTransport);
  EXPECT_EQ(cost.codec_share, 0);
}

// Seven flows by two_step, three by halving_doubling, two by a ring both ways, one by a ring. On
// ports of 10 Gbit/s nothing but memory limits what each has under way.
TEST(CostModel, FlowsThatShareASwitchsPortWaitForEachOther) {
  const auto over_bound = [](double bytes_per_s, PlanKind kind) {
    const auto star = make_topology("star8", bytes_per_s, 1e-9).value();
    CostRequest request = only_wires(*star);
    request.machine.port_share = MachineRates().port_share;
    request.machine.limited_port_share = MachineRates().limited_port_share;
    return must_price(request, kind).time_s / wire_bound_s(request);
  };
  EXPECT_NEAR(over_bound(1.25e9, PlanKind::kTwoStep), 1.06, 0.002);
  EXPECT_NEAR(over_bound(1.25e9, PlanKind::kHalvingDoubling), 1.02, 0.002);
  EXPECT_NEAR(over_bound(1.25e9, PlanKind::kBidirectionalRing), 1.01, 0.002);
  EXPECT_NEAR(over_bound(1.25e9, PlanKind::kRing), 1.00, 0.002);
  EXPECT_NEAR(over_bound(31.25e6, PlanKind::kTwoStep), 1.012, 0.002);
  EXPECT_NEAR(over_bound(31.25e6, PlanKind::kHalvingDoubling), 1.004, 0.002);
  EXPECT_NEAR(over_bound(31.25e6, PlanKind::kRing), 1.00, 0.002);
}

// As the executor cuts them: three times as many where a flow has 40 KiB under way.
TEST(CostModel, SlicesAreHalfOfWhatAFlowHasUnderWay) {
  const auto messages_s = [](double bytes_per_s) {
    const auto star = make_topology("star8", bytes_per_s, 1e-9).value();
    CostRequest request = only_wires(*star);
    request.machine.message_s = 1e-3;
    return must_price(request, PlanKind::kTree).cpu_s;
  };
  EXPECT_NEAR(messages_s(31.25e6) / messages_s(1.25e9), 63.0 / 20, 0.1);
}

// Wires that lead from host to host have no port to share, however many plans pass them.
TEST(CostModel, LinksBetweenHostsHaveNoPorts) {
  for (const char* name : {"pair", "mesh4", "ring8", "torus2x4"}) {
    const auto topology = topology_of(name);
    CostRequest request = only_wires(*topology);
    request.machine.port_share = 1;
    for (const PricedPlan& plan : price_plans(request)) {
      EXPECT_EQ(plan.cost.ok() ? plan.cost.value().ports_s : 0, 0) << name;
    }
  }
}

TEST(CostModel, MemoryCountsBeyondTheCache) {
  const auto topology = topology_of("pair");
  CostRequest request = only_wires(*topology);
  request.machine.memory_bytes_per_s = 1e6;
  request.machine.cache_bytes = 10e6;
  const PlanCost cost = must_price(request, PlanKind::kTwoStep);
  EXPECT_NEAR(cost.memory_s, kBytes / 1e6, 1e-6);
  EXPECT_EQ(cost.dominant, CostTerm::kMemory);
  request.value_bytes = 9e6;
  EXPECT_EQ(must_price(request, PlanKind::kTwoStep).memory_s, 0);
}

TEST(CostModel, RanksOfOneHostNeedNoLinks) {
  const auto topology =
      parse_topology(R"({"hosts": [{"name": "a", "ranks": [0, 1, 2, 3]}]})").value();
  CostRequest request = only_wires(*topology);
  request.machine.read_s_per_byte = 1e-9;
  request.machine.cores = 4;
  const PlanCost cost = must_price(request, PlanKind::kTwoStep);
  EXPECT_EQ(cost.wire_s, 0);
  EXPECT_NEAR(cost.cpu_s, 1.5 * kBytes * 1e-9, 1e-6);
  EXPECT_EQ(wire_bound_s(request), 0);
}

TEST(CostModel, AHierarchyWinsWhereHostsShareALink) {
  const auto topology = parse_topology(R"({"rate": "1gbit",
      "hosts": [{"name": "a", "ranks": [0, 2, 4, 6]}, {"name": "b", "ranks": [1, 3, 5, 7]}],
      "links": [{"between": ["a", "b"]}]})")
                            .value();
  CostRequest request = only_wires(*topology);
  EXPECT_EQ(choose_plan_by_cost(request), PlanKind::kHierarchical);
  EXPECT_NEAR(must_price(request, PlanKind::kHierarchical).wire_s / wire_bound_s(request), 1, 1e-9);
  EXPECT_GT(must_price(request, PlanKind::kTwoStep).wire_s, 3 * wire_bound_s(request));
  EXPECT_GT(must_price(request, PlanKind::kHalvingDoubling).wire_s, 3 * wire_bound_s(request));
}

// Pairs meet first that are neighbours: what leaves a host is the sum of its ranks.
TEST(CostModel, HalvingSparesTheLinkWhereHostsHoldNeighbours) {
  const auto topology = parse_topology(R"({"rate": "1gbit",
      "hosts": [{"name": "a", "ranks": [0, 1, 2, 3]}, {"name": "b", "ranks": [4, 5, 6, 7]}],
      "links": [{"between": ["a", "b"]}]})")
                            .value();
  const CostRequest request = only_wires(*topology);
  for (const PlanKind kind : {PlanKind::kHalvingDoubling, PlanKind::kHierarchical}) {
    EXPECT_NEAR(must_price(request, kind).wire_s / wire_bound_s(request), 1, 1e-9);
  }
}

TEST(CostModel, MisfitsComeLastWithTheirReason) {
  const auto topology = topology_of("ring6");
  const std::vector<PricedPlan> plans = price_plans(only_wires(*topology));
  EXPECT_EQ(plans.size(), static_cast<size_t>(kPlanKindCount - 1));
  EXPECT_EQ(plans.front().kind, PlanKind::kBidirectionalRing);
  ASSERT_FALSE(plans.back().cost.ok());
  EXPECT_NE(plans.back().cost.status().message().find(
                "topology ring6 has no link between rank 0 and rank 3"),
            std::string_view::npos);
  CostRequest gather = only_wires(*topology);
  gather.collective = Collective::kGather;
  EXPECT_EQ(choose_plan_by_cost(gather), PlanKind::kTree);
  EXPECT_FALSE(price_plan(gather, PlanKind::kRing).ok());
  EXPECT_FALSE(price_plan(gather, PlanKind::kAuto).ok());
}

// Chunks of one slice each: level by level the links wait for a hop. What buckets save up meanwhile
// passes at once afterwards, but for what the cores take.
TEST(CostModel, ABucketGivesBackWhatItsLinkWaited) {
  const std::string links = R"("rate": "1gbit", "latency_us": 50, "hosts": ["a", "b", "c", "d"],
      "links": [{"between": ["a", "b"]}, {"between": ["b", "c"]}, {"between": ["c", "d"]},
                {"between": ["d", "a"]}]})";
  const auto plain = parse_topology("{" + links).value();
  const auto buckets = parse_topology(R"({"burst_bytes": 73728, )" + links).value();
  CostRequest request = only_wires(*plain);
  request.value_bytes = 4 * 8000;
  const PlanCost waits = must_price(request, PlanKind::kRing);
  ASSERT_EQ(waits.hops, 6);
  EXPECT_NEAR(waits.time_s, waits.wire_s + 300e-6, 1e-9);
  request.topology = buckets.get();
  EXPECT_NEAR(must_price(request, PlanKind::kRing).time_s, waits.wire_s + 50e-6, 1e-9);
  request.machine.message_s = 5e-6;
  const PlanCost served = must_price(request, PlanKind::kRing);
  ASSERT_LT(served.cpu_s / 2, 250e-6);
  EXPECT_NEAR(served.time_s, served.wire_s + served.cpu_s / 2 + served.ends_s, 1e-9);
}

TEST(CostModel, OfEquallyQuickPlansTheOneThatNeedsTheCoresLeastWins) {
  const auto topology = topology_of("star8", 10e-6);
  CostRequest request = only_wires(*topology);
  request.machine.message_s = 1e-6;
  const std::vector<PricedPlan> plans = price_plans(request);
  EXPECT_EQ(plans.front().kind, PlanKind::kTwoStep);
  EXPECT_LE(plans.front().cost.value().time_s, 1.005 * plans[1].cost.value().time_s);
}

TEST(CostModel, SmallArraysTakeTreesAndLargeOnesRings) {
  const auto topology = topology_of("ring16", 100e-6);
  CostRequest request = only_wires(*topology);
  request.machine.message_s = 1e-6;
  request.value_bytes = 100;
  EXPECT_EQ(choose_plan_by_cost(request), PlanKind::kTree);
  request.value_bytes = 256e6;
  EXPECT_EQ(choose_plan_by_cost(request), PlanKind::kBidirectionalRing);
}

TEST(CostModel, NothingToMoveCostsOnlyTheCall) {
  const auto topology = topology_of("mesh4", 1);
  CostRequest request = only_wires(*topology);
  request.value_bytes = 0;
  request.machine.call_s = 3e-6;
  for (const PricedPlan& plan : price_plans(request)) {
    if (!plan.cost.ok()) continue;
    EXPECT_NEAR(plan.cost.value().time_s, 3e-6, 1e-12) << plan_kind_name(plan.kind);
  }
  request.collective = Collective::kBarrier;
  EXPECT_TRUE(price_plan(request, PlanKind::kTwoStep).ok());
}

TEST(CostModel, AThousandRanksArePriced) {
  for (const char* name : {"ring1024", "star1024", "torus32x32"}) {
    const auto topology = topology_of(name, 1e-6);
    CostRequest request = only_wires(*topology);
    const PlanKind kind = topology->dims.empty() ? PlanKind::kBidirectionalRing : PlanKind::kTorus;
    EXPECT_NEAR(must_price(request, kind).wire_s / wire_bound_s(request), 1, 1e-3) << name;
  }
}

TEST(CostModel, TypicalRatesAreThereForEveryCodec) {
  for (const char* codec : {"exact", "bf16", "int8/128", "int4/64", "int8/32+x", "other"}) {
    const CodecRates rates = typical_codec_rates(codec);
    EXPECT_GT(rates.encode, 1e9) << codec;
    EXPECT_GT(rates.combine, 1e9) << codec;
    EXPECT_GT(rates.decode, 1e9) << codec;
  }
  EXPECT_LT(typical_codec_rates("int8").combine, typical_codec_rates("exact").combine);
}

}  // namespace
}  // namespace tersum::testing
