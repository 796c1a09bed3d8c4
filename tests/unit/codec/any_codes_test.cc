// Formats with a Hadamard transform: any codes, NaN and infinities among them, under any scales
// give the bits of the scalar reference, which sums products as float32, on every instruction set,
// whether the values are alone or added to others.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "codec/channel_state.h"
#include "codec/codec.h"
#include "codec/kernels/dispatch.h"
#include "codec/kernels/element_format.h"
#include "codec/kernels/numbers.h"
#include "nasty_values.h"

namespace tersum {
namespace {

using Bytes = std::vector<std::byte>;

constexpr size_t kCount = 7001;  // a tile, and a part of one that ends within a block
constexpr size_t kChannels = 96;
constexpr DataType kTypes[] = {DataType::kFloat32, DataType::kBFloat16, DataType::kFloat16};

const Codec& codec_of(const std::string& spec, DataType type) {
  return *find_codec(spec, type, ReduceOp::kSum).value();
}

// Byte `at` of codes that are all the most negative ones, or all the largest.
std::byte extreme_byte(const ElementFormat& format, size_t at, bool is_negative) {
  if (format.packing == Packing::kBytes && format.family == ElementFamily::kMinifloat) {
    // The last number.
    const auto code = static_cast<uint8_t>(std::min(format.numbers - 1, 0x7fU));
    return std::byte{is_negative ? static_cast<uint8_t>(code | 0x80U) : code};
  }
  if (format.packing == Packing::kBytes) {
    return std::byte{is_negative ? uint8_t{0x80} : uint8_t{0x7f}};
  }
  if (format.packing == Packing::kNibbles) {
    return std::byte{is_negative ? uint8_t{0x88} : uint8_t{0x77}};
  }
  const size_t plane = at / (kPlaneGroup / 8) % format.bits;
  const bool is_sign = plane + 1 == format.bits;
  return std::byte{is_sign == is_negative ? uint8_t{0xff} : uint8_t{0}};
}

// Runs of extreme codes, whose sums are the largest there are, and of any, under scales with all
// bits of their mantissa, next to nothing, denormal, and 0; of every fourth payload also NaN,
// infinite, negative, and so large that products with a tensor's scale or a code are infinite.
Bytes any_payload(const Codec& codec, uint64_t seed) {
  constexpr std::array<uint16_t, 10> kScales = {0x3fff, 0x3f81, 0x00ff, 0x0001, 0,
                                                0x2f7f, 0x7fc1, 0x7f80, 0x8001, 0x7f7f};
  constexpr std::array<uint8_t, 6> kPowers = {120, 1, 0, 127, 255, 126};
  constexpr size_t kTameScales = 6;
  constexpr size_t kTamePowers = 4;
  const bool is_wild = seed % 4 == 3;
  std::mt19937_64 random(seed);
  const ElementFormat& format = *codec.element_format();
  Bytes wire(codec.wire_bytes(kCount));
  const size_t codes = codes_offset(format, kCount);
  const size_t run = size_t{100} << seed % 6;
  // Every second payload of bytes: what is no number takes another way.
  const bool has_numbers_only = format.packing == Packing::kBytes && seed % 2 == 1;
  for (size_t i = codes; i < wire.size(); ++i) {
    const size_t mood = i / run % 3;
    wire[i] =
        mood < 2 ? extreme_byte(format, i - codes, mood == 0) : static_cast<std::byte>(random());
    if (has_numbers_only &&
        (static_cast<uint8_t>(wire[i]) & format.number_mask) >= format.numbers) {
      wire[i] = std::byte{1};
    }
  }
  if (tensor_scale_bytes(format.rule) > 0) store_unaligned(wire.data(), is_wild ? 3e38F : 0.37F);
  std::byte* const scales = wire.data() + scales_offset(format);
  for (size_t b = 0; b < block_count(format, kCount); ++b) {
    // Whole tiles of ordinary scales, too, which are read together.
    const bool is_plain = !is_wild && seed % 2 == 1 && b % 512 < 300;
    if (scale_bytes(format.rule) == 1) {
      scales[b] =
          std::byte{kPowers[is_plain ? 0 : random() % (is_wild ? kPowers.size() : kTamePowers)]};
    } else {
      store_unaligned(scales + 2 * b,
                      kScales[is_plain ? 1 : random() % (is_wild ? kScales.size() : kTameScales)]);
    }
  }
  return wire;
}

struct Decoded {
  Bytes values;
  Bytes sum;
  Bytes in_place;
  Bytes mean_in_place;
  friend bool operator==(const Decoded&, const Decoded&) = default;
};

Decoded decode(const Codec& codec, const Bytes& wire, const Bytes& own, const SlicePlace& place) {
  const std::array<const std::byte*, 1> wires = {wire.data()};
  Decoded out{Bytes(own.size()), Bytes(own.size()), own, own};
  codec.decode(wire.data(), kCount, out.values.data(), place);
  codec.combine(wires, own.data(), 0, kCount, {}, nullptr, out.sum.data(), place);
  codec.combine(wires, out.in_place.data(), 1, kCount, {}, nullptr, out.in_place.data(), place);
  codec.combine(wires, out.mean_in_place.data(), 1, kCount, {ReduceOp::kAverage, 2}, nullptr,
                out.mean_in_place.data(), place);
  return out;
}

class AnyCodes : public testing::TestWithParam<const char*> {};

TEST_P(AnyCodes, GiveTheBitsOfTheReference) {
  ChannelState state(kChannels);
  const std::vector<float> sums = nasty_floats(1, 64 * kChannels, 1);
  state.observe(sums.data(), sums.size(), DataType::kFloat32, 1);
  for (const DataType type : kTypes) {
    const Codec& codec = codec_of(GetParam(), type);
    const SlicePlace place{.factors = codec.flattens() ? state.factors() : nullptr};
    for (uint64_t seed = 0; seed < 8; ++seed) {
      const Bytes wire = any_payload(codec, seed);
      const Bytes own = nasty_elements(seed, kCount, type);
      force_target(kReferenceTarget);
      const Decoded expected = decode(codec, wire, own, place);
      for (const int64_t target : available_targets()) {
        force_target(target);
        EXPECT_EQ(decode(codec, wire, own, place), expected)
            << codec.spec().to_string() << ", " << target_name(target) << ", seed " << seed;
      }
      unforce_target();
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    Formats, AnyCodes,
    testing::Values("int8/32+hadamard", "int8/64+flatten", "int8/128+hadamard", "int8/256+flatten",
                    "int8/512+hadamard", "int8/1024+flatten", "int7/1024+hadamard",
                    "int6/128+flatten", "int6/1024+hadamard", "int5/32+flatten", "int4/64+hadamard",
                    "int4/1024+flatten", "int3/256+hadamard", "int2/32+hadamard", "mxint8+hadamard",
                    "fp8e4m3/128+hadamard", "fp8e5m2/256+flatten", "mxfp8:e4m3+flatten",
                    "mxfp8:e5m2+hadamard", "mxfp6:e2m3+hadamard", "mxfp6:e3m2+flatten",
                    "mxfp4+hadamard", "nvfp4+hadamard", "nvfp4+flatten", "nf4/64+flatten",
                    "nf4/1024+hadamard", "five/32+hadamard", "five/128+flatten", "int1/64+hadamard",
                    "int6/128", "int2/32", "int1/64", "five/32", "nf4/64", "mxint8", "fp8e4m3/128",
                    "mxfp8:e4m3", "mxfp8:e5m2", "mxfp6:e3m2", "mxfp4", "nvfp4"));

}  // namespace
}  // namespace tersum
