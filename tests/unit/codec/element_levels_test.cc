// Every code of every minifloat format, decoded on every instruction set: those that are numbers by
// arithmetic, tiles that hold NaN or an infinity by the table; and every pair of nibbles where it
// lies on the wire.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <iterator>
#include <vector>

#include "codec/element_formats.h"
#include "codec/kernels/dispatch.h"
#include "codec/kernels/element_kernels.h"
#include "codec/kernels/element_reference.h"
#include "codec/kernels/numbers.h"

namespace tersum {
namespace {

constexpr uint32_t kBlock = 32;

ElementFormat in_blocks(ElementFormat format) {
  format.block = kBlock;
  complete_format(format);
  return format;
}

struct Decoded {
  alignas(64) float values[kTileMemory] = {};
  alignas(64) float sums[kTileMemory] = {};
};

Decoded decode_with(const ElementKernels& kernels, const ElementFormat& format,
                    const std::vector<uint8_t>& codes) {
  Decoded out;
  std::fill_n(out.sums, codes.size(), 0.375F);
  std::vector<BlockScale> scales(codes.size() / kBlock);
  for (size_t b = 0; b < scales.size(); ++b) {
    scales[b] = make_block_scale(std::ldexp(1.5F, static_cast<int>(b) - 2));
  }
  alignas(64) uint8_t tile[kTileMemory] = {};
  std::copy(codes.begin(), codes.end(), tile);
  kernels.dequantize(format, tile, codes.size(), scales.data(), out.values);
  kernels.dequantize_add(format, tile, codes.size(), scales.data(), out.sums);
  return out;
}

void expect_as_reference(const ElementFormat& format, const std::vector<uint8_t>& codes) {
  const Decoded want = decode_with(element_reference(), format, codes);
  for (const int64_t target : available_targets()) {
    const Decoded got = decode_with(element_kernels_of(target), format, codes);
    for (size_t i = 0; i < codes.size(); ++i) {
      ASSERT_EQ(float_bits(got.values[i]), float_bits(want.values[i]))
          << target_name(target) << ", code " << int{codes[i]} << " of " << format.bits << " bits";
      ASSERT_EQ(float_bits(got.sums[i]), float_bits(want.sums[i]))
          << target_name(target) << ", code " << int{codes[i]} << " of " << format.bits << " bits";
    }
  }
}

const ElementFormat kMinifloats[] = {in_blocks(fp8e4m3_format()),   in_blocks(fp8e5m2_format()),
                                     in_blocks(mxfp8e4m3_format()), in_blocks(mxfp8e5m2_format()),
                                     in_blocks(mxfp6e2m3_format()), in_blocks(mxfp6e3m2_format()),
                                     in_blocks(mxfp4_format())};

std::vector<uint8_t> codes_where(const ElementFormat& format, bool finite) {
  std::vector<uint8_t> codes;
  for (uint32_t code = 0; code < 1U << format.bits; ++code) {
    const bool is_number = std::isfinite(format.levels[code]);
    if (is_number || !finite) codes.push_back(static_cast<uint8_t>(code));
  }
  while (codes.size() % kBlock != 0) codes.push_back(0);
  return codes;
}

TEST(ElementLevels, EveryNumberIsTheTables) {
  for (const ElementFormat& format : kMinifloats) {
    expect_as_reference(format, codes_where(format, true));
  }
}

TEST(ElementLevels, EveryCodeIsTheTables) {
  for (const ElementFormat& format : kMinifloats) {
    expect_as_reference(format, codes_where(format, false));
  }
}

// One that is no number, anywhere in a tile of numbers: also behind the last whole vector of codes.
TEST(ElementLevels, OneSpecialCodeIsSeenWhereverItIs) {
  for (const ElementFormat& format : kMinifloats) {
    for (uint32_t code = 0; code < 1U << format.bits; ++code) {
      if (std::isfinite(format.levels[code])) continue;
      for (const size_t place : {0UL, 31UL, 63UL, 64UL, 95UL}) {
        std::vector<uint8_t> codes(3 * size_t{kBlock}, 9);
        codes[place] = static_cast<uint8_t>(code);
        expect_as_reference(format, codes);
      }
    }
  }
}

ElementFormat with_block(ElementFormat format, uint32_t block) {
  format.block = block;
  complete_format(format);
  return format;
}

// Bytes and values unaligned, as arrays of a caller may be. With `terms` the sum is put where they
// lie.
std::vector<float> decode_nibbles(const ElementKernels& kernels, const ElementFormat& format,
                                  const std::vector<BlockScale>& scales, size_t count,
                                  const std::vector<float>& terms) {
  std::vector<std::byte> wire(1 + count / 2);
  for (size_t i = 0; i < count / 2; ++i) wire[1 + i] = static_cast<std::byte>(i * 7);
  std::vector<float> out(count + 2, 4.0F);
  std::copy(terms.begin(), terms.end(), out.begin() + 1);
  const float* const own = terms.empty() ? nullptr : out.data() + 1;
  kernels.dequantize_wire(format, wire.data() + 1, count, scales.data(), own, out.data() + 1);
  EXPECT_EQ(out.front(), 4.0F) << "written before the beginning";
  EXPECT_EQ(out.back(), 4.0F) << "written beyond the end";
  return out;
}

TEST(ElementLevels, EveryPairOfNibblesIsTheTables) {
  const float kinds[] = {1.5F, 0.0F, 1e-42F, 3e38F, float_from_bits(kFloatNan), 0.37F};
  const float nan = float_from_bits(0xffc12345);
  for (const ElementFormat& base :
       {integer_format<4>(), mxfp4_format(), nvfp4_format(), nf4_format()}) {
    for (const uint32_t block : {16U, 32U, 64U, 128U, 512U, 1024U}) {
      const ElementFormat format = with_block(base, block);
      for (const size_t count : {std::max<size_t>(block, 32), size_t{1024}, size_t{3072}}) {
        std::vector<BlockScale> scales(count / block);
        for (size_t b = 0; b < scales.size(); ++b) {
          scales[b].scale = kinds[b % std::size(kinds)];
        }
        std::vector<float> terms(count);
        for (size_t i = 0; i < count; ++i) terms[i] = i % 37 == 5 ? nan : float(i) - 99.5F;
        for (const std::vector<float>& own : {std::vector<float>(), terms}) {
          const auto want = decode_nibbles(element_reference(), format, scales, count, own);
          for (const int64_t target : available_targets()) {
            const auto got = decode_nibbles(element_kernels_of(target), format, scales, count, own);
            EXPECT_EQ(std::memcmp(got.data(), want.data(), got.size() * sizeof(float)), 0)
                << target_name(target) << ", block " << block << ", " << count << " values"
                << (own.empty() ? "" : " added");
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace tersum
