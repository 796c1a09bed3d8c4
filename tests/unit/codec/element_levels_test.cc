// Every code of every minifloat format, decoded on every instruction set: those that are numbers by
// arithmetic, tiles that hold NaN or an infinity by the table.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
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

}  // namespace
}  // namespace tersum
