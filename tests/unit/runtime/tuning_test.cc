// Tuning: what a table says between its points, which rules parse, and what is chosen and why.
#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <vector>

#include "plan/host_topology.h"
#include "runtime/tuning/link_speed.h"
#include "runtime/tuning/path_choice.h"
#include "runtime/tuning/tuning_key.h"
#include "runtime/tuning/tuning_rules.h"
#include "runtime/tuning/tuning_table.h"

namespace tersum {
namespace {

constexpr TuningWay kExactDirect{"exact", PlanKind::kTwoStep};
constexpr TuningWay kExactOneShot{"exact", PlanKind::kOneShot};
constexpr TuningWay kInt8Direct{"int8/128", PlanKind::kTwoStep};
constexpr TuningWay kInt4Direct{"int4/128", PlanKind::kTwoStep};

// int8 costs more below 64 KiB and half as much above; int4 less still.
TuningTable sample_table() {
  return TuningTable({{kExactDirect, 1024, 20e-6},
                      {kExactDirect, 65'536, 100e-6},
                      {kExactDirect, 1 << 20, 1600e-6},
                      {kExactOneShot, 1024, 10e-6},
                      {kExactOneShot, 65'536, 200e-6},
                      {kInt8Direct, 1024, 30e-6},
                      {kInt8Direct, 65'536, 98e-6},
                      {kInt8Direct, 1 << 20, 800e-6},
                      {kInt4Direct, 1024, 30e-6},
                      {kInt4Direct, 65'536, 60e-6},
                      {kInt4Direct, 1 << 20, 400e-6}});
}

PathContext context_of(const TuningTable& table, int size = 2) {
  PathContext context;
  context.ground.size = size;
  context.table = &table;
  return context;
}

CallArguments sum_of(size_t count, DataType type = DataType::kFloat32,
                     ReduceOp op = ReduceOp::kSum) {
  return {Collective::kAllReduce, nullptr, nullptr, count, type, op, 0};
}

CallOptions open_codec(double max_rel_error = 0) {
  CallOptions options;
  options.codec = "auto";
  options.max_rel_error = max_rel_error;
  return options;
}

// Exact partial sums of 16 bits are rounded at every hop; maxima are not.
TEST(ChoosePath, OpenSumsOf16BitsAreNotRoundedAtEveryHop) {
  CallOptions exact;
  exact.codec = "exact";
  for (const PlanKind quickest : {PlanKind::kTree, PlanKind::kRing}) {
    const TuningTable table({{kExactDirect, 65'536, 100e-6}, {{"exact", quickest}, 65'536, 10e-6}});
    const PathContext context = context_of(table, 4);
    const auto plan_of = [&](DataType type, ReduceOp op) {
      return choose_path(context, sum_of(65'536 / element_bytes(type), type, op), exact)->plan;
    };
    EXPECT_EQ(plan_of(DataType::kFloat32, ReduceOp::kSum), quickest);
    EXPECT_EQ(plan_of(DataType::kInt32, ReduceOp::kSum), quickest);
    EXPECT_EQ(plan_of(DataType::kBFloat16, ReduceOp::kMax), quickest);
    EXPECT_EQ(plan_of(DataType::kBFloat16, ReduceOp::kSum), PlanKind::kTwoStep);
    EXPECT_EQ(plan_of(DataType::kFloat16, ReduceOp::kAverage), PlanKind::kTwoStep);
  }
}

TEST(TuningTable, GivesMeasuredPointsBack) {
  const TuningTable table = sample_table();
  for (const TuningPoint& point : table.points()) {
    EXPECT_DOUBLE_EQ(table.seconds(point.way, point.bytes).value(), point.seconds);
  }
}

TEST(TuningTable, BetweenPointsTimeIsAPowerLaw) {
  // 1 MiB is 16 times 64 KiB; 256 KiB lies in the middle of the two on a logarithmic scale.
  EXPECT_NEAR(sample_table().seconds(kExactDirect, 262'144).value(), 400e-6, 1e-9);
}

TEST(TuningTable, BeyondTheLargestPointBytesCostWhatTheLastOnesDid) {
  const double slope = (1600e-6 - 100e-6) / ((1 << 20) - 65'536);
  EXPECT_NEAR(sample_table().seconds(kExactDirect, 1 << 24).value(),
              1600e-6 + slope * ((1 << 24) - (1 << 20)), 1e-9);
}

TEST(TuningTable, APlanMeasuredWhileSmallIsNotTakenFarBeyond) {
  EXPECT_TRUE(sample_table().seconds(kExactOneShot, 100'000).has_value());
  EXPECT_FALSE(sample_table().seconds(kExactOneShot, 1 << 20).has_value());
}

// The first of a table with one size, at which a clear lead is 15 %.
TuningWay first_way(double two_step, double ring, double int8, double int8_ring) {
  constexpr size_t kBytes = 4 << 20;
  const TuningTable table({{kExactDirect, kBytes, two_step},
                           {{"exact", PlanKind::kRing}, kBytes, ring},
                           {kInt8Direct, kBytes, int8},
                           {{"int8/128", PlanKind::kRing}, kBytes, int8_ring}});
  return table.rank_ways(kBytes, kBytes, {"exact", "int8/128"}).front().way;
}

TEST(TuningTable, RanksWhatLeadsClearlyFirst) {
  constexpr TuningWay kExactRing{"exact", PlanKind::kRing};
  EXPECT_EQ(first_way(1.00, 0.90, 2, 2), kExactDirect) << "a ring needs a lead";
  EXPECT_EQ(first_way(1.00, 0.85, 2, 2), kExactRing);
  EXPECT_EQ(first_way(1.00, 2, 0.90, 2), kExactDirect) << "a codec needs a lead";
  EXPECT_EQ(first_way(1.00, 2, 0.85, 2), kInt8Direct);
  EXPECT_EQ(first_way(1.00, 0.85, 0.84, 2), kExactRing) << "over a ring that is taken, too";
  EXPECT_EQ(first_way(1.00, 0.85, 0.73, 2), kInt8Direct);
  EXPECT_EQ(first_way(1.00, 2, 2, 0.80), kExactDirect) << "a codec's ring needs both leads";
  EXPECT_EQ(first_way(1.00, 2, 2, 0.75), (TuningWay{"int8/128", PlanKind::kRing}));
}

TEST(TuningTable, RanksExactFirstWhereFewerBytesSaveNothing) {
  // Four processes on two CPUs: what 1 KiB takes is whose turn it is, and one median was a lucky
  // one.
  constexpr TuningWay kInt8OneShot{"int8/128", PlanKind::kOneShot};
  const TuningTable table({{kExactOneShot, 1024, 25.6e-6},
                           {kExactOneShot, 4096, 26.4e-6},
                           {kExactOneShot, 65'536, 60e-6},
                           {kInt8Direct, 1024, 22.2e-6},
                           {kInt8Direct, 4096, 20.0e-6},
                           {kInt8Direct, 65'536, 50e-6},
                           {kInt8OneShot, 1024, 25.7e-6}});
  const auto first = [&](size_t bytes) {
    return table.rank_ways(bytes, bytes, {"exact", "int8/128"}).front().way;
  };
  EXPECT_EQ(first(1024), kExactOneShot);
  EXPECT_EQ(first(4096), kExactOneShot) << "1 KiB of exact bytes takes 3 % less";
  EXPECT_EQ(first(65'536), kInt8Direct);
}

// The exact path was disturbed at 256 KiB and so, made monotone, at 1 MiB; int8 leads all the same.
TEST(TuningTable, APlainLeadNeedsNoLatency) {
  const auto first = [](double int8_s) {
    const TuningTable table({{kExactDirect, 256 << 10, 0.97e-3},
                             {kExactDirect, 1 << 20, 0.97e-3},
                             {kInt8Direct, 256 << 10, 0.2e-3},
                             {kInt8Direct, 1 << 20, int8_s}});
    return table.rank_ways(1 << 20, 1 << 20, {"exact", "int8/128"}).front().way;
  };
  EXPECT_EQ(first(0.6e-3), kInt8Direct);
  EXPECT_EQ(first(0.8e-3), kExactDirect);
}

TEST(TuningTable, TextRoundTripsAndForeignOrDamagedTextIsIgnored) {
  const TuningTable table = sample_table();
  const std::string text = table.to_text("this host");
  EXPECT_EQ(TuningTable::parse(text, "this host").to_text("this host"), text);
  EXPECT_TRUE(TuningTable::parse(text, "another host").empty());
  for (size_t bytes = 0; bytes < text.size(); ++bytes) {
    EXPECT_TRUE(TuningTable::parse(text.substr(0, bytes), "this host").empty()) << bytes;
  }
  EXPECT_TRUE(TuningTable::parse("", "this host").empty());
  EXPECT_TRUE(TuningTable::parse("this host\nexact ring 5 1 onc\nend\n", "this host").empty());
  const char* const once = "this host\nexact ring 5 1 once\nend\n";
  EXPECT_EQ(TuningTable::parse(once, "this host").to_text("this host"), once);
  EXPECT_TRUE(TuningTable::parse("this host\nint7 ring 5 1\nend\n", "this host").empty());
  EXPECT_TRUE(TuningTable::parse("this host\nexact ring 0 1\nend\n", "this host").empty());
  EXPECT_TRUE(TuningTable::parse("this host\nexact ring 5 -1\nend\n", "this host").empty());
  // Times that no call takes, with which the time model would overflow.
  for (const char* seconds : {"0", "nan", "inf", "1e-13", "1e-320", "2e6", "5e305"}) {
    const std::string damaged = std::string("this host\nexact ring 5 ") + seconds + "\nend\n";
    EXPECT_TRUE(TuningTable::parse(damaged, "this host").empty()) << seconds;
  }
  EXPECT_TRUE(
      TuningTable::parse("this host\nexact ring 5 1\nexact ring 5 2\nend\n", "this host").empty());
}

TEST(TuningKey, NamesHostsAndNetworksButNotProcesses) {
  const std::string here = "boot=11;net=5;pid=1;port=700;";
  const std::string same_place = "boot=11;net=5;pid=2;port=701;";
  const CommunicatorOptions options;
  const std::string key = make_tuning_key({here, here}, options);
  EXPECT_EQ(make_tuning_key({same_place, here}, options), key);
  EXPECT_EQ(key.find('\n'), std::string::npos) << "the cache's first line";
  for (const char* elsewhere : {"boot=12;net=5;pid=1;port=700;", "boot=11;net=6;pid=1;port=700;"}) {
    EXPECT_NE(make_tuning_key({here, elsewhere}, options), key) << elsewhere;
  }
  EXPECT_NE(make_tuning_key({here, here, here}, options), key);
  CommunicatorOptions wired = options;
  wired.transport = TransportKind::kTcp;
  EXPECT_NE(make_tuning_key({here, here}, wired), key);
  EXPECT_NE(make_tuning_key({here, here}, options, 2), key) << "other CPUs, other ways";
}

TEST(LinkSpeedOf, IsSlopeAndInterceptOfExactTwoSteps) {
  // 2 us a hop, 2 bytes per ns from each of 4 ranks, which send 1.5 times the array.
  const auto seconds = [](size_t bytes) { return 4e-6 + 1.5 * static_cast<double>(bytes) / 2e9; };
  std::vector<TuningPoint> points{{kExactDirect, 1024, seconds(1024)},
                                  {kExactDirect, 65'536, seconds(65'536)},
                                  {kExactDirect, 1 << 20, seconds(1 << 20)},
                                  {kExactOneShot, 1024, 1}};
  const LinkSpeed speed = link_speed_of(TuningTable(points), 4).value();
  EXPECT_NEAR(speed.latency_seconds, 2e-6, 1e-12);
  EXPECT_NEAR(speed.bytes_per_second, 2e9, 1);
  points[2].seconds = 2 * points[1].seconds;
  EXPECT_FALSE(link_speed_of(TuningTable(points), 4).has_value()) << "the smaller leaves at once";
  points[1].bytes = 16 << 10;
  points[2] = {kExactDirect, 64 << 10, 5 * points[1].seconds};
  EXPECT_TRUE(link_speed_of(TuningTable(points), 4).has_value()) << "each size grew";
  points[1].seconds = 2 * points[0].seconds;
  points[2].seconds = 5 * points[1].seconds;
  EXPECT_FALSE(link_speed_of(TuningTable(points), 4).has_value()) << "only the last did";
  points[1].bytes = 256 << 10;
  points[2] = {kExactDirect, 1 << 20, 2 * points[1].seconds};
  EXPECT_TRUE(link_speed_of(TuningTable(points), 4).has_value());
  points[2].seconds = 1.1 * points[1].seconds;
  EXPECT_FALSE(link_speed_of(TuningTable(points), 4).has_value()) << "larger in no more time";
  EXPECT_FALSE(link_speed_of(TuningTable({points[0], points[3]}), 4).has_value()) << "one size";
  points[2].seconds = 4 * points[1].seconds;
  EXPECT_TRUE(link_speed_of(TuningTable(points), 4).has_value());
  points[2].is_rough = true;
  EXPECT_FALSE(link_speed_of(TuningTable(points), 4).has_value()) << "of one call";
}

TEST(TuningKey, OfTwoRanksIsThePairOfHostsAndOfMoreTheirArrangement) {
  const std::string a = "boot=11;net=5;pid=1;port=700;";
  const std::string b = "boot=12;net=5;pid=1;port=700;";
  const CommunicatorOptions options;
  EXPECT_EQ(make_tuning_key({a, b}, options), make_tuning_key({b, a}, options));
  EXPECT_NE(make_tuning_key({a, b}, options), make_tuning_key({a, a}, options));
  EXPECT_NE(make_tuning_key({a, a, b, b}, options), make_tuning_key({a, b, a, b}, options));
}

TEST(TuningRules, ParseAndFind) {
  const auto rules =
      parse_tuning_rules("all_reduce:0-64k:exact:one_shot,all_reduce:64k-inf:int8/64:*").value();
  ASSERT_EQ(rules.size(), 2U);
  EXPECT_EQ(find_rule(rules, Collective::kAllReduce, 0), &rules[0]);
  EXPECT_EQ(find_rule(rules, Collective::kAllReduce, 65'535), &rules[0]);
  EXPECT_EQ(find_rule(rules, Collective::kAllReduce, 65'536), &rules[1]);
  EXPECT_EQ(find_rule(rules, Collective::kAllGather, 5), nullptr);
  EXPECT_EQ(rules[1].codec, "int8/64");
  EXPECT_EQ(rules[1].plan, PlanKind::kAuto);
  EXPECT_TRUE(parse_tuning_rules("").value().empty());
  const auto colon = parse_tuning_rules("all_reduce:0-1k:mxfp8:e5m2:ring").value();
  EXPECT_EQ(colon[0].codec, "mxfp8:e5m2");
  EXPECT_EQ(colon[0].plan, PlanKind::kRing);
}

TEST(TuningRules, WhatIsWrongIsNamed) {
  const auto expect = [](const std::string& text, const std::string& what) {
    const auto rules = parse_tuning_rules(text);
    ASSERT_FALSE(rules.ok()) << text;
    EXPECT_EQ(rules.status().code(), StatusCode::kInvalidArgument);
    EXPECT_NE(rules.status().message().find(what), std::string::npos) << rules.status().to_string();
  };
  expect("all_sum:0-1k:exact:*", "'all_sum' is no collective");
  expect("all_reduce:1k-1k:exact:*", "'1k-1k' is no range");
  expect("all_reduce:5:exact:*", "'5' is no range");
  expect("all_reduce:0-9x:exact:*", "'0-9x' is no range");
  expect("all_reduce:0-99999999999999999999:exact:*", "is no range");
  expect("all_reduce:0-1k:int9:*", "int9");
  expect("all_reduce:0-1k:exact:direct", "'direct' is no plan");
  expect("nonsense", "'nonsense' is no collective");
}

TEST(PathChoice, TakesQuantizedOnlyWhereItIsClearlyFaster) {
  const TuningTable table = sample_table();
  const auto chosen = [&](size_t bytes) {
    return choose_path(context_of(table), sum_of(bytes / 4), open_codec()).value();
  };
  EXPECT_EQ(chosen(1024).codec, "exact");
  EXPECT_EQ(chosen(1024).plan, PlanKind::kOneShot);
  EXPECT_EQ(chosen(65'536).codec, "exact") << "2 % are noise";
  EXPECT_EQ(chosen(1 << 20).codec, "int8/128");
  EXPECT_DOUBLE_EQ(chosen(1 << 20).seconds, 800e-6);
}

TEST(PathChoice, TheAllowedErrorDecidesWhichCodecsTakePart) {
  const TuningTable table = sample_table();
  const auto codec = [&](double error) {
    return choose_path(context_of(table), sum_of(1 << 18), open_codec(error)).value().codec;
  };
  EXPECT_EQ(codec(0), "int8/128");
  EXPECT_EQ(codec(0.5), "int4/128");
  EXPECT_EQ(codec(0.01), "int8/128");
  EXPECT_EQ(codec(1e-6), "exact");
}

TEST(PathChoice, ANamedCodecThatMayBeTooWrongIsRefused) {
  const TuningTable table = sample_table();
  CallOptions options;
  options.codec = "int4/128";
  options.max_rel_error = 0.01;
  const auto choice = choose_path(context_of(table), sum_of(1000), options);
  ASSERT_FALSE(choice.ok());
  EXPECT_EQ(choice.status().code(), StatusCode::kInvalidArgument);
  options.max_rel_error = 0.5;
  EXPECT_TRUE(choose_path(context_of(table), sum_of(1000), options).ok());
  for (const double bad : {-1.0, std::numeric_limits<double>::quiet_NaN()}) {
    options.max_rel_error = bad;
    EXPECT_FALSE(choose_path(context_of(table), sum_of(1000), options).ok());
  }
}

// Hosts that add up first quantize once more; a call that allows less goes without them.
TEST(PathChoice, AnErrorThatHostsWouldExceedLeavesThemOut) {
  std::vector<int> host_of(16);
  for (size_t rank = 0; rank < host_of.size(); ++rank) host_of[rank] = static_cast<int>(rank / 2);
  const auto topology = topology_of_hosts(host_of);
  PathContext context;
  context.ground.size = 16;
  context.ground.topology = topology.get();
  CallOptions options;
  options.codec = "int8/128";
  const auto plan_within = [&](double error) {
    options.max_rel_error = error;
    const auto choice = choose_path(context, sum_of(1 << 20), options);
    return choice.ok() ? std::optional(choice.value().plan) : std::nullopt;
  };
  EXPECT_EQ(plan_within(0.05), PlanKind::kAuto) << "hierarchical, by the rule";
  EXPECT_EQ(plan_within(0.01), PlanKind::kTwoStep);
  EXPECT_EQ(plan_within(0.001), std::nullopt);
  options.plan = PlanKind::kHierarchical;
  EXPECT_EQ(plan_within(0.01), std::nullopt) << "the plan is the caller's";
  options.plan = PlanKind::kOneShot;
  EXPECT_EQ(plan_within(0.01), PlanKind::kOneShot);
}

TEST(PathChoice, WhatNoLossyCodecServesIsExact) {
  const TuningTable table = sample_table();
  for (const CallArguments& call :
       {sum_of(1 << 20, DataType::kInt32), sum_of(1 << 20, DataType::kFloat64),
        sum_of(1 << 20, DataType::kFloat32, ReduceOp::kMax), sum_of(0),
        CallArguments{Collective::kAllGather, nullptr, nullptr, 1 << 20, DataType::kFloat32,
                      ReduceOp::kSum, 0}}) {
    EXPECT_EQ(choose_path(context_of(table), call, open_codec()).value().codec, "exact");
  }
  EXPECT_EQ(choose_path(context_of(table, 1), sum_of(1 << 20), open_codec()).value().codec,
            "exact");
}

TEST(PathChoice, RulesComeBeforeMeasurementAndTheCallerBeforeRules) {
  const TuningTable table = sample_table();
  const auto rules = parse_tuning_rules("all_reduce:0-inf:int4/64:ring").value();
  PathContext context = context_of(table, 4);
  context.rules = &rules;
  const PathChoice ruled = choose_path(context, sum_of(1 << 18), open_codec(0.9)).value();
  EXPECT_EQ(ruled.codec, "int4/64");
  EXPECT_EQ(ruled.plan, PlanKind::kRing);
  CallOptions named;
  named.codec = "exact";
  named.plan = PlanKind::kTwoStep;
  const PathChoice own = choose_path(context, sum_of(1 << 18), named).value();
  EXPECT_EQ(own.codec, "exact");
  EXPECT_EQ(own.plan, PlanKind::kTwoStep);
  EXPECT_FALSE(choose_path(context, sum_of(1 << 18), open_codec(1e-6)).ok())
      << "a rule does not lift the caller's bound";
}

// The fastest plan measured for other codecs may be one that adds to what passes through.
TEST(PathChoice, ACodecThatAddsSideBySideTakesTwoStep) {
  const TuningTable table = sample_table();
  CallOptions options;
  for (const char* codec : {"lut2", "sum:exp"}) {
    options.codec = codec;
    for (const size_t count : {size_t{10}, size_t{1} << 20}) {
      EXPECT_EQ(choose_path(context_of(table), sum_of(count), options).value().plan,
                PlanKind::kTwoStep)
          << codec;
    }
  }
}

// A rule for all codecs must not make the calls of one fail.
TEST(PathChoice, ARulesPlanIsLeftWhereTheCodecWouldBeRefusedOnIt) {
  const auto rules = parse_tuning_rules("all_reduce:0-inf:*:ring").value();
  const auto plan_of = [&](const char* codec, int size) {
    PathContext context;
    context.ground.size = size;
    context.rules = &rules;
    CallOptions options;
    options.codec = codec;
    return choose_path(context, sum_of(1 << 18), options).value().plan;
  };
  EXPECT_EQ(plan_of("mxfp8", 4), PlanKind::kAuto);
  EXPECT_EQ(plan_of("mxfp8+hops", 4), PlanKind::kRing);
  EXPECT_EQ(plan_of("mxfp8", 2), PlanKind::kRing);
  EXPECT_EQ(plan_of("lut2", 4), PlanKind::kTwoStep);
  EXPECT_EQ(plan_of("int8", 4), PlanKind::kRing);
}

TEST(PathChoice, NeedsATableOnlyWhereALossyCodecCouldServe) {
  PathContext context;
  context.ground.size = 2;
  EXPECT_TRUE(needs_tuning(context, sum_of(10), open_codec()));
  EXPECT_FALSE(needs_tuning(context, sum_of(10, DataType::kInt64), open_codec()));
  EXPECT_FALSE(needs_tuning(context, sum_of(10), CallOptions{}));
  const auto rules = parse_tuning_rules("all_reduce:0-inf:int8:*").value();
  context.rules = &rules;
  EXPECT_FALSE(needs_tuning(context, sum_of(10), open_codec()));
}

}  // namespace
}  // namespace tersum
