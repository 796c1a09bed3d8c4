// The base kmeans:K: the best levels of a histogram, what a site learns and keeps, and what its
// codec is before and after.
#include "codec/learned_levels.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "codec/best_levels.h"
#include "normal_floats.h"
#include "tersum/codec_info.h"

namespace tersum {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

const Codec& codec_of(const std::string& spec) {
  return *find_codec(spec, DataType::kFloat32, ReduceOp::kSum).value();
}

using Weighed = std::vector<std::pair<double, double>>;

double cost_of(const Weighed& numbers, const std::vector<float>& levels) {
  double cost = 0;
  for (const auto& [part, weight] : numbers) {
    double least = 4;
    for (const float level : levels) least = std::min(least, std::pow(part - level, 2));
    cost += weight * least;
  }
  return cost;
}

// Of numbers in ascending order: the least cost of all ways to cut them into runs.
double least_cost(const Weighed& numbers, size_t count) {
  const size_t size = numbers.size();
  std::vector<double> best(size + 1, std::numeric_limits<double>::infinity());
  best[0] = 0;
  for (size_t level = 0; level < count; ++level) {
    std::vector<double> next = best;  // a level may stay unused
    for (size_t begin = 0; begin < size; ++begin) {
      double weight = 0, first = 0;
      for (size_t end = begin; end < size; ++end) {
        weight += numbers[end].second;
        first += numbers[end].second * numbers[end].first;
        double cost = 0;
        for (size_t i = begin; i <= end && weight > 0; ++i) {
          cost += numbers[i].second * std::pow(numbers[i].first - first / weight, 2);
        }
        next[end + 1] = std::min(next[end + 1], best[begin] + cost);
      }
    }
    best = std::move(next);
  }
  return best[size];
}

// Every way to cut is tried, and none is better than the levels by more than the bins' width.
TEST(BestLevels, cost_no_more_than_any_cut) {
  for (uint64_t seed = 1; seed <= 40; ++seed) {
    std::mt19937_64 random(seed);
    Weighed numbers;
    std::vector<size_t> bins;
    for (int i = 0; i < 24; ++i) bins.push_back(random() % LevelHistogram::kBins);
    std::sort(bins.begin(), bins.end());
    bins.erase(std::unique(bins.begin(), bins.end()), bins.end());
    LevelHistogram histogram;
    for (const size_t bin : bins) {
      const double part = 2 * (static_cast<double>(bin) + 0.5) / LevelHistogram::kBins - 1;
      numbers.emplace_back(part, static_cast<double>(random() % 5));
      histogram.add(part, numbers.back().second);
    }
    for (const size_t count : {2, 4, 8, 16}) {
      const std::vector<float> levels = histogram.best_levels(count);
      ASSERT_EQ(levels.size(), count);
      EXPECT_TRUE(check_levels(levels).ok());
      EXPECT_NEAR(cost_of(numbers, levels), least_cost(numbers, count), 1e-6)
          << "seed " << seed << ", " << count << " levels";
    }
  }
}

TEST(BestLevels, keep_zero_and_fill_up_what_nothing_asks_for) {
  LevelHistogram histogram;
  EXPECT_TRUE(histogram.best_levels(4).empty());
  histogram.add(0.3, 0);
  EXPECT_TRUE(histogram.best_levels(4).empty());
  histogram.add(0.0005, 1);
  histogram.add(-0.5, 2);
  EXPECT_THAT(histogram.best_levels(2), ElementsAre(-0.5F, 0.0F));
  EXPECT_THAT(histogram.best_levels(4), ElementsAre(-1.0F, -0.5F, 0.0F, 1.0F));
  LevelHistogram ends;
  ends.add(1, 1);
  ends.add(-1, 1);
  EXPECT_THAT(ends.best_levels(2), ElementsAre(-1.0F, 1.0F));
}

TEST(BestLevels, are_refused_with_the_reason) {
  const std::vector<double> parts = {0.5, -2};
  const std::vector<double> weights = {1, 1};
  const auto error = [&](std::span<const double> of, std::span<const double> by, size_t count) {
    return std::string(learn_levels(of, by, count).status().message());
  };
  EXPECT_THAT(error(parts, weights, 16), HasSubstr("number 1 (-2"));
  EXPECT_THAT(error(std::span(parts).first(1), weights, 16), HasSubstr("one for each"));
  EXPECT_THAT(error(std::span(parts).first(1), std::span(weights).first(1), 5),
              HasSubstr("2, 4, 8 or 16"));
  EXPECT_THAT(error({}, {}, 4), HasSubstr("nothing to learn from"));
}

TEST(BestLevels, do_not_depend_on_how_large_weights_are) {
  const std::vector<double> parts = {-0.5, -0.25, 0.3, 0.9};
  for (const double weight : {1e308, 1.0, 1e-320}) {
    const std::vector<double> weights(4, weight);
    EXPECT_THAT(learn_levels(parts, weights, 4).value(), ElementsAre(-0.5F, -0.25F, 0.3F, 0.9F))
        << weight;
  }
}

TEST(LearnedLevels, are_learned_once_from_enough_finite_values) {
  const LevelLesson lesson{8, 64, 0};
  std::vector<float> values = normal_floats(7, 4096);
  LearnedLevels state;
  state.learn(lesson, values.data(), LearnedLevels::kValuesMin - 1, DataType::kFloat32);
  EXPECT_FALSE(state.known());
  EXPECT_EQ(state.digest(), 0U);
  const std::vector<float> zeros(4096);
  state.learn(lesson, zeros.data(), zeros.size(), DataType::kFloat32);
  EXPECT_FALSE(state.known());
  values[100] = std::numeric_limits<float>::infinity();
  state.learn(lesson, values.data(), values.size(), DataType::kFloat32);
  ASSERT_TRUE(state.known());
  EXPECT_EQ(state.levels().size(), 8U);
  const uint64_t digest = state.digest();
  EXPECT_NE(digest, 0U);
  const std::vector<float> others = normal_floats(8, 9000);
  state.learn(lesson, others.data(), others.size(), DataType::kFloat32);
  EXPECT_EQ(state.digest(), digest);
  // Without the block that is not finite they are the same.
  std::fill_n(values.begin() + 64, 64, 0.0F);
  LearnedLevels without;
  without.learn(lesson, values.data(), values.size(), DataType::kFloat32);
  EXPECT_EQ(without.digest(), digest);
}

// Any magnitude that float32 has; a scale must not round to infinity.
TEST(LearnedLevels, do_not_depend_on_the_size_of_the_values) {
  const LevelLesson lesson{16, 32, 0};
  const std::vector<float> values = normal_floats(9, 4096);
  const float most = *std::max_element(values.begin(), values.end(),
                                       [](float a, float b) { return std::abs(a) < std::abs(b); });
  LearnedLevels plain;
  plain.learn(lesson, values.data(), values.size(), DataType::kFloat32);
  for (const int exponent : {-100, 60, 126 - static_cast<int>(std::ilogb(most))}) {
    std::vector<float> scaled(values);
    for (float& value : scaled) value = std::ldexp(value, exponent);
    LearnedLevels state;
    state.learn(lesson, scaled.data(), scaled.size(), DataType::kFloat32);
    EXPECT_EQ(state.digest(), plain.digest()) << exponent;
  }
  const std::vector<float> largest(2048, std::numeric_limits<float>::max());
  LearnedLevels state;
  state.learn(lesson, largest.data(), largest.size(), DataType::kFloat32);
  ASSERT_TRUE(state.known());
  EXPECT_EQ(state.levels().back(), 1.0F);
}

TEST(LearnedLevels, are_saved_and_nothing_else_is_loaded) {
  LearnedLevels state;
  std::vector<std::byte> saved(LearnedLevels::kSavedBytes);
  state.save(saved);
  LearnedLevels loaded;
  EXPECT_TRUE(loaded.load(saved));
  EXPECT_FALSE(loaded.known());
  const std::vector<float> values = normal_floats(11, 4096);
  state.learn({4, 64, 0}, values.data(), values.size(), DataType::kFloat32);
  state.save(saved);
  EXPECT_TRUE(loaded.load(saved));
  EXPECT_EQ(loaded.digest(), state.digest());
  const auto refuses = [&](size_t at, float value) {
    std::vector<std::byte> bad(saved);
    std::memcpy(bad.data() + at, &value, sizeof(value));
    return !loaded.load(bad);
  };
  EXPECT_TRUE(refuses(0, 1.0F));    // so many levels
  EXPECT_TRUE(refuses(8, 0.9F));    // no longer ascending
  EXPECT_TRUE(refuses(20, 1.25F));  // beyond 1
  EXPECT_TRUE(refuses(20, std::nanf("")));
  EXPECT_TRUE(refuses(24, 0.5F));  // behind the last
  EXPECT_FALSE(loaded.load(std::span(saved).first(8)));
  EXPECT_EQ(loaded.digest(), state.digest());
}

// Before there are levels it is int8 in the same blocks, and then the table.
TEST(KmeansCodec, is_int8_first_and_then_a_table) {
  for (const std::string modifiers : {"", "+sparse:2%", "+rows:100", "+rows:100+sparse:2%"}) {
    const Codec& codec = codec_of("kmeans:8/32" + modifiers);
    const Codec& first = codec_of("int8/32" + modifiers);
    ASSERT_NE(codec.lesson(), nullptr);
    EXPECT_EQ(codec.spec().to_string(), "kmeans:8/32" + modifiers);
    EXPECT_EQ(codec.block(), first.block());
    const std::vector<float> values = normal_floats(13, 1000);
    std::vector<std::byte> wire(codec.wire_bytes(1000));
    std::vector<std::byte> wanted(first.wire_bytes(1000));
    codec.encode(values.data(), values.size(), wire.data());
    first.encode(values.data(), values.size(), wanted.data());
    EXPECT_EQ(wire, wanted);
    LearnedLevels state;
    const std::vector<float> sums = normal_floats(14, 4096);
    state.learn(*codec.lesson(), sums.data(), sums.size(), DataType::kFloat32);
    const Codec& later = codec.taught(register_level_table(state.levels()).value());
    EXPECT_EQ(later.block(), codec.block());
    EXPECT_THAT(later.spec().to_string(), HasSubstr("table:"));
    EXPECT_EQ(codec_wire_bytes(codec.spec().to_string(), 1000).value(), later.wire_bytes(1000));
    for (const double absmax : {0.0, 1e-30, 1.0, 1e30}) {
      EXPECT_GE(codec.block_error_bound(absmax), later.block_error_bound(absmax));
    }
  }
}

}  // namespace
}  // namespace tersum
