// A tuning rule's plan against the error that a call was promised: it is taken where the codec
// keeps within it there, and passed over, with the reason, where it does not.
#include "runtime/tuning/ruled_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <string_view>
#include <vector>

#include "plan/host_topology.h"
#include "runtime/tuning/open_plans.h"
#include "runtime/tuning/path_choice.h"
#include "runtime/tuning/tuning_table.h"

namespace tersum {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

constexpr size_t kBytes = 1 << 20;

CallArguments sum_of(size_t count) {
  return {Collective::kAllReduce, nullptr, nullptr, count, DataType::kFloat32, ReduceOp::kSum, 0};
}

CallOptions within(double error, std::string_view codec = "int8/128") {
  CallOptions options;
  options.codec = codec;
  options.max_rel_error = error;
  return options;
}

// Eight ranks whose rule for every sum is `text`.
struct Ruled {
  explicit Ruled(std::string_view text, const TuningTable* table = nullptr)
      : rules(parse_tuning_rules(text).value()) {
    context.ground.size = 8;
    context.table = table;
    context.rules = &rules;
  }
  [[nodiscard]] double bound(PlanKind plan, std::string_view codec = "int8/128") const {
    CallOptions named;
    named.plan = plan;
    return relative_error_bound(codec, error_terms(context, sum_of(8), named).value(), 8);
  }
  [[nodiscard]] PathChoice choice(const CallOptions& options) const {
    return choose_path(context, sum_of(kBytes / 4), options).value();
  }

  std::vector<TuningRule> rules;
  PathContext context;
};

TEST(RuledPlan, IsTakenWhereANamedCodecKeepsWithinTheError) {
  const Ruled group("all_reduce:0-inf:*:ring");
  const double ring = group.bound(PlanKind::kRing);
  EXPECT_EQ(group.choice(within(0)).plan, PlanKind::kRing) << "nothing is promised";
  EXPECT_EQ(group.choice(within(1.01 * ring)).plan, PlanKind::kRing);
  const PathChoice passed = group.choice(within(0.99 * ring));
  EXPECT_EQ(passed.plan, PlanKind::kAuto) << passed.reason;
  EXPECT_THAT(passed.reason, StartsWith("a tuning rule's plan ring is passed over: codec int8/128 "
                                        "may be wrong by "));
  EXPECT_THAT(passed.reason, HasSubstr(" here, above max_rel_error "));
  EXPECT_THAT(passed.reason, HasSubstr("; not tuned: the plan is the rule of thumb's"));
  EXPECT_EQ(group.choice(within(0.99 * ring, "exact")).plan, PlanKind::kRing);
  EXPECT_FALSE(choose_path(group.context, sum_of(kBytes), within(1e-6)).ok());
}

TEST(RuledPlan, OfACodecOfTheRulesOwnLikewise) {
  const Ruled group("all_reduce:0-inf:int8/128:ring");
  const double ring = group.bound(PlanKind::kRing);
  EXPECT_EQ(group.choice(within(1.01 * ring, "auto")).plan, PlanKind::kRing);
  const PathChoice passed = group.choice(within(0.99 * ring, "auto"));
  EXPECT_EQ(passed.codec, "int8/128");
  EXPECT_EQ(passed.plan, PlanKind::kAuto);
  EXPECT_THAT(passed.reason, StartsWith("the codec is a tuning rule's; a tuning rule's plan ring "
                                        "is passed over: "));
  EXPECT_FALSE(choose_path(group.context, sum_of(kBytes), within(1e-6, "auto")).ok());
}

// Hosts that add up first are more wrong than two_step, which the rule names.
TEST(RuledPlan, IsTakenWhereTheRuleOfThumbsIsTooWrong) {
  Ruled group("all_reduce:0-inf:*:two_step");
  const auto hosts = topology_of_hosts(std::vector<int>{0, 0, 1, 1, 2, 2, 3, 3});
  group.context.ground.topology = hosts.get();
  const double direct = group.bound(PlanKind::kTwoStep);
  ASSERT_LT(1.01 * direct, group.bound(PlanKind::kHierarchical));
  const PathChoice choice = group.choice(within(1.01 * direct));
  EXPECT_EQ(choice.plan, PlanKind::kTwoStep);
  EXPECT_EQ(choice.reason, "the plan is a tuning rule's");
}

// Until a sample shows more, codecs take part that keep within the error on the rule's plan.
TEST(RuledPlan, DecidesWhichCodecsAnOpenCallMayTake) {
  const TuningTable table({{{"exact", PlanKind::kTwoStep}, kBytes, 1600e-6},
                           {{"int8/128", PlanKind::kTwoStep}, kBytes, 800e-6},
                           {{"exact", PlanKind::kRing}, kBytes, 1500e-6},
                           {{"int8/128", PlanKind::kRing}, kBytes, 600e-6}});
  const Ruled group("all_reduce:0-inf:*:ring", &table);
  const double ring = group.bound(PlanKind::kRing);
  ASSERT_GT(0.99 * ring, group.bound(PlanKind::kTwoStep));
  for (const double error : {0.0, 0.99 * ring, 1.01 * ring}) {
    const PathChoice choice = group.choice(within(error, "auto"));
    EXPECT_EQ(choice.plan, PlanKind::kRing);
    EXPECT_EQ(choice.codec, error > 0 && error < ring ? "exact" : "int8/128") << error;
  }
}

// What samples say is composed along the plan that the call takes.
TEST(RuledPlan, IsThePlanThatSamplesSpeakOf) {
  const Ruled group("all_reduce:0-1m:*:ring,all_reduce:1m-inf:*:one_shot");
  const auto partials = [&](size_t bytes, PlanKind named) {
    CallOptions options = within(0.01, "auto");
    options.plan = named;
    return error_terms(group.context, sum_of(bytes / 4), options).value().partials;
  };
  EXPECT_GT(partials(kBytes / 2, PlanKind::kAuto), 0U);
  EXPECT_EQ(partials(kBytes / 2, PlanKind::kTwoStep), 0U) << "the plan is the caller's";
  EXPECT_EQ(partials(kBytes, PlanKind::kAuto), 0U);
}

TEST(RuledPlan, IsPassedOverWhereItCannotRun) {
  Ruled group("all_reduce:0-inf:*:two_step,broadcast:0-inf:*:one_shot");
  const auto ring8 = open_topology("ring8", kUnknownBytesPerSecond, 0).value();
  group.context.ground.topology = ring8.get();
  const PathChoice unlinked = group.choice(within(0.9));
  EXPECT_EQ(unlinked.plan, PlanKind::kAuto);
  EXPECT_THAT(unlinked.reason, HasSubstr("two_step needs a link between rank 0 and rank 2"));
  CallArguments broadcast = sum_of(kBytes);
  broadcast.collective = Collective::kBroadcast;
  const PathChoice unserved = choose_path(group.context, broadcast, within(0, "exact")).value();
  EXPECT_EQ(unserved.plan, PlanKind::kAuto);
  EXPECT_THAT(unserved.reason, HasSubstr("plan one_shot does not serve broadcast"));
  const Ruled rings("all_reduce:0-inf:*:ring");
  EXPECT_THAT(rings.choice(within(0, "mxfp8")).reason,
              HasSubstr("codec mxfp8:e4m3/32 is refused on it"));
}

// error_bound answers for the worst of them.
TEST(RuledPlan, IsOneOfTheOpenPlans) {
  for (const char* spec : {"int8/128", "exact"}) {
    const Codec& codec = *find_codec(spec, DataType::kFloat32, ReduceOp::kSum).value();
    const Ruled group("all_reduce:0-inf:*:ring");
    EXPECT_EQ(open_plans(group.context, sum_of(kBytes), codec),
              (std::vector<PlanKind>{PlanKind::kTwoStep, PlanKind::kRing}));
  }
}

}  // namespace
}  // namespace tersum
