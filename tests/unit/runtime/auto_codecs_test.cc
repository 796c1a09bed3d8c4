// The lists of codecs among which a call may choose, and what is refused of them.
#include "runtime/tuning/auto_codecs.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <string>
#include <string_view>

namespace tersum {
namespace {

using testing::HasSubstr;

std::string canonical(std::string_view list) {
  const auto found = find_auto_codecs(list);
  EXPECT_TRUE(found.ok()) << found.status().to_string();
  return found.ok() ? found.value()->spec : "";
}

std::string refusal(std::string_view list) {
  const auto found = find_auto_codecs(list);
  EXPECT_FALSE(found.ok()) << list;
  EXPECT_EQ(found.status().code(), StatusCode::kInvalidArgument);
  return std::string(found.status().message());
}

TEST(AutoCodecs, OwnLadderGoesFromBf16BelowTwoBits) {
  const AutoCodecs& ladder = *find_auto_codecs("auto").value();
  EXPECT_EQ(ladder.spec, "auto");
  EXPECT_FALSE(ladder.is_named);
  EXPECT_TRUE(ladder.flattens);
  EXPECT_LE(ladder.codecs.size(), AutoCodecs::kMost);
  EXPECT_EQ(ladder.codecs.front().spec, "bf16");
  EXPECT_EQ(ladder.codecs.back().spec, "int1/64");
  std::set<std::string> specs;
  for (size_t i = 0; i < ladder.codecs.size(); ++i) {
    specs.insert(ladder.codecs[i].spec);
    if (i == 0) continue;
    EXPECT_LE(wire_cost(ladder.codecs[i], 1), wire_cost(ladder.codecs[i - 1], 1));
  }
  EXPECT_EQ(specs.size(), ladder.codecs.size());
  for (const char* spec : {"int8/128+flatten", "int6/128+flatten", "int5/128+flatten",
                           "int4/32+flatten", "int6/128+sparse:0.5%", "five/32", "int2/32"}) {
    EXPECT_TRUE(specs.contains(spec)) << spec;
  }
}

TEST(AutoCodecs, OfEqualBitsTheFasterComesLast) {
  EXPECT_EQ(canonical("auto:int6/128|int6/128+hadamard|int6/128+flatten"),
            "auto:int6/128+flatten|int6/128+hadamard|int6/128");
}

TEST(AutoCodecs, HowAListIsWrittenDoesNotCount) {
  const std::string one = "auto:int8/128|int6/128+flatten|int4/32+sparse:0.5%";
  EXPECT_EQ(canonical(one), one);
  EXPECT_EQ(canonical("auto:int4/32+sparse:0.5%|int8|int6+flatten"), one);
  EXPECT_EQ(
      canonical("auto:mxfp8+hops"),
      "auto:" + find_auto_codecs("auto:mxfp8+hops").value()->codecs[0].codec->spec().to_string());
}

TEST(AutoCodecs, SumsOfMoreRanksCostMoreWhereOutliersAreApart) {
  const auto& codecs = find_auto_codecs("auto:int4/32+sparse:1%|int4/32").value()->codecs;
  EXPECT_GT(wire_cost(codecs[0], 8), wire_cost(codecs[0], 2));
  EXPECT_EQ(wire_cost(codecs[1], 8), wire_cost(codecs[1], 2));
}

TEST(AutoCodecs, WhatIsNoCandidateIsRefusedWithTheReason) {
  EXPECT_THAT(refusal("auto:"), HasSubstr("empty place"));
  EXPECT_THAT(refusal("auto:int8||int4"), HasSubstr("empty place"));
  EXPECT_THAT(refusal("auto:int8|"), HasSubstr("empty place"));
  EXPECT_THAT(refusal("auto:int8|itn4"), HasSubstr("did you mean \"int4\""));
  EXPECT_THAT(refusal("auto:int8/100"), HasSubstr("block \"100\" is not allowed"));
  EXPECT_THAT(refusal("auto:int8|int8/128"), HasSubstr("stands twice"));
  EXPECT_THAT(refusal("auto:auto"), HasSubstr("is no format"));
  EXPECT_THAT(refusal("auto:exact|int8"), HasSubstr("loses nothing"));
  EXPECT_THAT(refusal("auto:int2+feedback"), HasSubstr("given back by later calls"));
  EXPECT_THAT(refusal("auto:int4+clip:learned"), HasSubstr("will have learned"));
  EXPECT_THAT(refusal("auto:kmeans:16"), HasSubstr("will have learned"));
  EXPECT_THAT(refusal("auto:sum8/256"), HasSubstr("add codes"));
  EXPECT_THAT(refusal("auto:lut2"), HasSubstr("add codes"));
  EXPECT_THAT(refusal("auto:mxfp8"), HasSubstr("a ring"));
  EXPECT_THAT(refusal("auto:int8+rows:96"), HasSubstr("whole rows"));
  std::string many = "auto:int8/32";
  for (const char* format : {"int3", "int4", "int5", "int6", "int7"}) {
    for (const char* block : {"32", "64", "128", "256", "512", "1024"}) {
      many += std::string("|") + format + "/" + block;
    }
  }
  EXPECT_TRUE(find_auto_codecs(many).ok());
  EXPECT_THAT(refusal(many + "|int2/32|int2/64"), HasSubstr("32 at most"));
}

TEST(AutoCodecs, OnlyAutoAndItsListsAreOpen) {
  EXPECT_TRUE(is_auto("auto"));
  EXPECT_TRUE(is_auto("auto:int8"));
  EXPECT_FALSE(is_auto("autos"));
  EXPECT_FALSE(is_auto("aut"));
  EXPECT_FALSE(is_auto("int8"));
}

}  // namespace
}  // namespace tersum
