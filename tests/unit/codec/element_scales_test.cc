// Scales, codes of minifloats and squared errors on every instruction set: those of the scalar
// functions, whatever the magnitudes are.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "codec/element_formats.h"
#include "codec/hadamard_signs.h"
#include "codec/kernels/dispatch.h"
#include "codec/kernels/element_kernels.h"
#include "codec/kernels/element_reference.h"

namespace tersum {
namespace {

constexpr uint64_t kSeed = 2211;
constexpr ValueKind kKinds[] = {ValueKind::kFloat32, ValueKind::kBFloat16, ValueKind::kFloat16};

// One for each rule and each way to a largest level.
std::vector<ElementFormat> formats() {
  std::vector<ElementFormat> all = {integer_format<2>(), integer_format<8>(), five_format(),
                                    fp8e5m2_format(),    nf4_format(),        mxfp8e4m3_format(),
                                    mxfp6e2m3_format(),  mxfp4_format(),      mxint8_format(),
                                    nvfp4_format(),      sign_format()};
  ElementFormat floor = mxfp8e5m2_format();
  floor.rule = ScaleRule::kE8M0Floor;
  all.push_back(floor);
  return all;
}

// As a tile has them: every exponent, at its ends, around the middle and somewhere; infinity and
// NaN. `mixed`: shuffled, so that a vector holds blocks of every kind; else a vector of neighbours.
std::vector<uint32_t> maxima(bool mixed) {
  std::mt19937_64 random(kSeed);
  std::vector<uint32_t> bits;
  for (uint32_t field = 0; field < 256; ++field) {
    for (const uint32_t mantissa : {0U, 1U, 0x3fffffU, 0x400000U, 0x600000U, 0x7fffffU}) {
      bits.push_back(field << 23 | mantissa);
    }
    for (int i = 0; i < 10; ++i) {
      bits.push_back(field << 23 | (static_cast<uint32_t>(random()) & 0x7fffffU));
    }
  }
  if (mixed) std::shuffle(bits.begin(), bits.end(), random);
  return bits;
}

struct Scales {
  std::vector<std::byte> wire;
  std::vector<BlockScale> blocks;

  explicit Scales(size_t count) : wire(2 * count + 1, std::byte{0xa5}), blocks(count) {}
};

void expect_equal(const Scales& got, const Scales& want, const std::string& what) {
  ASSERT_EQ(got.wire, want.wire) << what;
  for (size_t b = 0; b < want.blocks.size(); ++b) {
    ASSERT_EQ(float_bits(got.blocks[b].scale), float_bits(want.blocks[b].scale)) << what << b;
    ASSERT_EQ(got.blocks[b].pre, want.blocks[b].pre) << what << b;
    ASSERT_EQ(float_bits(got.blocks[b].inverse), float_bits(want.blocks[b].inverse)) << what << b;
  }
}

TEST(ElementScales, AreTheScalarOnesForEveryMagnitude) {
  for (ElementFormat format : formats()) {
    for (const ValueKind kind : kKinds) {
      format.kind = kind;
      format.block = format.rule == ScaleRule::kE4M3Tensor ? 16 : 32;
      complete_format(format);
      for (const bool mixed : {false, true}) {
        const std::vector<uint32_t> bits = maxima(mixed);
        for (const float tensor_scale : {0.0F, 0x1p-130F, 0x1p-117F, 0.01F, 3.0F, 0x1p100F}) {
          Scales want(bits.size());
          choose_scales(format, bits.data(), bits.size(), tensor_scale, want.wire.data(),
                        want.blocks.data());
          for (const int64_t target : available_targets()) {
            Scales got(bits.size());
            element_kernels_of(target).choose_scales(format, bits.data(), bits.size(), tensor_scale,
                                                     got.wire.data(), got.blocks.data());
            expect_equal(got, want,
                         std::string(target_name(target)) + ", tensor scale " +
                             std::to_string(tensor_scale) + ", block ");
          }
        }
      }
    }
  }
}

// Values of blocks whose magnitudes differ by any power of two, some not finite; the last block
// ends with `count`.
std::vector<float> tile_of(uint32_t block, size_t count, std::mt19937_64& random) {
  std::normal_distribution<float> normal;
  std::vector<float> tile(round_up(count, block) + kTilePad);
  for (size_t i = 0; i < count; ++i) {
    const auto exponent = static_cast<int>(i / block * 37 % 270) - 140;
    tile[i] = std::ldexp(normal(random), exponent);
    if (random() % 1000 == 0) tile[i] = std::numeric_limits<float>::quiet_NaN();
    if (random() % 1000 == 1) tile[i] = -std::numeric_limits<float>::infinity();
  }
  for (size_t i = 0; i < std::min<size_t>(block, count); ++i) tile[i] = 0;
  return tile;
}

TEST(ElementScales, MeansAreTheScalarOnes) {
  std::mt19937_64 random(kSeed);
  ElementFormat format = sign_format();
  for (const ValueKind kind : kKinds) {
    for (uint32_t block = 32; block <= 1024; block *= 2) {
      format.kind = kind;
      format.block = block;
      complete_format(format);
      for (const size_t count : {size_t{1}, size_t{31}, size_t{1000}, size_t{3071}, kTileValues}) {
        const std::vector<float> tile = tile_of(block, count, random);
        const size_t blocks = block_count(format, count);
        std::vector<uint32_t> bits(blocks);
        std::vector<float> sums(blocks);
        const ElementKernels& reference = element_reference();
        reference.maxima(tile.data(), block, blocks, bits.data());
        reference.magnitudes(tile.data(), block, blocks, sums.data());
        Scales want(blocks);
        choose_means(format, bits.data(), sums.data(), count, want.wire.data(), want.blocks.data());
        for (const int64_t target : available_targets()) {
          const ElementKernels& kernels = element_kernels_of(target);
          std::vector<float> got_sums(blocks);
          kernels.magnitudes(tile.data(), block, blocks, got_sums.data());
          for (size_t b = 0; b < blocks; ++b) {
            if (bits[b] >= kFloatInfinity) continue;  // NaN in one order or another
            ASSERT_EQ(float_bits(got_sums[b]), float_bits(sums[b])) << target_name(target) << b;
          }
          Scales got(blocks);
          kernels.choose_means(format, bits.data(), sums.data(), count, got.wire.data(),
                               got.blocks.data());
          expect_equal(got, want, std::string(target_name(target)) + ", block ");
        }
      }
    }
  }
}

TEST(ElementScales, MaximaOfTransformsAreTheScalarOnes) {
  std::mt19937_64 random(kSeed);
  for (uint32_t block = 16; block <= kBlockMax; block *= 2) {
    // From one value on: they need not be aligned.
    const std::vector<float> tile = tile_of(block, kTileValues, random);
    const size_t blocks = kTileValues / block - 1;
    const float* const signs = hadamard_signs(block).forward.data();
    std::vector<float> turned(kTileMemory);
    element_reference().rotate({signs}, tile.data() + 1, block, blocks * block, turned.data());
    std::vector<uint32_t> want(blocks);
    element_reference().maxima(turned.data(), block, blocks, want.data());
    for (uint32_t& bits : want) bits = std::min(bits, kFloatInfinity);
    EXPECT_NE(std::count(want.begin(), want.end(), kFloatInfinity), 0) << block;
    EXPECT_NE(std::count(want.begin(), want.end(), kFloatInfinity), want.size()) << block;
    for (const int64_t target : available_targets()) {
      std::vector<uint32_t> got(blocks);
      element_kernels_of(target).rotated_maxima(signs, tile.data() + 1, block, blocks, 0,
                                                got.data());
      ASSERT_EQ(got, want) << target_name(target) << ", blocks of " << block;
    }
  }
}

// Blocks of which no bound is above the largest value but by roundings: signs as in one row of the
// transform, so that all magnitudes meet in one sum.
std::vector<float> aligned_tile(uint32_t block, std::mt19937_64& random) {
  std::uniform_real_distribution<float> size(0.5F, 1.5F);
  const float* const signs = hadamard_signs(block).forward.data();
  std::vector<float> tile(kTileMemory);
  for (size_t first = 0; first < kTileValues; first += block) {
    const uint64_t row = random() % block;
    for (size_t i = 0; i < block; ++i) {
      const bool is_minus = std::popcount(row & i) % 2 != 0;
      tile[first + i] = (is_minus ? -1.0F : 1.0F) * signs[i] * size(random);
    }
  }
  return tile;
}

TEST(ElementScales, WhatMaximaOfTransformsLeaveOutIsNotAboveTheLeast) {
  std::mt19937_64 random(kSeed);
  std::normal_distribution<float> normal;
  std::vector<float> bell(kTileMemory);
  std::vector<float> spikes(kTileMemory);
  for (uint32_t block = 128; block <= kBlockMax; block *= 2) {
    std::generate(bell.begin(), bell.end(), [&] { return normal(random); });
    for (size_t i = 0; i < kTileValues; ++i) {
      spikes[i] = i % block == 5 ? std::ldexp(normal(random), static_cast<int>(i / 10) - 140) : 0;
    }
    const float* const signs = hadamard_signs(block).forward.data();
    const size_t blocks = kTileValues / block;
    for (const std::vector<float>& tile :
         {bell, spikes, aligned_tile(block, random), tile_of(block, kTileValues, random)}) {
      std::vector<uint32_t> all(blocks);
      element_reference().rotated_maxima(signs, tile.data(), block, blocks, 0, all.data());
      std::vector<uint32_t> least = {1, kFloatInfinity};
      for (const uint32_t bits : all) {
        if (bits > 0 && bits < kFloatInfinity)
          least.insert(least.end(), {bits - 1, bits, bits + 1});
      }
      for (const uint32_t bits : least) {
        std::vector<uint32_t> want(blocks);
        std::transform(all.begin(), all.end(), want.begin(),
                       [=](uint32_t found) { return std::max(found, bits); });
        for (const int64_t target : available_targets()) {
          std::vector<uint32_t> got(blocks);
          element_kernels_of(target).rotated_maxima(signs, tile.data(), block, blocks, bits,
                                                    got.data());
          ASSERT_EQ(got, want) << target_name(target) << ", blocks of " << block << ", " << bits;
        }
      }
    }
  }
}

// A few values off each level that there is, both signs, and what is beyond the last one.
TEST(ElementCodes, OfMinifloatsAreTheScalarOnesAroundEveryLevel) {
  for (ElementFormat format : {fp8e4m3_format(), fp8e5m2_format(), mxfp6e2m3_format(),
                               mxfp6e3m2_format(), mxfp4_format()}) {
    format.block = 32;
    complete_format(format);
    std::vector<float> values;
    for (uint32_t code = 0; code < 1U << format.bits; ++code) {
      const float level = format.levels[code];
      if (!(std::abs(level) <= format.level_max)) continue;
      const uint32_t bits = float_bits(level);
      for (const uint32_t off : {0U, 1U, ~0U, 0x80000U, 0x7ffffU, 0x100000U, 0x200000U, 0xfffffU}) {
        values.push_back(float_from_bits((bits & 0x7fffffffU) == 0 ? bits : bits + off));
      }
      values.push_back(std::ldexp(level, -3));
    }
    values.push_back(2 * format.level_max);
    values.push_back(-2 * format.level_max);
    values.resize(round_up(values.size(), kTilePad));
    ASSERT_LE(values.size(), kTileValues);
    const std::vector<BlockScale> scales(values.size() / 32, make_block_scale(1.0F));
    std::vector<uint8_t> want(values.size());
    element_reference().quantize(format, values.data(), values.size(), scales.data(), want.data());
    for (const int64_t target : available_targets()) {
      std::vector<uint8_t> got(values.size());
      element_kernels_of(target).quantize(format, values.data(), values.size(), scales.data(),
                                          got.data());
      ASSERT_EQ(got, want) << target_name(target) << ", " << format.bits << " bits, "
                           << format.mantissa_bits << " of mantissa";
    }
  }
}

// Sums so far apart that their order shows, an overflow, and NaN.
TEST(SquaredErrors, AreTheScalarOnesInEveryOrderOfMagnitude) {
  std::mt19937_64 random(kSeed);
  std::normal_distribution<float> normal;
  constexpr size_t kCount = 4096;
  std::vector<float> values(kCount);
  std::vector<float> decoded(kCount);
  for (size_t i = 0; i < kCount; ++i) {
    const auto exponent = static_cast<int>(random() % 60) - (i < kCount / 2 ? 30 : 98);
    values[i] = std::ldexp(normal(random), exponent);
    decoded[i] = values[i] * (1 + 0.1F * normal(random));
  }
  values[7] = std::numeric_limits<float>::quiet_NaN();
  values[1500] = std::numeric_limits<float>::max();
  decoded[1500] = -values[1500];
  for (uint32_t block = 32; block <= 1024; block *= 2) {
    const size_t blocks = kCount / block;
    std::vector<double> want(blocks);
    element_reference().squared_errors(values.data(), decoded.data(), block, blocks, want.data());
    EXPECT_EQ(want[0], 0);
    EXPECT_EQ(want[1500 / block], 0);
    EXPECT_GT(want[blocks - 1], 0);
    for (const int64_t target : available_targets()) {
      std::vector<double> got(blocks);
      element_kernels_of(target).squared_errors(values.data(), decoded.data(), block, blocks,
                                                got.data());
      EXPECT_EQ(got, want) << target_name(target) << ", blocks of " << block;
    }
  }
}

// All 256 bytes in a row, and those without what no vector reads together.
std::vector<std::byte> scale_bytes_of(bool has_specials) {
  std::vector<std::byte> bytes;
  for (uint32_t byte = 0; byte < 256; ++byte) {
    if (has_specials || (byte >= 8 && byte < 0x7f)) bytes.push_back(static_cast<std::byte>(byte));
  }
  for (uint32_t byte = 1; byte <= 48; ++byte) bytes.push_back(static_cast<std::byte>(byte));
  return bytes;
}

TEST(ElementScales, EveryByteIsReadAsTheReferenceDoes) {
  ElementFormat fine = mxint8_format();
  complete_format(fine);
  ElementFormat power = mxfp8e4m3_format();
  complete_format(power);
  ElementFormat tensor = nvfp4_format();
  complete_format(tensor);
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  for (const ElementFormat* format : {&fine, &power, &tensor}) {
    for (const float tensor_scale : {0.0F, 0x1p-140F, 0.37F, 3e38F, kNan}) {
      for (const bool has_specials : {false, true}) {
        const std::vector<std::byte> wire = scale_bytes_of(has_specials);
        std::vector<BlockScale> want(wire.size());
        element_reference().read_scales(*format, wire.data(), wire.size(), tensor_scale,
                                        want.data());
        for (const int64_t target : available_targets()) {
          std::vector<BlockScale> got(wire.size());
          element_kernels_of(target).read_scales(*format, wire.data(), wire.size(), tensor_scale,
                                                 got.data());
          for (size_t b = 0; b < wire.size(); ++b) {
            ASSERT_EQ(float_bits(got[b].scale), float_bits(want[b].scale))
                << target_name(target) << ", byte " << static_cast<int>(wire[b]) << ", tensor "
                << tensor_scale;
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace tersum
