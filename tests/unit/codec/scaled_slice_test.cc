// Slices under a tensor scale, longer than what is kept of them between the scale and the codes:
// where each of its tiles alone has the same scale, each is coded as it is alone.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <limits>
#include <string>
#include <vector>

#include "codec/codec.h"
#include "codec/kernels/element_format.h"
#include "codec/kernels/element_kernels.h"
#include "normal_floats.h"

namespace tersum {
namespace {

using Bytes = std::vector<std::byte>;

constexpr size_t kTiles = 27;
constexpr size_t kCount = (kTiles - 1) * kTileValues + 352;
constexpr size_t kLargeBlock = 64;

size_t values_in(size_t tile) { return std::min(kTileValues, kCount - tile * kTileValues); }

// Normal values, and in each tile at the same place the same values that are larger than all.
std::vector<float> tiles_of_one_maximum(uint64_t seed) {
  std::vector<float> values = normal_floats(seed, kCount);
  for (size_t tile = 0; tile < kTiles; ++tile) {
    float* const large = values.data() + tile * kTileValues + kLargeBlock;
    for (size_t i = 0; i < 16; ++i) large[i] = 40.0F + static_cast<float>(i);
  }
  return values;
}

struct Coded {
  Bytes wire;
  std::vector<float> values;
};

Coded combine(const Codec& codec, const Bytes& wire, const float* own, size_t count) {
  const std::array<const std::byte*, 1> wires = {wire.data()};
  Coded out{Bytes(codec.wire_bytes(count)), std::vector<float>(count)};
  codec.combine(wires, own, 0, count, {}, out.wire.data(), out.values.data(), {});
  return out;
}

Bytes encode(const Codec& codec, const float* values, size_t count) {
  Bytes wire(codec.wire_bytes(count));
  codec.encode(values, count, wire.data(), {});
  return wire;
}

// What the payload of all tiles holds of one, in the layout of a payload of its own.
Bytes part_of(const ElementFormat& format, const Bytes& wire, size_t tile) {
  const size_t first = tile * kTileValues;
  const size_t count = values_in(tile);
  const auto at = [&](size_t offset) { return wire.begin() + static_cast<std::ptrdiff_t>(offset); };
  Bytes part(wire.begin(), at(scales_offset(format)));
  const size_t scales = scales_offset(format) + first / format.block;
  part.insert(part.end(), at(scales), at(scales + block_count(format, count)));
  const size_t codes = codes_offset(format, kCount) + code_bytes(format, first);
  part.insert(part.end(), at(codes), at(codes + code_bytes(format, count)));
  return part;
}

class ScaledSliceOf : public testing::TestWithParam<const char*> {};

TEST_P(ScaledSliceOf, EachTileIsCodedAsAlone) {
  const Codec& codec = *find_codec(GetParam(), DataType::kFloat32, ReduceOp::kSum).value();
  const ElementFormat& format = *codec.element_format();
  const std::vector<float> own = tiles_of_one_maximum(1);
  const std::vector<float> other = tiles_of_one_maximum(2);
  const Bytes wire = encode(codec, own.data(), kCount);
  const Coded sum = combine(codec, encode(codec, other.data(), kCount), own.data(), kCount);
  for (size_t tile = 0; tile < kTiles; ++tile) {
    const size_t first = tile * kTileValues;
    const size_t count = values_in(tile);
    EXPECT_EQ(part_of(format, wire, tile), encode(codec, own.data() + first, count)) << tile;
    const Bytes others = encode(codec, other.data() + first, count);
    const Coded alone = combine(codec, others, own.data() + first, count);
    EXPECT_EQ(part_of(format, sum.wire, tile), alone.wire) << tile;
    EXPECT_TRUE(std::equal(alone.values.begin(), alone.values.end(),
                           sum.values.begin() + static_cast<std::ptrdiff_t>(first)))
        << tile;
  }
}

// The tensor's scale is that of the largest finite value, also of one beside a NaN or an infinity,
// wherever in the slice it is.
TEST(ScaledSlice, WhatIsNotFiniteLeavesTheScaleToItsBlock) {
  const Codec& codec = *find_codec("nvfp4", DataType::kFloat32, ReduceOp::kSum).value();
  for (const float lost :
       {std::numeric_limits<float>::quiet_NaN(), -std::numeric_limits<float>::infinity()}) {
    for (const size_t at : {size_t{0}, 5 * kTileValues + 17, kCount - 1}) {
      std::vector<float> values = normal_floats(3, kCount);
      values[at ^ 1U] = -1e6F;
      const Bytes plain = encode(codec, values.data(), kCount);
      values[at] = lost;
      const Bytes wire = encode(codec, values.data(), kCount);
      EXPECT_TRUE(std::equal(plain.begin(), plain.begin() + sizeof(float), wire.begin())) << at;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Formats, ScaledSliceOf, testing::Values("nvfp4", "nvfp4+hadamard"));

}  // namespace
}  // namespace tersum
