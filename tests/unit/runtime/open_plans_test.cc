// What calls that leave their plan open may be given beside the rule of thumb's plan: by what was
// measured, and by the cost model.
#include "runtime/tuning/open_plans.h"

#include <gtest/gtest.h>

#include <string_view>
#include <vector>

#include "plan/host_topology.h"
#include "runtime/tuning/path_choice.h"
#include "runtime/tuning/tuning_table.h"
#include "tests/unit/runtime/two_switches.h"

namespace tersum {
namespace {

constexpr TuningWay kExactDirect{"exact", PlanKind::kTwoStep};
constexpr TuningWay kInt8Direct{"int8/128", PlanKind::kTwoStep};

PathContext context_of_eight(const TuningTable& table) {
  PathContext context;
  context.ground.size = 8;
  context.table = &table;
  return context;
}

CallArguments sum_of(size_t count) {
  return {Collective::kAllReduce, nullptr, nullptr, count, DataType::kFloat32, ReduceOp::kSum, 0};
}

CallOptions open_codec(double max_rel_error) {
  CallOptions options;
  options.codec = "auto";
  options.max_rel_error = max_rel_error;
  return options;
}

// A ring is measured as the fastest; what it may lose decides who gets it.
TEST(OpenPlans, AQuantizedRingIsTakenWhereTheCallAllowsItsError) {
  constexpr size_t kBytes = 1 << 20;
  const TuningTable table({{kExactDirect, kBytes, 1600e-6},
                           {kInt8Direct, kBytes, 800e-6},
                           {{"int8/128", PlanKind::kRing}, kBytes, 600e-6}});
  const PathContext context = context_of_eight(table);
  const auto plan_of = [&](const char* codec, double error) {
    CallOptions options;
    options.codec = codec;
    options.max_rel_error = error;
    return choose_path(context, sum_of(kBytes / 4), options).value().plan;
  };
  CallOptions ring;
  ring.plan = PlanKind::kRing;
  const double bound = relative_error_bound(
      "int8/128", error_terms(context, sum_of(8), ring).value(), context.ground.size);
  for (const char* codec : {"auto", "int8/128"}) {
    EXPECT_EQ(plan_of(codec, 0), PlanKind::kTwoStep) << codec;
    EXPECT_EQ(plan_of(codec, 0.99 * bound), PlanKind::kTwoStep) << codec;
    EXPECT_EQ(plan_of(codec, 1.01 * bound), PlanKind::kRing) << codec;
    EXPECT_EQ(plan_of(codec, 0.9), PlanKind::kRing) << codec;
  }
  // int8/32 is coded finer than what was measured like it, so the same error admits its ring.
  EXPECT_EQ(plan_of("int8/32", 0.99 * bound), PlanKind::kTwoStep) << "the bound is a codec's";
}

// What samples showed of two_step is no word on a plan that codes more often.
TEST(OpenPlans, SamplesDoNotSpeakForARing) {
  constexpr size_t kBytes = 1 << 20;
  const TuningTable table({{kExactDirect, kBytes, 1600e-6},
                           {kInt8Direct, kBytes, 800e-6},
                           {{"int8/128", PlanKind::kRing}, kBytes, 600e-6}});
  PathContext context = context_of_eight(table);
  context.sampled = SampledCodecs{{{"int8/128", 0.009, {}}}, {}};
  EXPECT_EQ(choose_path(context, sum_of(kBytes / 4), open_codec(0.9)).value().plan,
            PlanKind::kTwoStep);
}

TEST(OpenPlans, DescribedLinksAreAskedForTheirPlan) {
  const auto wires = open_topology(kTwoSwitches);
  ASSERT_TRUE(wires.ok());
  PathContext context;
  context.ground.size = 8;
  context.ground.topology = wires.value().get();
  const auto plan_of = [&](const char* codec, double error, size_t bytes) {
    CallOptions options;
    options.codec = codec;
    options.max_rel_error = error;
    return choose_path(context, sum_of(bytes / 4), options).value().plan;
  };
  for (const size_t bytes : {size_t{4} << 20, size_t{64} << 20}) {
    EXPECT_EQ(plan_of("int8/128", 0, bytes), PlanKind::kBidirectionalRing) << "sqrt 3 at most";
    EXPECT_EQ(plan_of("int8/128", 0.9, bytes), PlanKind::kRing);
    EXPECT_EQ(plan_of("int8/128", 0.01, bytes), PlanKind::kAuto) << "two_step alone is so exact";
    EXPECT_EQ(plan_of("exact", 0, bytes), PlanKind::kRing);
    EXPECT_EQ(plan_of("int4/128+feedback", 0, bytes), PlanKind::kAuto) << "learned by two_step";
    EXPECT_EQ(plan_of("lut2", 0, bytes), PlanKind::kTwoStep) << "sums of pairs go side by side";
  }
  EXPECT_EQ(plan_of("int8/128", 0, 1024), PlanKind::kAuto) << "one_shot, by the rule";
}

// On slow links tuning has time for small sizes only; what they say of two_step decides up to twice
// the largest, and above that the rates do.
TEST(OpenPlans, FarBeyondWhatWasMeasuredTheCostModelDecides) {
  const auto wires = open_topology(kTwoSwitches).value();
  const TuningTable table({{kExactDirect, 256 << 10, 20e-3}, {kInt8Direct, 256 << 10, 5e-3}});
  PathContext context = context_of_eight(table);
  context.ground.topology = wires.get();
  const auto choice_of = [&](const char* codec, double error, size_t bytes) {
    CallOptions options;
    options.codec = codec;
    options.max_rel_error = error;
    return choose_path(context, sum_of(bytes / 4), options).value();
  };
  for (const char* codec : {"int8/128", "auto"}) {
    EXPECT_EQ(choice_of(codec, 0, 512 << 10).plan, PlanKind::kTwoStep) << codec;
    EXPECT_EQ(choice_of(codec, 0, 8 << 20).plan, PlanKind::kBidirectionalRing) << codec;
    EXPECT_EQ(choice_of(codec, 0, 8 << 20).codec,
              codec == std::string_view("auto") ? "int8/128" : codec);
    EXPECT_EQ(choice_of(codec, 0.9, 8 << 20).plan, PlanKind::kRing) << codec;
  }
  CallOptions pinned;
  pinned.plan = PlanKind::kTwoStep;
  EXPECT_EQ(choose_path(context, sum_of(2 << 20), pinned).value().plan, PlanKind::kTwoStep);
}

// One look at one plan compares nothing.
TEST(OpenPlans, BeyondWhatWasLookedAtOnceTheCostModelDecides) {
  const auto wires = open_topology(kTwoSwitches).value();
  for (const bool is_rough : {false, true}) {
    const TuningTable table({{kExactDirect, 1 << 10, 1e-3},
                             {kInt8Direct, 1 << 10, 1e-3},
                             {kExactDirect, 4 << 20, 320e-3, is_rough},
                             {kInt8Direct, 4 << 20, 80e-3, is_rough}});
    PathContext context = context_of_eight(table);
    context.ground.topology = wires.get();
    for (const char* codec : {"int8/128", "exact"}) {
      CallOptions options;
      options.codec = codec;
      const bool is_two_step =
          choose_path(context, sum_of(1 << 20), options).value().plan == PlanKind::kTwoStep;
      EXPECT_EQ(is_two_step, !is_rough) << codec;
    }
  }
}

// Where all plans were looked at, once each, they have been compared.
TEST(OpenPlans, WhatWasLookedAtOnceByTwoPlansIsKnown) {
  const auto wires = open_topology(kTwoSwitches).value();
  constexpr TuningWay kInt8Ring{"int8/128", PlanKind::kBidirectionalRing};
  const TuningTable table({{kExactDirect, 4 << 20, 320e-3, true},
                           {kInt8Direct, 4 << 20, 80e-3, true},
                           {kInt8Ring, 4 << 20, 90e-3, true}});
  PathContext context = context_of_eight(table);
  context.ground.topology = wires.get();
  CallOptions options;
  options.codec = "int8/128";
  EXPECT_EQ(choose_path(context, sum_of(1 << 20), options).value().plan, PlanKind::kTwoStep);
}

// The same where the rule of thumb's plan is the model's, too, and another one was quick while it
// was measured, because links had rested.
TEST(OpenPlans, FarBeyondWhatWasMeasuredTheRuleOfThumbDecidesWhereItIsTheModels) {
  const auto ring = make_topology("ring8", 12.5e6, 0).value();
  const TuningTable table({{{"exact", PlanKind::kAuto}, 16 << 10, 2e-3},
                           {{"int8/128", PlanKind::kAuto}, 16 << 10, 1e-3},
                           {{"int8/128", PlanKind::kHierarchical}, 16 << 10, 0.2e-3}});
  PathContext context = context_of_eight(table);
  context.ground.topology = ring.get();
  CallOptions options;
  options.codec = "int8/128";
  EXPECT_EQ(choose_path(context, sum_of(16 << 8), options).value().plan, PlanKind::kHierarchical);
  EXPECT_EQ(choose_path(context, sum_of(2 << 18), options).value().plan,
            PlanKind::kBidirectionalRing);
}

TEST(OpenPlans, OfNamesAndFoundHostsNoRateIsKnown) {
  const auto named = open_topology("star8", kUnknownBytesPerSecond, 0).value();
  const auto found = topology_of_hosts(std::vector<int>{0, 0, 1, 1});
  for (const Topology* topology : {named.get(), found.get()}) {
    PathContext context;
    context.ground.size = topology->ranks();
    context.ground.topology = topology;
    EXPECT_FALSE(has_rates(topology));
    EXPECT_EQ(choose_path(context, sum_of(1 << 22), CallOptions{}).value().plan, PlanKind::kAuto);
  }
}

// error_bound answers for the worst of them, so no call is more wrong than it says.
TEST(OpenPlans, AreThoseThatAnOpenCallMayBeGiven) {
  const auto plans_on = [](std::string_view name, double rate, const char* codec) {
    const auto topology = make_topology(name, rate, 0).value();
    PathContext context;
    context.ground.size = topology->ranks();
    context.ground.topology = topology.get();
    const Codec& format = *find_codec(codec, DataType::kFloat32, ReduceOp::kSum).value();
    return open_plans(context, sum_of(1 << 20), format);
  };
  using Plans = std::vector<PlanKind>;
  EXPECT_EQ(plans_on("star8", 125e6, "int8/128"),
            (Plans{PlanKind::kTwoStep, PlanKind::kOneShot, PlanKind::kBidirectionalRing,
                   PlanKind::kHalvingDoubling, PlanKind::kTorus, PlanKind::kTree,
                   PlanKind::kHierarchical}));
  EXPECT_EQ(plans_on("star8", kUnknownBytesPerSecond, "int8/128"), Plans{PlanKind::kTwoStep});
  EXPECT_EQ(plans_on("star8", 125e6, "exact"), Plans{PlanKind::kTwoStep});
  EXPECT_EQ(plans_on("ring8", 125e6, "int8/128").front(), PlanKind::kBidirectionalRing);
}

TEST(OpenPlans, OfATunedGroupHoldWhatMayHaveBeenMeasuredFaster) {
  const Codec& format = *find_codec("int8/128", DataType::kFloat32, ReduceOp::kSum).value();
  const TuningTable table{std::vector<TuningPoint>{}};
  PathContext context = context_of_eight(table);
  EXPECT_EQ(open_plans(context, sum_of(64), format),
            (std::vector<PlanKind>{PlanKind::kOneShot, PlanKind::kTwoStep}));
  context.table = nullptr;
  EXPECT_EQ(open_plans(context, sum_of(64), format), std::vector<PlanKind>{PlanKind::kOneShot});
}

}  // namespace
}  // namespace tersum
