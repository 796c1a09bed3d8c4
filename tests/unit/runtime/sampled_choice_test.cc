// Which of the codecs that samples allow a call takes: the fastest, by what the ranks say that
// their own kernels take, and exact where none is clearly faster.
#include <gtest/gtest.h>

#include <string>
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

// Of which 10, 12, 20 and 25 us are coding: 40 us are left for the bytes of int8, 20 for int4's.
SampledCodecs allowing(std::vector<SampledCodec> codecs) {
  return {std::move(codecs), {us_per_byte(10), us_per_byte(12), us_per_byte(20), us_per_byte(25)}};
}

PathChoice choice_of(const SampledCodecs& sampled, double max_rel_error = 0.035) {
  const TuningTable table = measured();
  PathContext context;
  context.size = 2;
  context.table = &table;
  context.sampled = sampled;
  CallOptions options;
  options.codec = "auto";
  options.max_rel_error = max_rel_error;
  const CallArguments sum{Collective::kAllReduce, nullptr,        nullptr, kBytes / sizeof(float),
                          DataType::kFloat32,     ReduceOp::kSum, 0};
  return choose_path(context, sum, options).value();
}

TEST(SampledChoice, FewerBitsAreNotTakenWhereTheirKernelsAreSlower) {
  const SampledCodec slow{"int6/128", 0.03, us_per_byte(80)};
  const PathChoice alone = choice_of(allowing({slow}));
  EXPECT_EQ(alone.codec, "exact");
  EXPECT_NE(alone.reason.find("int6/128 lost 0.03"), std::string::npos) << alone.reason;
  EXPECT_NE(alone.reason.find("none is clearly faster than exact"), std::string::npos);
  // 30 us for the bytes of 6.25 bits, and its kernels' 80.
  ASSERT_EQ(alone.options.size(), 2u);
  EXPECT_NEAR(alone.options[1].seconds, 110e-6, 2e-6);

  const PathChoice beside = choice_of(allowing({slow, {"int8/128", 0.009, us_per_byte(20)}}));
  EXPECT_EQ(beside.codec, "int8/128");
  EXPECT_NE(beside.reason.find("int8/128 lost 0.009"), std::string::npos) << beside.reason;
  EXPECT_DOUBLE_EQ(beside.seconds, 60e-6) << "it was measured itself";
}

TEST(SampledChoice, FewerBitsAreTakenWhereTheirKernelsAreAsFast) {
  const PathChoice choice = choice_of(
      allowing({{"int6/128", 0.03, us_per_byte(22)}, {"int8/128", 0.009, us_per_byte(20)}}));
  EXPECT_EQ(choice.codec, "int6/128");
  EXPECT_NEAR(choice.seconds, 52e-6, 2e-6);
}

// 57 us of int6 are no reason to lose more than the 60 that int8 was measured to take.
TEST(SampledChoice, WhatIsWorkedOutMustLeadWhatIsMeasured) {
  const SampledCodec int8{"int8/128", 0.009, us_per_byte(20)};
  EXPECT_EQ(choice_of(allowing({{"int6/128", 0.03, us_per_byte(27.5)}, int8})).codec, "int8/128");
  EXPECT_EQ(choice_of(allowing({{"int6/128", 0.03, us_per_byte(26)}, int8})).codec, "int6/128");
}

TEST(SampledChoice, AMeasuredCodecStandsForOneWhoseKernelsNobodyTimed) {
  const PathChoice choice = choice_of({{{"int5/128+hadamard", 0.03}}, {}});
  EXPECT_EQ(choice.codec, "int5/128+hadamard");
  EXPECT_DOUBLE_EQ(choice.seconds, 45e-6) << "as int4/128";
}

TEST(SampledChoice, NothingButExactIsExact) {
  const PathChoice choice = choice_of(allowing({}));
  EXPECT_EQ(choice.codec, "exact");
  EXPECT_NE(choice.reason.find("no codec was within"), std::string::npos) << choice.reason;
}

TEST(SampledChoice, EveryCodecOfTheLadderHasACost) {
  const AutoCodecs& ladder = *find_auto_codecs("auto").value();
  const std::vector<double> costs = coding_costs(ladder, {});
  ASSERT_EQ(costs.size(), tuning_codecs().size() + ladder.codecs.size());
  for (size_t i = 0; i < costs.size(); ++i) {
    EXPECT_GT(costs[i], 0) << i;
    EXPECT_LT(costs[i], 1e-6) << i;  // a microsecond per byte
  }
  EXPECT_EQ(coding_costs(ladder, {}), costs) << "timed once per process";
  for (const double twice : coding_costs(ladder, {2, 4, 2})) EXPECT_GT(twice, 0);
}

}  // namespace
}  // namespace tersum
