// Which of the codecs that samples allow a call takes: the fastest, by what the ranks say that
// their own kernels take, and exact where none is clearly faster.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "runtime/tuning/codec_cost.h"
#include "runtime/tuning/path_choice.h"
#include "runtime/tuning/tuning_codecs.h"

namespace tersum {
namespace {

constexpr size_t kBytes = 1 << 20;

double us_per_byte(double us) { return us * 1e-6 / kBytes; }

TuningTable measured() {
  return TuningTable({{{"exact", PlanKind::kTwoStep}, kBytes, 95e-6},
                      {{"bf16", PlanKind::kTwoStep}, kBytes, 90e-6},
                      {{"int8/128", PlanKind::kTwoStep}, kBytes, 60e-6},
                      {{"int4/128", PlanKind::kTwoStep}, kBytes, 45e-6}});
}

// Kernels by which each of two ranks codes 1 MiB in so long: half of it encoded and half decoded,
// and the part that it owns finished.
CodingSeconds coding_us(double us) {
  return {us_per_byte(us / 2), us_per_byte(us / 2), us_per_byte(us)};
}

// Of which 10, 12, 20 and 25 us are coding: 40 us are left for the bytes of int8, 20 for int4's.
SampledCodecs allowing(std::vector<SampledCodec> codecs) {
  return {std::move(codecs), {coding_us(10), coding_us(12), coding_us(20), coding_us(25)}};
}

PathChoice choice_of(const SampledCodecs& sampled, PlanKind plan = PlanKind::kAuto, int ranks = 2,
                     const TuningTable& table = measured()) {
  PathContext context;
  context.ground.size = ranks;
  context.table = &table;
  context.sampled = sampled;
  CallOptions options;
  options.codec = "auto";
  options.max_rel_error = 0.035;
  options.plan = plan;
  const CallArguments sum{Collective::kAllReduce, nullptr,        nullptr, kBytes / sizeof(float),
                          DataType::kFloat32,     ReduceOp::kSum, 0};
  return choose_path(context, sum, options).value();
}

TEST(SampledChoice, FewerBitsAreNotTakenWhereTheirKernelsAreSlower) {
  const SampledCodec slow{"int6/128", 0.03, coding_us(80)};
  const PathChoice alone = choice_of(allowing({slow}));
  EXPECT_EQ(alone.codec, "exact");
  EXPECT_NE(alone.reason.find("int6/128 lost 0.03"), std::string::npos) << alone.reason;
  EXPECT_NE(alone.reason.find("none is clearly faster than exact"), std::string::npos);
  // 30 us for the bytes of 6.25 bits, and its kernels' 80.
  ASSERT_EQ(alone.options.size(), 2u);
  EXPECT_NEAR(alone.options[1].seconds, 110e-6, 2e-6);

  const PathChoice beside = choice_of(allowing({slow, {"int8/128", 0.009, coding_us(20)}}));
  EXPECT_EQ(beside.codec, "int8/128");
  EXPECT_NE(beside.reason.find("int8/128 lost 0.009"), std::string::npos) << beside.reason;
  EXPECT_DOUBLE_EQ(beside.seconds, 60e-6) << "it was measured itself";
}

TEST(SampledChoice, FewerBitsAreTakenWhereTheirKernelsAreAsFast) {
  const PathChoice choice =
      choice_of(allowing({{"int6/128", 0.03, coding_us(22)}, {"int8/128", 0.009, coding_us(20)}}));
  EXPECT_EQ(choice.codec, "int6/128");
  EXPECT_NEAR(choice.seconds, 52e-6, 2e-6);
}

// 57 us of int6 are no reason to lose more than the 60 that int8 was measured to take.
TEST(SampledChoice, WhatIsWorkedOutMustLeadWhatIsMeasured) {
  const SampledCodec int8{"int8/128", 0.009, coding_us(20)};
  EXPECT_EQ(choice_of(allowing({{"int6/128", 0.03, coding_us(27.5)}, int8})).codec, "int8/128");
  EXPECT_EQ(choice_of(allowing({{"int6/128", 0.03, coding_us(26)}, int8})).codec, "int6/128");
}

TEST(SampledChoice, AMeasuredCodecStandsForOneWhoseKernelsNobodyTimed) {
  const PathChoice choice = choice_of({{{"int5/128+hadamard", 0.03, {}}}, {}});
  EXPECT_EQ(choice.codec, "int5/128+hadamard");
  EXPECT_DOUBLE_EQ(choice.seconds, 45e-6) << "as int4/128";
}

TEST(SampledChoice, NothingButExactIsExact) {
  const PathChoice choice = choice_of(allowing({}));
  EXPECT_EQ(choice.codec, "exact");
  EXPECT_NE(choice.reason.find("no codec was within"), std::string::npos) << choice.reason;
}

// One_shot adds three whole arrays on four ranks, where two_step adds one and a half.
TEST(SampledChoice, DecodingCountsAsOftenAsThePlanDecodes) {
  std::vector<TuningPoint> points;
  for (const PlanKind plan : {PlanKind::kOneShot, PlanKind::kTwoStep}) {
    for (const auto& [codec, us] : {std::pair("exact", 95.0), std::pair("int8/128", 60.0)}) {
      points.push_back({{codec, plan}, kBytes, us * 1e-6});
    }
  }
  const SampledCodec slow{"int6/128", 0.03, {us_per_byte(10), us_per_byte(20)}};
  const PathChoice choice = choice_of(allowing({slow}), PlanKind::kAuto, 4, TuningTable(points));
  double one_shot = 0, two_step = 0;
  for (const auto& option : choice.options) {
    if (option.codec != "int6/128") continue;
    (option.plan == PlanKind::kOneShot ? one_shot : two_step) = option.seconds;
  }
  // Those of exact and int8, which transport is told by, count likewise, but decode in 5 and 10 us.
  EXPECT_GT(one_shot, two_step + 10e-6);
}

TEST(SampledChoice, WhatSumsOfManyRanksNeedCounts) {
  // By how much outliers make a call longer whose kernels are as fast without.
  const auto outliers_s = [](int ranks) {
    const auto options = choice_of(allowing({{"int4/32+sparse:1%", 0.03, coding_us(20)},
                                             {"int4/32", 0.03, coding_us(20)}}),
                                   PlanKind::kAuto, ranks)
                             .options;
    double seconds = 0;
    for (const auto& option : options) {
      if (option.codec == "int4/32+sparse:1%") seconds += option.seconds;
      if (option.codec == "int4/32") seconds -= option.seconds;
    }
    return seconds;
  };
  EXPECT_GT(outliers_s(2), 0);
  EXPECT_GT(outliers_s(8), 1.5 * outliers_s(2)) << "room for the outliers of eight ranks";
}

TEST(SampledChoice, OfAPlanThatWasNotMeasuredBitsAloneAreKnown) {
  const SampledCodec slow{"int6/128", 0.03, coding_us(80)};
  const SampledCodec int8{"int8/128", 0.009, coding_us(20)};
  const PathChoice choice = choice_of(allowing({slow, int8}), PlanKind::kRing);
  EXPECT_EQ(choice.codec, "int6/128");
  EXPECT_EQ(choice.plan, PlanKind::kRing);
}

TEST(SampledChoice, EveryCodecOfTheLadderHasACost) {
  const AutoCodecs& ladder = *find_auto_codecs("auto").value();
  const std::vector<CodingSeconds> costs = coding_costs(ladder, {});
  ASSERT_EQ(costs.size(), tuning_codecs().size() + ladder.codecs.size());
  for (size_t i = 0; i < costs.size(); ++i) {
    EXPECT_GT(std::min({costs[i].encode, costs[i].decode_add, costs[i].finish}), 0) << i;
    // A microsecond a byte.
    EXPECT_LT(std::max({costs[i].encode, costs[i].decode_add, costs[i].finish}), 1e-6) << i;
  }
  EXPECT_EQ(coding_costs(ladder, {}), costs) << "timed once per process";
  const std::vector<CodingSeconds> two_a_core = coding_costs(ladder, {4, 4, 2});
  for (size_t i = 0; i < costs.size(); ++i) {
    EXPECT_DOUBLE_EQ(two_a_core[i].encode, 2 * costs[i].encode);
    EXPECT_DOUBLE_EQ(two_a_core[i].decode_add, 2 * costs[i].decode_add);
    EXPECT_DOUBLE_EQ(two_a_core[i].finish, 2 * costs[i].finish);
  }
}

}  // namespace
}  // namespace tersum
