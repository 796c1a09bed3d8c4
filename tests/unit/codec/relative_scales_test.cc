// Scales of a byte: which ones the grid has, what becomes of others, and what the bytes of no scale
// stand for.
#include "codec/kernels/relative_scales.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <string>
#include <vector>

#include "codec/codec.h"
#include "codec/kernels/numbers.h"

namespace tersum {
namespace {

constexpr const char* kFormats[] = {"int8/32", "int6/32",    "int5/32",    "int4/32",
                                    "int2/32", "fp8e4m3/32", "fp8e5m2/32", "nf4/32"};

const ElementFormat& format_of(const std::string& spec) {
  return *find_codec(spec, DataType::kFloat32, ReduceOp::kSum).value()->element_format();
}

struct Group {
  std::byte exponent{};
  std::vector<std::byte> steps;
  std::vector<BlockScale> scales;
};

Group written(const ScaleGrid& grid, const std::vector<uint16_t>& patterns) {
  std::vector<std::byte> bf16(2 * patterns.size());
  for (size_t i = 0; i < patterns.size(); ++i) store_unaligned(bf16.data() + 2 * i, patterns[i]);
  Group group;
  group.steps.resize(patterns.size());
  group.scales.resize(patterns.size());
  write_steps(grid, bf16.data(), patterns.size(), &group.exponent, group.steps.data(),
              group.scales.data());
  return group;
}

RC_GTEST_PROP(RelativeScales, are_the_next_of_the_grid_within_sixteen_octaves, ()) {
  const auto seed = *rc::gen::arbitrary<uint64_t>();
  const ElementFormat& format = format_of(
      *rc::gen::elementOf(std::vector<std::string>(std::begin(kFormats), std::end(kFormats))));
  const ScaleGrid grid = scale_grid(format);
  std::mt19937_64 random(seed);
  std::vector<uint16_t> patterns(*rc::gen::inRange<size_t>(1, 33));
  const uint32_t top = 1 + static_cast<uint32_t>(random() % grid.most);
  for (uint16_t& pattern : patterns) {
    const auto below = static_cast<uint32_t>(random() % std::min<uint32_t>(top, 3000));
    pattern = static_cast<uint16_t>(top - below);
    if (random() % 16 == 0) pattern = random() % 2 == 0 ? 0 : kBf16Nan;
  }
  const Group group = written(grid, patterns);
  for (size_t b = 0; b < patterns.size(); ++b) {
    const uint32_t wanted = patterns[b];
    const uint32_t got = read_step(group.exponent, group.steps[b]);
    RC_ASSERT(is_written_step(group.exponent, group.steps[b]));
    RC_ASSERT(float_bits(group.scales[b].scale) >> 16 == got);
    if (wanted == 0 || wanted == kBf16Nan) {
      RC_ASSERT(got == wanted);
      continue;
    }
    RC_ASSERT(got > 0 && got <= grid.most && got % kPatternsInStep == 0);
    const PatternRange range = rounded_range(grid, wanted);
    RC_ASSERT(got >= range.least);
    // Only at the far end of the steps is it above what the range says.
    const uint32_t last = static_cast<uint32_t>(group.exponent) * kPatternsInOctave -
                          std::min(kStepMost * kPatternsInStep,
                                   static_cast<uint32_t>(group.exponent) * kPatternsInOctave);
    RC_ASSERT(got <= std::max(range.most, last));
    const bool at_edge = got == last || got + kPatternsInStep > grid.most || got == kPatternsInStep;
    if (!at_edge && grid.down == 0) RC_ASSERT(got - wanted < kPatternsInStep);
    if (!at_edge && grid.down > 0)
      RC_ASSERT(std::max(got, wanted) - std::min(got, wanted) <= grid.down);
  }
}

TEST(RelativeScales, GoDownWhereTheLargestLevelStaysWithinHalfAGap) {
  for (const char* spec :
       {"int5/32", "int4/32", "int3/32", "int2/32", "fp8e4m3/32", "fp8e5m2/32", "nf4/32"}) {
    const ElementFormat& format = format_of(spec);
    EXPECT_EQ(scale_grid(format).down, kPatternsInStep / 2) << spec;
    // Of a scale by up to 4 patterns of 128.
    EXPECT_LE(format.level_max * 4 / 128, format.gap_max / 2) << spec;
  }
  for (const char* spec : {"int8/32", "int7/32", "int6/32"}) {
    EXPECT_EQ(scale_grid(format_of(spec)).down, 0U) << spec;
  }
}

// 1 has the pattern 0x3f80, of octave 127; 2^-16 is 16 octaves below, 3 steps more than there are.
TEST(RelativeScales, BeyondTheLastStepTakeThat) {
  const ScaleGrid grid = scale_grid(format_of("int4/32"));
  const Group group = written(grid, {0x3f80, 0x3f80 - 16 * 128, 1, 0x3f80 - 9, 0});
  EXPECT_EQ(group.exponent, std::byte{127});
  const std::vector<std::byte> steps = {std::byte{0}, std::byte{253}, std::byte{253}, std::byte{1},
                                        std::byte{254}};
  EXPECT_EQ(group.steps, steps);
  EXPECT_EQ(group.scales[1].scale, scale_of_pattern(0x3f80 - 253 * 8));
}

TEST(RelativeScales, OfTheLeastNumbersAreNeverZero) {
  const ScaleGrid grid = scale_grid(format_of("int4/32"));
  const Group group = written(grid, {1, 3, 12, 13});
  EXPECT_EQ(group.exponent, std::byte{1});
  const uint32_t expected[] = {8, 8, 8, 16};
  for (size_t b = 0; b < 4; ++b) {
    EXPECT_EQ(read_step(group.exponent, group.steps[b]), expected[b]) << b;
  }
}

TEST(RelativeScales, OfNothingButNaNOrZeroHaveNoExponent) {
  const Group group = written(scale_grid(format_of("nf4/32")), {kBf16Nan, 0, 0});
  EXPECT_EQ(group.exponent, std::byte{0});
  EXPECT_TRUE(std::isnan(group.scales[0].scale));
  EXPECT_EQ(group.scales[1].scale, 0);
}

TEST(RelativeScales, BytesThatLeaveNoPositiveFiniteNumberAreNaN) {
  size_t none = 0;
  for (int exponent = 0; exponent < 256; ++exponent) {
    for (int step = 0; step < 256; ++step) {
      const auto e = static_cast<std::byte>(exponent);
      const auto k = static_cast<std::byte>(step);
      const int pattern = 128 * exponent - 8 * step;
      const bool named = step >= kStepZero;
      const bool good = named || (pattern > 0 && pattern < 0x7f80);
      EXPECT_EQ(is_written_step(e, k), good) << exponent << " " << step;
      if (named) continue;
      EXPECT_EQ(read_step(e, k), good ? pattern : kBf16Nan) << exponent << " " << step;
      none += good ? 0 : 1;
    }
  }
  // Exponents of 0 to 15 have 16 steps each, of which none reaches 0; of 255 one is infinite.
  size_t expected = 1;
  for (int exponent = 0; exponent < 16; ++exponent) {
    expected += static_cast<size_t>(254 - 16 * exponent);
  }
  EXPECT_EQ(none, expected);
}

}  // namespace
}  // namespace tersum
