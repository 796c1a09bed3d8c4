// The time model: what a table says at sizes and for codecs that were not measured.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "runtime/tuning/call_time.h"
#include "runtime/tuning/codec_cost.h"
#include "runtime/tuning/time_model.h"
#include "runtime/tuning/tuning_table.h"

namespace tersum {
namespace {

constexpr size_t kMega = 1'000'000;
constexpr TuningWay kExact{"exact", PlanKind::kTwoStep};
constexpr TuningWay kBf16{"bf16", PlanKind::kTwoStep};
constexpr TuningWay kInt8{"int8/128", PlanKind::kTwoStep};
constexpr TuningWay kInt4{"int4/128", PlanKind::kTwoStep};
constexpr TuningWay kRing{"exact", PlanKind::kRing};

// Exact and int8 are measured up to 4 MB, where they take 5 and 3 times as long as 1 MB.
std::vector<TuningPoint> sample_points() {
  return TuningTable({{kExact, kMega, 1000e-6},
                      {kExact, 4 * kMega, 5000e-6},
                      {kInt8, kMega, 500e-6},
                      {kInt8, 4 * kMega, 1500e-6},
                      {kBf16, kMega, 800e-6},
                      {kInt4, kMega, 400e-6},
                      {kRing, kMega, 2000e-6}})
      .points();
}

TEST(TimeModel, AWayGrowsBeyondItsSizesAsItsNeighboursByWireBytesDo) {
  const auto points = sample_points();
  // bf16 has half of exact's bytes, int8/128 130 of 512.
  const double share = (0.5 - 130.0 / 512) / (1 - 130.0 / 512);
  EXPECT_NEAR(model_seconds(points, kBf16, 4 * kMega).value(), 800e-6 * (3 + 2 * share), 1e-12);
  EXPECT_NEAR(model_seconds(points, kInt4, 4 * kMega).value(), 400e-6 * 3, 1e-12)
      << "its only neighbour is int8";
  EXPECT_NEAR(model_seconds(points, kInt4, 2 * kMega).value(), 400e-6 * 5 / 3, 1e-12);
}

// 200 us are latency: what int4 takes for 64 KB grows by half of what int8 takes more, as it did.
TEST(TimeModel, LatencyDoesNotGrowBeyondTheSizesOfAWay) {
  const auto points = TuningTable({{kInt8, 1000, 200e-6},
                                   {kInt8, 64'000, 400e-6},
                                   {kInt8, kMega, 3200e-6},
                                   {kInt4, 1000, 200e-6},
                                   {kInt4, 64'000, 300e-6},
                                   {kBf16, 1000, 200e-6},
                                   {kBf16, 64'000, 205e-6}})
                          .points();
  const double share = 66.0 / 130;  // of int8's bytes
  EXPECT_NEAR(model_seconds(points, kInt4, kMega).value(), 300e-6 + share * 2800e-6, 1e-12);
  EXPECT_NEAR(model_seconds(points, kBf16, kMega).value(), 205e-6 + 205.0 / 400 * 2800e-6, 1e-12)
      << "no less than its whole time was of the other's, or its bytes";
}

TEST(TimeModel, BytesGetCheaperOnALineAndDearerByAPowerLaw) {
  const auto points = sample_points();
  // A third of the way from 1 to 4 MB, and halfway on a logarithmic scale.
  EXPECT_NEAR(model_seconds(points, kInt8, 2 * kMega).value(), 500e-6 + 1000e-6 / 3, 1e-12);
  EXPECT_NEAR(model_seconds(points, kExact, 2 * kMega).value(), 1000e-6 * std::sqrt(5), 1e-12);
  EXPECT_NEAR(model_seconds(points, kInt8, 10).value(), 500e-6, 1e-12) << "latency";
}

TEST(TimeModel, APlanThatNobodyMeasuredFurtherGrowsAsTwoStepDoes) {
  EXPECT_NEAR(model_seconds(sample_points(), kRing, 4 * kMega).value(), 2000e-6 * 5, 1e-12);
}

// A ring of four whose links gather credit while they rest: 16 KiB hardly tell what hierarchical,
// which the cost model brought in there, takes for 1 MiB. That of untuned calls went on.
TEST(TimeModel, APlanThatWasBroughtInAndOutlastedIsNoneForLargeCalls) {
  for (const PlanKind brought : {PlanKind::kHierarchical, PlanKind::kRing, PlanKind::kTwoStep,
                                 PlanKind::kTorus, PlanKind::kTree}) {
    const TuningWay untuned{"int8/128", PlanKind::kAuto};
    const TuningWay other{"int8/128", brought};
    const auto points = TuningTable({{untuned, 16'384, 184e-6},
                                     {untuned, 262'144, 2147e-6},
                                     {other, 1024, 103e-6},
                                     {other, 16'384, 100e-6}})
                            .points();
    EXPECT_EQ(model_seconds(points, other, kMega), std::nullopt);
    EXPECT_NEAR(model_seconds(points, other, 16'384).value(), 100e-6, 1e-12);
    EXPECT_GT(model_seconds(points, untuned, kMega).value(), 4 * 1900e-6);
  }
}

// Hosts of several ranks: hierarchical takes two_step's place, and a codec's way may end before it.
TEST(TimeModel, HierarchicalWhereItReachesFurthestIsNotOutlasted) {
  const auto points = TuningTable({{{"exact", PlanKind::kHierarchical}, kMega, 1000e-6},
                                   {{"exact", PlanKind::kHierarchical}, 4 * kMega, 4000e-6},
                                   {{"bf16", PlanKind::kHierarchical}, kMega, 700e-6},
                                   {kExact, kMega, 1500e-6}})
                          .points();
  EXPECT_NEAR(model_seconds(points, {"bf16", PlanKind::kHierarchical}, 4 * kMega).value(),
              4 * 700e-6, 1e-12);
}

// Two hosts of two ranks behind a bucket of 72 KiB at 200 Mbit/s: one look at 16 KiB, which the
// bucket let through, for all, and only hierarchical further. A ring crosses the wire 1.5 times as
// often as that; by its own two sizes alone it seemed to take 1.1 ms of 2.2.
TEST(TimeModel, AmongHostsOfSeveralRanksPlansGrowAsHierarchicalDoes) {
  constexpr TuningWay kInt8Ring{"int8/128", PlanKind::kRing};
  constexpr TuningWay kBetween{"int8/128", PlanKind::kHierarchical};
  const auto points = TuningTable({{kInt8, 1024, 152e-6},
                                   {kInt8, 16'384, 422e-6},
                                   {kInt8Ring, 1024, 245e-6},
                                   {kInt8Ring, 16'384, 343e-6},
                                   {kBetween, 1024, 157e-6},
                                   {kBetween, 16'384, 247e-6},
                                   {kBetween, 65'536, 757e-6},
                                   {kBetween, 262'144, 2922e-6}})
                          .points();
  for (const size_t bytes : {131'072, 262'144, 524'288}) {
    const double between = model_seconds(points, kBetween, bytes).value();
    EXPECT_GT(model_seconds(points, kInt8Ring, bytes).value(), 1.05 * between) << bytes;
    EXPECT_GT(model_seconds(points, kInt8, bytes).value(), 1.5 * between) << bytes;
  }
}

TEST(TimeModel, BeyondAllSizesItGrowsAsItsNeighboursDoThere) {
  const auto points = sample_points();
  const double exact = model_seconds(points, kExact, 16 * kMega).value();
  EXPECT_GT(exact, 4 * 5000e-6 * 0.99);
  EXPECT_NEAR(model_seconds(points, kRing, 16 * kMega).value(), 2 * exact, 1e-12);
}

// 2 ns a byte up to 4 MB, all of it in a cache that holds arrays of 8 MB.
TEST(TimeModel, OutOfACacheThatHeldAllThatWasMeasuredAByteCostsMore) {
  const auto points =
      TuningTable({{kExact, kMega, 2e-3}, {kExact, 4 * kMega, 8e-3}, {kInt8, kMega, 1e-3}})
          .points();
  const auto seconds = [&](const TuningWay& way, size_t bytes, size_t cached_bytes) {
    return model_seconds(points, way, bytes, cached_bytes).value();
  };
  EXPECT_NEAR(seconds(kExact, 8 * kMega, 8 * kMega), 16e-3, 1e-9);
  EXPECT_NEAR(seconds(kExact, 16 * kMega, 8 * kMega), 16e-3 + 1.3 * 16e-3, 1e-9);
  EXPECT_NEAR(seconds(kInt8, 16 * kMega, 8 * kMega), 8e-3 + 1.3 * 8e-3, 1e-9) << "as exact grows";
  EXPECT_NEAR(seconds(kExact, 16 * kMega, 4 * kMega), 8e-3 + 1.3 * 24e-3, 1e-9);
  EXPECT_NEAR(seconds(kExact, 16 * kMega, 3 * kMega), 32e-3, 1e-9) << "measured out of it, too";
  EXPECT_NEAR(seconds(kExact, 16 * kMega, 0), 32e-3, 1e-9) << "unknown";
  EXPECT_NEAR(seconds(kExact, 2 * kMega, kMega), 4e-3, 1e-9) << "within the sizes";
}

// int8 was seen from 64 KiB on, exact from 1 KiB and further: what int8 took of exact's time is
// told by the sizes that both were seen at.
TEST(TimeModel, GrowthIsComparedFromWhereBothBegin) {
  const auto time = [](double latency, double byte, size_t bytes) {
    return latency + byte * static_cast<double>(bytes);
  };
  std::vector<TuningPoint> points;
  for (const size_t bytes : {1 << 10, 64 << 10, 256 << 10, 16 << 20}) {
    points.push_back({kExact, bytes, time(1e-3, 10e-9, bytes)});
  }
  for (const size_t bytes : {64 << 10, 256 << 10}) {
    points.push_back({kInt8, bytes, time(1e-3, 5e-9, bytes)});
  }
  EXPECT_NEAR(TuningTable(points).seconds(kInt8, 16 << 20).value(), time(1e-3, 5e-9, 16 << 20),
              1e-9);
}

// Behind 20 ms neither 1 nor 64 KiB show what bytes cost: 8 ns each of them that is sent.
TEST(TimeModel, BytesThatLatencyHidAreTakenToNeedOneGbitPerSecond) {
  for (const double second : {0.0, 20.1e-3}) {
    std::vector<TuningPoint> points{{kExact, 1024, 20e-3}, {kInt8, 1024, 20e-3}};
    if (second > 0) {
      points.push_back({kExact, 65'536, second});
      points.push_back({kInt8, 65'536, second});
    }
    const TuningTable table(points);
    EXPECT_NEAR(table.seconds(kExact, 100 * kMega).value(), 0.82, 1e-3);
    EXPECT_NEAR(table.seconds(kInt8, 100 * kMega).value(), 0.02 + 0.8 * 130 / 512, 1e-3);
  }
  // 5 ns a byte: they cannot have cost more than all there was.
  EXPECT_NEAR(TuningTable({{kExact, 1000, 5e-6}}).seconds(kExact, kMega).value(), 5e-3, 1e-9);
  const TuningTable seen({{kExact, kMega, 10e-3}, {kExact, 4 * kMega, 12.1e-3}});
  EXPECT_NEAR(seen.seconds(kExact, 7 * kMega).value(), 14.2e-3, 1e-9) << "it was seen";
}

TEST(TimeModel, AWayThatWasNotMeasuredHasNoTime) {
  EXPECT_FALSE(model_seconds(sample_points(), {"exact", PlanKind::kTree}, kMega).has_value());
  EXPECT_FALSE(model_seconds({}, kExact, kMega).has_value());
}

// Transport takes 2 ms and 0.5 ms for 1 and 1/4 of the bytes: 2 ns a byte on the wire.
TEST(TimeModel, AnUnmeasuredCodecTakesTransportByItsBytesAndItsOwnCoding) {
  const TuningTable table({{kExact, kMega, 3e-3}, {kInt8, kMega, 1.5e-3}});
  const std::vector<CodecPrice> prices = {{"exact", {1, 1e-9}}, {"int8/128", {0.25, 1e-9}}};
  const auto seconds = [&](double wire_ratio, double coding) {
    return model_seconds(table.points(), PlanKind::kTwoStep, kMega, {wire_ratio, coding}, prices)
        .value();
  };
  EXPECT_NEAR(seconds(1, 1e-9), 3e-3, 1e-12) << "what was measured comes back";
  EXPECT_NEAR(seconds(0.25, 1e-9), 1.5e-3, 1e-12);
  EXPECT_NEAR(seconds(0.5, 2e-9), 1e-3 + 2e-3, 1e-12);
  EXPECT_NEAR(seconds(0.125, 0), 0.25e-3, 1e-12) << "below all that was measured";
  EXPECT_NEAR(seconds(2, 0), 4e-3, 1e-12) << "above it";
  EXPECT_FALSE(model_seconds(table.points(), PlanKind::kRing, kMega, {0.5, 0}, prices).has_value());
}

TEST(TimeModel, FewerBytesThanMeasuredTakeAtLeastTheirPartOfTheLeast) {
  // Exact is no dearer than int8: bytes seem to cost nothing, and less than nothing further down.
  const TuningTable table({{kExact, kMega, 1e-3}, {kInt8, kMega, 1.1e-3}});
  const std::vector<CodecPrice> prices = {{"exact", {1, 0}}, {"int8/128", {0.25, 0}}};
  EXPECT_NEAR(model_seconds(table.points(), PlanKind::kTwoStep, kMega, {0.125, 0}, prices).value(),
              1.1e-3 + 0.1e-3 / 6, 1e-9);
  const TuningTable steep({{kExact, kMega, 1e-3}, {kInt8, kMega, 0.1e-3}});
  EXPECT_NEAR(model_seconds(steep.points(), PlanKind::kTwoStep, kMega, {0.125, 0}, prices).value(),
              0.05e-3, 1e-12);
}

TEST(TimeModel, NothingThatATableMayHoldMakesATimeThatIsNone) {
  const double huge = std::numeric_limits<double>::max();
  const TuningTable table(
      {{kExact, 1, 5e-324}, {kExact, kMega, huge}, {kInt8, 1, huge}, {kBf16, 1, 5e-324}});
  for (const TuningWay& way : {kExact, kInt8, kBf16}) {
    for (const size_t bytes : {size_t{1}, size_t{1000}, kMega, 3 * kMega, SIZE_MAX}) {
      const double seconds = table.seconds(way, bytes).value();
      EXPECT_TRUE(std::isfinite(seconds) && seconds > 0) << way.codec << ' ' << bytes;
    }
  }
}

TEST(CodecCost, CodingIsWhatOneRankDoesTimesThoseThatShareItsCore) {
  const CodingSeconds kernels{3e-9, 5e-9, 12e-9};
  EXPECT_DOUBLE_EQ(coding_seconds_per_byte(kernels, {2, 2, 2}), (3e-9 + 12e-9 + 5e-9) / 2);
  const double of_four = (3 * 3e-9 + (2 * 5e-9 + 12e-9) + 3 * 5e-9) / 4;
  EXPECT_DOUBLE_EQ(coding_seconds_per_byte(kernels, {4, 1, 2}), of_four);
  EXPECT_DOUBLE_EQ(coding_seconds_per_byte(kernels, {4, 4, 2}), 2 * of_four);
  EXPECT_DOUBLE_EQ(coding_seconds_per_byte(kernels, {4, 4, 2}, PlanKind::kOneShot),
                   2 * (3e-9 + 3 * 5e-9));
}

CallArguments sum_of(size_t count, DataType type = DataType::kFloat32) {
  return {Collective::kAllReduce, nullptr, nullptr, count, type, ReduceOp::kSum, 0};
}

TEST(CallTime, KnowsMeasuredPathsAndARingOfTwo) {
  const TuningTable table(sample_points());
  const CodingPlace two{2, 2, 2};
  const auto seconds = [&](std::string_view codec, PlanKind plan, const CallArguments& arguments) {
    return expected_seconds(table, two, arguments, codec, plan).value_or(0);
  };
  EXPECT_DOUBLE_EQ(seconds("exact", PlanKind::kTwoStep, sum_of(kMega / 4)), 1000e-6);
  EXPECT_DOUBLE_EQ(seconds("exact", PlanKind::kRing, sum_of(kMega / 4)), 1000e-6);
  EXPECT_DOUBLE_EQ(seconds("int8", PlanKind::kTwoStep, sum_of(kMega / 4)), 500e-6);
  EXPECT_DOUBLE_EQ(seconds("int8", PlanKind::kTwoStep, sum_of(kMega / 4, DataType::kBFloat16)),
                   500e-6)
      << "as many values as of float32";
  EXPECT_DOUBLE_EQ(seconds("exact", PlanKind::kTwoStep, sum_of(kMega / 2, DataType::kBFloat16)),
                   1000e-6)
      << "as many bytes as of float32";
  EXPECT_DOUBLE_EQ(seconds("int8", PlanKind::kTwoStep, sum_of(kMega / 4, DataType::kInt32)),
                   1000e-6)
      << "integers travel exactly";
  EXPECT_EQ(seconds("exact", PlanKind::kTree, sum_of(kMega / 4)), 0);
  EXPECT_EQ(seconds("sum:exp", PlanKind::kTwoStep, sum_of(kMega / 4)), 0);
  EXPECT_EQ(expected_seconds(table, {4, 4, 2}, sum_of(kMega / 4), "exact", PlanKind::kRing),
            2000e-6);
}

TEST(CallTime, ACodecThatWasNotMeasuredLiesBetweenThoseThatWere) {
  const TuningTable table({{kExact, kMega, 30e-3}, {kInt8, kMega, 10e-3}, {kInt4, kMega, 6e-3}});
  const double seconds =
      expected_seconds(table, {2, 2, 2}, sum_of(kMega / 4), "int6/128", PlanKind::kTwoStep).value();
  EXPECT_GT(seconds, 5e-3);
  EXPECT_LT(seconds, 15e-3);
  EXPECT_FALSE(expected_seconds(table, {2, 2, 2},
                                {Collective::kAllGather, nullptr, nullptr, kMega,
                                 DataType::kFloat32, ReduceOp::kSum, 0},
                                "exact", PlanKind::kTwoStep)
                   .has_value());
}

}  // namespace
}  // namespace tersum
