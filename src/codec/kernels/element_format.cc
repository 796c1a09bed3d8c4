#include "codec/kernels/element_format.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <numeric>

#include "base/check.h"

namespace tersum {
namespace {

constexpr int kE8M0Bias = 127;
constexpr int kE8M0Last = 254;  // 255 stands for NaN
constexpr std::byte kE8M0Nan{0xff};
constexpr std::byte kE4M3Nan{0x7f};
constexpr uint8_t kE4M3Last = 0x7e;  // 448

int floor_log2(float value) {
  int exponent = 0;
  std::frexp(value, &exponent);
  return exponent - 1;
}

float bf16_up(const ElementFormat& format, float absmax) {
  // The quotient itself is rounded, so the scale may still be a step short of absmax.
  uint32_t bits = (float_bits(absmax / format.level_max) + 0xffffu) & 0xffff0000u;
  if (format.level_max * float_from_bits(bits) < absmax) bits += 0x10000u;
  return std::min(float_from_bits(bits), format.scale_max);
}

// floor(log2 value) of a positive float32, without a call where it is normal.
int exponent_of(float value) {
  const auto field = static_cast<int>(float_bits(value) >> 23);
  return field > 0 ? field - 127 : floor_log2(value);
}

// 2^exponent, for any exponent that float32 has.
float power_of_two(int exponent) {
  if (exponent >= -126) return float_from_bits(static_cast<uint32_t>(exponent + 127) << 23);
  return std::ldexp(1.0F, exponent);
}

int e8m0_byte(const ElementFormat& format, float absmax) {
  if (absmax == 0) return 0;
  int exponent = exponent_of(absmax) - exponent_of(format.level_max);
  const bool up = format.rule == ScaleRule::kE8M0Up;
  // In double, where neither end of the range gets in the way.
  const double reach = double{format.level_max} * double{power_of_two(std::max(exponent, -149))};
  if (up && reach < double{absmax}) ++exponent;
  exponent = std::min(exponent, exponent_of(format.scale_max));
  // The scale holds the format's own exponent, the byte does not.
  return std::clamp(exponent - format.scale_exponent + kE8M0Bias, 0, kE8M0Last);
}

float e8m0_value(const ElementFormat& format, std::byte byte) {
  if (byte == kE8M0Nan) return float_from_bits(kFloatNan);
  return power_of_two(static_cast<int>(byte) - kE8M0Bias + format.scale_exponent);
}

// The e4m3 number nearest to `value` >= 0, a tie to the even one, at most the largest.
uint8_t nearest_e4m3(float value) {
  constexpr float kLeastNormal = 0x1p-6F;
  constexpr uint32_t kRebias = 120U << 3;  // an exponent field of 1 is 2^-6
  if (value >= 448) return kE4M3Last;
  if (value < kLeastNormal) return static_cast<uint8_t>(std::lrint(value * 512));
  const uint32_t bits = float_bits(value);
  return static_cast<uint8_t>(((bits + 0x7ffffU + ((bits >> 20) & 1U)) >> 20) - kRebias);
}

constexpr std::array<float, 256> make_e4m3_values() {
  std::array<float, 256> values{};
  for (uint32_t bits = 0; bits < 256; ++bits) {
    const uint32_t exponent = (bits >> 3) & 15U;
    const uint32_t mantissa = bits & 7U;
    const float magnitude = exponent == 0
                                ? static_cast<float>(mantissa) * 0x1p-9F
                                : std::bit_cast<float>((exponent + 120U) << 23 | mantissa << 20);
    values[bits] = (bits & 0x80U) != 0 ? -magnitude : magnitude;
  }
  values[0x7f] = values[0xff] = std::bit_cast<float>(kFloatNan);
  return values;
}

constexpr std::array<float, 256> kE4M3Values = make_e4m3_values();

void write_nan_scale(const ElementFormat& format, std::byte* wire) {
  switch (format.rule) {
    case ScaleRule::kBf16Up:
    case ScaleRule::kBf16Mean:
      store_unaligned(wire, kBf16Nan);
      return;
    case ScaleRule::kE8M0Up:
    case ScaleRule::kE8M0Floor:
      *wire = kE8M0Nan;
      return;
    case ScaleRule::kE4M3Tensor:
      *wire = kE4M3Nan;
      return;
    case ScaleRule::kSlice:
      return;
  }
}

void write_bf16(float scale, std::byte* wire) {
  store_unaligned(wire, static_cast<uint16_t>(float_bits(scale) >> 16));
}

}  // namespace

size_t code_bytes(const ElementFormat& format, size_t count) {
  const size_t groups = count / group_values(format.packing);
  const size_t rest = count % group_values(format.packing);
  switch (format.packing) {
    case Packing::kBytes:
      return count;
    case Packing::kNibbles:
      return groups * kNibbleGroupBytes + (rest + 1) / 2;
    case Packing::kPlanes:
      return format.bits * (groups * kPlaneGroup / 8 + (rest + 7) / 8);
    case Packing::kTriples:
      return kTripleBits * (groups * kPlaneGroup / 8 + ((rest + 2) / 3 + 7) / 8);
  }
  return 0;
}

void complete_format(ElementFormat& format) {
  TERSUM_CHECK(std::has_single_bit(format.block) && format.block <= kBlockMax);
  const bool whole_bytes = format.packing == Packing::kBytes;
  const auto group = static_cast<uint32_t>(whole_bytes ? 1 : group_values(format.packing));
  format.granule = std::lcm(format.block, group);
  format.overflow_bits = overflow_bits_of(format.kind);
  const double largest = float_from_bits(format.overflow_bits - 1);
  // One step of the scale's own grid down until the product is a finite number of the value type:
  // powers of two or bf16, at most 2^127, whose reciprocal is exact.
  const bool e8m0 = format.rule == ScaleRule::kE8M0Up || format.rule == ScaleRule::kE8M0Floor;
  const uint32_t step = e8m0 ? 0x800000u : 0x10000u;
  uint32_t bits = float_bits(static_cast<float>(largest / double{format.level_max}));
  bits = std::min(bits, float_bits(0x1p127F)) & ~(step - 1);
  while (double{float_from_bits(bits)} * format.level_max > largest) bits -= step;
  format.scale_max = float_from_bits(bits);
  if (format.family == ElementFamily::kMinifloat) {
    format.number_mask = static_cast<uint8_t>((1U << (format.bits - 1)) - 1);
  }
  const auto special = std::find_if_not(format.levels.begin(), format.levels.end(),
                                        [](float level) { return std::isfinite(level); });
  format.numbers = static_cast<uint32_t>(special - format.levels.begin());
  // Nibbles are decoded without a look at them.
  TERSUM_CHECK(format.packing != Packing::kNibbles || format.numbers >= 16);
}

float choose_scale(const ElementFormat& format, uint32_t absmax_bits, float tensor_scale,
                   std::byte* wire) {
  if (absmax_bits >= format.overflow_bits) {
    write_nan_scale(format, wire);
    return float_from_bits(kFloatNan);
  }
  const float absmax = float_from_bits(absmax_bits);
  switch (format.rule) {
    case ScaleRule::kBf16Up:
    case ScaleRule::kBf16Mean: {
      const float scale = bf16_up(format, absmax);
      write_bf16(scale, wire);
      return scale;
    }
    case ScaleRule::kE8M0Up:
    case ScaleRule::kE8M0Floor:
      *wire = static_cast<std::byte>(e8m0_byte(format, absmax));
      return e8m0_value(format, *wire);
    case ScaleRule::kE4M3Tensor:
      *wire = static_cast<std::byte>(
          tensor_scale > 0 ? nearest_e4m3(absmax / format.level_max / tensor_scale) : 0);
      return e4m3_value(static_cast<uint8_t>(*wire)) * tensor_scale;
    case ScaleRule::kSlice:
      return tensor_scale;
  }
  return 0;
}

void choose_scales(const ElementFormat& format, const uint32_t* absmax_bits, size_t blocks,
                   float tensor_scale, std::byte* wire, BlockScale* scales) {
  const size_t bytes = scale_bytes(format.rule);
  for (size_t b = 0; b < blocks; ++b) {
    scales[b] =
        make_block_scale(choose_scale(format, absmax_bits[b], tensor_scale, wire + b * bytes));
  }
}

void choose_means(const ElementFormat& format, const uint32_t* absmax_bits, const float* sums,
                  size_t count, std::byte* wire, BlockScale* scales) {
  for (size_t b = 0; b < block_count(format, count); ++b) {
    const size_t values = std::min<size_t>(format.block, count - b * format.block);
    if (absmax_bits[b] >= format.overflow_bits) {
      write_nan_scale(format, wire + 2 * b);
      scales[b] = make_block_scale(float_from_bits(kFloatNan));
      continue;
    }
    const float mean = sums[b] * (1 / (kMeanFactor * static_cast<float>(values)));
    const float scale = std::min(bf16_to_float(float_to_bf16(mean)), format.scale_max);
    write_bf16(scale, wire + 2 * b);
    scales[b] = make_block_scale(scale);
  }
}

float read_scale(const ElementFormat& format, const std::byte* wire, float tensor_scale) {
  float scale = 0;
  switch (format.rule) {
    case ScaleRule::kBf16Up:
    case ScaleRule::kBf16Mean:
      scale = load_scale(wire);
      break;
    case ScaleRule::kE8M0Up:
    case ScaleRule::kE8M0Floor:
      return e8m0_value(format, *wire);
    case ScaleRule::kE4M3Tensor:
      scale = e4m3_value(static_cast<uint8_t>(*wire)) * tensor_scale;
      break;
    case ScaleRule::kSlice:
      return tensor_scale;
  }
  const bool negative = (float_bits(scale) & kFloatSignBit) != 0;
  return negative ? float_from_bits(kFloatNan) : canonical_nan(scale);
}

void read_scales(const ElementFormat& format, const std::byte* wire, size_t blocks,
                 float tensor_scale, BlockScale* scales) {
  if (format.rule == ScaleRule::kE4M3Tensor) {
    // Of a sign nothing but NaN is left, and -0 is one, too.
    for (size_t b = 0; b < blocks; ++b) {
      const auto byte = static_cast<uint8_t>(wire[b]);
      const float scale = kE4M3Values[byte | (byte >> 7) * 0x7fU] * tensor_scale;
      scales[b].scale = canonical_nan(scale);
    }
    return;
  }
  if (scale_bytes(format.rule) == 2) {
    for (size_t b = 0; b < blocks; ++b) {
      const uint32_t bits = uint32_t{load_unaligned<uint16_t>(wire + 2 * b)} << 16;
      scales[b].scale = float_from_bits(bits >= kFloatInfinity ? kFloatNan : bits);
    }
    return;
  }
  const size_t bytes = scale_bytes(format.rule);
  for (size_t b = 0; b < blocks; ++b) {
    scales[b].scale = read_scale(format, wire + b * bytes, tensor_scale);
  }
}

float choose_tensor_scale(const ElementFormat& format, uint32_t absmax_bits) {
  const float largest_scale = e4m3_value(kE4M3Last);
  const float scale = float_from_bits(absmax_bits) / (format.level_max * largest_scale);
  // A decoder's two products round, too: next to the largest magnitude they may go beyond it.
  const uint32_t top = float_bits(largest_scale * scale * format.level_max);
  return top < format.overflow_bits ? scale : float_from_bits(float_bits(scale) - 1);
}

float read_tensor_scale(const std::byte* wire) {
  const auto bits = load_unaligned<uint32_t>(wire);
  return bits >= kFloatInfinity ? float_from_bits(kFloatNan) : float_from_bits(bits);
}

float e4m3_value(uint8_t bits) { return kE4M3Values[bits]; }

}  // namespace tersum
