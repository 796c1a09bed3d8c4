// How large the slices of a plan are, whatever the format has once a slice.
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "codec/codec.h"
#include "plan/flow_window.h"
#include "plan/topology.h"
#include "runtime/compiled_plan.h"
#include "runtime/rendezvous.h"
#include "wire/message.h"

namespace tersum {
namespace {

std::shared_ptr<const CompiledPlan> plan_of(const std::string& spec, size_t count,
                                            const SliceLimits& limits, int ranks = 2,
                                            PlanKind kind = PlanKind::kTwoStep) {
  const Codec* codec = find_codec(spec, DataType::kFloat32, ReduceOp::kSum).value();
  PlanRequest request;
  request.collective = Collective::kAllReduce;
  request.kind = kind;
  request.size = ranks;
  request.count = count;
  return compile_plan(request, *codec, 0, limits).value();
}

size_t slice_bytes_of(const std::string& spec, size_t count, const SliceLimits& limits) {
  const auto plan = plan_of(spec, count, limits);
  return std::max(plan->codec->wire_bytes(plan->slice_values),
                  plan->gathered->wire_bytes(plan->slice_values));
}

constexpr const char* kSpecs[] = {"exact",
                                  "bf16",
                                  "int8/128",
                                  "int4/32",
                                  "nvfp4",
                                  "int8/128+clip:learned",
                                  "int4/128+clip:learned",
                                  "int4/128+adaptive",
                                  "int4/1024+sparse:0.2%"};

void expect_slices(GroupCarrier carrier, size_t bytes_max) {
  for (const char* spec : kSpecs) {
    for (const size_t count : {size_t{1} << 18, size_t{1} << 22}) {
      const size_t bytes = slice_bytes_of(spec, count, limits_by_carrier({}, carrier, 3));
      EXPECT_LE(bytes, bytes_max) << spec << ' ' << count;
      EXPECT_GT(bytes, bytes_max * 9 / 10) << spec << ' ' << count;
    }
  }
}

TEST(SliceSize, InMemoryIsWhatMayTravelUnasked) { expect_slices(GroupCarrier::kMemory, 64 * 1024); }

// A message and its header are one segment: the interface takes packets of 65536 bytes, of which
// 52 are headers of IP and TCP.
TEST(SliceSize, OnLoopbackFitsASegment) {
  expect_slices(GroupCarrier::kLoopback, 63 * 1024);
  EXPECT_LE(63 * 1024 + kMessageHeaderBytes, size_t{65'536 - 52});
}

TEST(SliceSize, OfTwoRanksOfAHostIsASixteenthOfAChunk) {
  for (const GroupCarrier carrier : {GroupCarrier::kMemory, GroupCarrier::kLoopback}) {
    const SliceLimits limits = limits_by_carrier({}, carrier, 2);
    const bool segments = carrier == GroupCarrier::kLoopback;
    const auto exact = [&](size_t count) { return slice_bytes_of("exact", count, limits); };
    EXPECT_EQ(exact(size_t{1} << 18), segments ? 63u * 1024 : 64u * 1024);  // chunks of 512 KiB
    EXPECT_EQ(exact(size_t{3} << 18), segments ? 63u * 1024 : 96u * 1024);  // of 1.5 MiB
    EXPECT_EQ(exact(size_t{1} << 20), segments ? 126u * 1024 : 128u * 1024);
    EXPECT_EQ(exact(size_t{1} << 24), 252u * 1024);
    for (const char* const spec : {"int8/128", "int4/128"}) {
      EXPECT_LE(plan_of(spec, size_t{1} << 26, limits)->slice_values, 252u * 1024) << spec;
      EXPECT_GT(plan_of(spec, size_t{1} << 26, limits)->slice_values, 246u * 1024) << spec;
    }
  }
}

TEST(SliceSize, OnWiresIsASixteenthOfAShortChunk) {
  const SliceLimits limits = limits_by_carrier({}, GroupCarrier::kWires, 2);
  EXPECT_EQ(slice_bytes_of("exact", size_t{1} << 18, limits), 32u * 1024);  // chunks of 512 KiB
  EXPECT_EQ(slice_bytes_of("exact", size_t{1} << 13, limits), 8u * 1024);   // of 16 KiB
}

TEST(SliceSize, OnWiresHoldsNoMoreValuesThanLinksMayWaitFor) {
  const SliceLimits limits = limits_by_carrier({}, GroupCarrier::kWires, 2);
  EXPECT_EQ(slice_bytes_of("int4/128", size_t{1} << 24, limits), 64'512u / 128 * 66);
  EXPECT_EQ(slice_bytes_of("exact", size_t{1} << 24, limits), 63u * 1024);
}

// A place of the window is gone through at the end of each call.
TEST(SliceSize, AWindowIsNoLargerThanWhatThereIsToSend) {
  const SliceLimits limits = limits_by_carrier({}, GroupCarrier::kMemory, 2);
  EXPECT_EQ(plan_of("exact", 256, limits)->window, 1U);
  EXPECT_EQ(plan_of("exact", 0, limits)->window, 1U);
  EXPECT_EQ(plan_of("exact", size_t{5} << 15, limits)->window, 5U);   // chunks of 320 KiB
  EXPECT_EQ(plan_of("exact", size_t{1} << 24, limits)->window, 16U);  // 8 MiB of two flows
}

TEST(SliceSize, IsWhatTheProgramNames) {
  CommunicatorOptions options;
  options.slice_bytes = 256 * 1024;
  for (const GroupCarrier carrier :
       {GroupCarrier::kWires, GroupCarrier::kLoopback, GroupCarrier::kMemory}) {
    const SliceLimits limits = limits_by_carrier(options, carrier, 2);
    const size_t bytes = slice_bytes_of("int4/128", size_t{1} << 24, limits);
    EXPECT_LE(bytes, 256u * 1024);
    EXPECT_GT(bytes, 255u * 1024);
  }
}

// What all ranks of a host have in flight is to fit its cache, and two slices of a flow the window.
TEST(SliceSize, ManyRanksOfOneHostKeepLittleInFlight) {
  const size_t whole = CommunicatorOptions().window_bytes;
  for (const GroupCarrier carrier : {GroupCarrier::kMemory, GroupCarrier::kLoopback}) {
    const auto window = [&](size_t size) {
      return limits_by_carrier({}, carrier, size).window_bytes;
    };
    EXPECT_EQ(window(1), whole);
    EXPECT_EQ(window(2), whole);
    EXPECT_EQ(window(3), 1536u * 1024);
    EXPECT_EQ(window(8), 1536u * 1024);
    EXPECT_EQ(window(16), 3u * 1024 * 1024);
    EXPECT_EQ(window(1000), whole);
    for (const size_t size : {3, 8, 16, 40}) EXPECT_GE(window(size) / (4 * (size - 1)), 48u * 1024);
    CommunicatorOptions options;
    options.window_bytes = 1 << 20;
    EXPECT_EQ(limits_by_carrier(options, carrier, 8).window_bytes, options.window_bytes);
    options.window_bytes = whole;
    options.slice_bytes = 1 << 20;
    EXPECT_EQ(limits_by_carrier(options, carrier, 8).window_bytes, whole);
  }
  EXPECT_EQ(limits_by_carrier({}, GroupCarrier::kWires, 8).window_bytes, whole);
}

TEST(SliceSize, ExactValuesOfACrowdTravelInFewerMessagesWhereItsCacheHoldsThem) {
  constexpr size_t kMiB = 1 << 20;
  const auto exact = [](int ranks, size_t cache_bytes, const char* cpus, PlanKind kind,
                        const CommunicatorOptions& options = {}) {
    const std::vector<RankCarrier> members(static_cast<size_t>(ranks),
                                           {0, false, cpus, cache_bytes});
    return plan_of("exact", size_t{1} << 24, slice_limits(options, members), ranks, kind);
  };
  constexpr PlanKind kDirect = PlanKind::kTwoStep;
  const auto slice_bytes = [](const auto& plan) { return plan->slice_values * sizeof(float); };
  EXPECT_EQ(exact(8, 260 * kMiB, "3", kDirect)->window, 2u);
  EXPECT_EQ(slice_bytes(exact(9, 1000 * kMiB, "3", kDirect)), 128u * 1024);
  for (const int ranks : {10, 40}) {
    EXPECT_EQ(exact(ranks, 100'000 * kMiB, "3", kDirect)->slice_values,
              exact(ranks, 0, "3", kDirect)->slice_values)
        << ranks << " ranks have no room for two slices of each flow";
  }
  EXPECT_EQ(slice_bytes(exact(8, 260 * kMiB, "3", kDirect)), 128u * 1024);
  EXPECT_LE(slice_bytes(exact(8, 255 * kMiB, "3", kDirect)), 64u * 1024) << "eight windows";
  EXPECT_LE(slice_bytes(exact(8, 0, "3", kDirect)), 64u * 1024) << "unknown";
  EXPECT_LE(slice_bytes(exact(4, 260 * kMiB, "3", kDirect)), 64u * 1024) << "two ranks a CPU";
  EXPECT_LE(slice_bytes(exact(8, 260 * kMiB, "", kDirect)), 64u * 1024) << "no CPUs known";
  EXPECT_LE(slice_bytes(exact(8, 260 * kMiB, "3", PlanKind::kRing)), 64u * 1024);
  CommunicatorOptions options;
  options.slice_bytes = 32 * 1024;
  EXPECT_LE(slice_bytes(exact(8, 260 * kMiB, "3", kDirect, options)), 32u * 1024);
  options = {};
  options.window_bytes = kMiB;
  EXPECT_LE(slice_bytes(exact(8, 260 * kMiB, "3", kDirect, options)), 64u * 1024);
  std::vector<RankCarrier> members(8, {0, false, "3", 260 * kMiB});
  for (const char* const spec : {"int8/128", "bf16"}) {
    const auto coded = plan_of(spec, size_t{1} << 24, slice_limits({}, members), 8);
    EXPECT_LE(coded->codec->wire_bytes(coded->slice_values), 64u * 1024) << spec;
  }
  EXPECT_GT(slice_limits({}, members).plain_slice_bytes, 0u);
  members.back().cache_bytes = 32 * kMiB;
  EXPECT_EQ(slice_limits({}, members).plain_slice_bytes, 0u) << "the same on all ranks";
  members.back() = {0, true, "3", 260 * kMiB};
  EXPECT_EQ(slice_limits({}, members).plain_slice_bytes, 0u) << "over TCP";
}

TEST(SliceSize, FollowsWhatCarriesTheGroupOrThePart) {
  const RankCarrier all[] = {
      {0, false, {}}, {1, false, {}}, {0, true, {}}, {1, false, {}}, {0, false, {}}};
  const auto carrier_of_ranks = [&](std::vector<int> ranks) {
    return carrier_of(carriers_of_part(all, ranks));
  };
  EXPECT_EQ(carrier_of_ranks({0, 1, 2, 3, 4}), GroupCarrier::kWires);
  EXPECT_EQ(carrier_of_ranks({0, 2, 4}), GroupCarrier::kLoopback);
  EXPECT_EQ(carrier_of_ranks({0, 4}), GroupCarrier::kMemory);
  EXPECT_EQ(carrier_of_ranks({1, 3}), GroupCarrier::kMemory);
  EXPECT_EQ(carrier_of_ranks({2, 3}), GroupCarrier::kWires);
}

TEST(SliceSize, WhereFlowsShareAPortLittleIsUnderWay) {
  const auto flow_bytes = [](const char* name, double bytes_per_s, double latency_s,
                             PlanKind plan = PlanKind::kTwoStep,
                             Collective collective = Collective::kAllReduce) {
    return flow_bytes_max(make_topology(name, bytes_per_s, latency_s).value().get(), collective,
                          plan);
  };
  constexpr double kLatency = 1e-6;
  for (const double rate : {1e6, 12.5e6, 31.25e6}) {
    EXPECT_EQ(flow_bytes("star8", rate, kLatency), size_t{40} << 10);
  }
  // 1.3 ms and two round trips of four links' 1 us.
  EXPECT_EQ(flow_bytes("star8", 125e6, kLatency), size_t{159} << 10);
  EXPECT_EQ(flow_bytes("star8", 125e6, 250e-6), size_t{402} << 10);
  EXPECT_EQ(flow_bytes("star8", 500e6, kLatency), kFlowUnlimited) << "cores are waited for";
  EXPECT_EQ(flow_bytes("star8", 31.25e6, 10e-3), kFlowUnlimited) << "a way that holds 2.5 MB";
  EXPECT_EQ(flow_bytes("star8", 31.25e6, 0), kFlowUnlimited) << "nobody described a latency";
  EXPECT_EQ(flow_bytes("star8", kUnknownBytesPerSecond, kLatency), kFlowUnlimited);
  EXPECT_EQ(flow_bytes("star2", 31.25e6, kLatency), kFlowUnlimited) << "one flow a port";
  EXPECT_EQ(flow_bytes("mesh8", 31.25e6, kLatency), kFlowUnlimited) << "no switch";
  for (const PlanKind plan : {PlanKind::kTree, PlanKind::kTorus, PlanKind::kBidirectionalRing}) {
    EXPECT_EQ(flow_bytes("star8", 31.25e6, kLatency, plan), size_t{40} << 10);
  }
  for (const PlanKind plan : {PlanKind::kRing, PlanKind::kOneShot}) {
    EXPECT_EQ(flow_bytes("star8", 31.25e6, kLatency, plan), kFlowUnlimited);
  }
  EXPECT_EQ(flow_bytes("star8", 31.25e6, kLatency, PlanKind::kTwoStep, Collective::kReduceScatter),
            size_t{40} << 10);
  EXPECT_EQ(flow_bytes("star8", 31.25e6, kLatency, PlanKind::kTwoStep, Collective::kAllGather),
            kFlowUnlimited);
  EXPECT_EQ(flow_bytes_max(nullptr, Collective::kAllReduce, PlanKind::kTwoStep), kFlowUnlimited);
}

// A fast link between switches says nothing of the ports.
TEST(SliceSize, OnlyPortsDecideWhatAFlowHasUnderWay) {
  const auto topology = open_topology(R"({"rate": "250mbit", "latency_us": 1,
      "hosts": ["a", "b", "c"], "switches": ["left", "right"],
      "links": [{"between": ["a", "left"]}, {"between": ["b", "left"]},
                {"between": ["left", "right"], "rate": "10gbit"}, {"between": ["right", "c"]}]})");
  ASSERT_TRUE(topology.ok()) << topology.status().to_string();
  EXPECT_EQ(flow_bytes_max(topology.value().get(), Collective::kAllReduce, PlanKind::kTwoStep),
            size_t{40} << 10);
}

TEST(SliceSize, BehindASwitchIsHalfOfWhatAFlowMayHaveUnderWayOnAllRanks) {
  const Codec* codec = find_codec("int8/128", DataType::kFloat32, ReduceOp::kSum).value();
  const auto star = make_topology("star8", 31.25e6, 20e-6).value();
  PlanRequest request;
  request.size = 8;
  request.count = 16 << 20;
  request.topology = star.get();
  for (const PlanKind plan : {PlanKind::kTwoStep, PlanKind::kTree, PlanKind::kHierarchical}) {
    request.kind = plan;
    for (int rank = 0; rank < 8; ++rank) {
      const auto compiled = compile_plan(request, *codec, rank, SliceLimits{}).value();
      const size_t bytes = codec->wire_bytes(compiled->slice_values);
      EXPECT_LE(bytes, size_t{23} << 10);
      EXPECT_GT(bytes, size_t{19} << 10);
      EXPECT_EQ(compiled->window, 2U);
    }
  }
  request.kind = PlanKind::kRing;
  const auto ring = compile_plan(request, *codec, 0, SliceLimits{}).value();
  EXPECT_GT(codec->wire_bytes(ring->slice_values), size_t{60} << 10);
  EXPECT_GT(ring->window, 8U);
  SliceLimits huge;
  huge.window_bytes = size_t{1} << 62;
  EXPECT_GT(compile_plan(request, *codec, 0, huge).value()->window, 8U);
}

}  // namespace
}  // namespace tersum
