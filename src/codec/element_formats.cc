#include "codec/element_formats.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <span>

#include "base/check.h"

namespace tersum {
namespace {

// What follows from the levels of the codes that an encoder writes.
void describe_levels(ElementFormat& format, std::span<const float> sorted) {
  format.level_max = std::max(std::abs(sorted.front()), std::abs(sorted.back()));
  format.gap_max = 0;
  for (size_t i = 1; i < sorted.size(); ++i) {
    format.gap_max = std::max(format.gap_max, sorted[i] - sorted[i - 1]);
  }
}

void make_integer(uint32_t bits, ElementFormat& format) {
  format.family = ElementFamily::kInteger;
  format.bits = bits;
  format.code_max = (1 << (bits - 1)) - 1;
  format.packing = bits == 8 ? Packing::kBytes : Packing::kPlanes;
  if (bits == 4) format.packing = Packing::kNibbles;
  format.level_max = static_cast<float>(format.code_max);
  format.gap_max = 1;
  const int32_t codes = 1 << bits;
  for (int32_t code = 0; code < codes; ++code) {
    const int32_t value = code < codes / 2 ? code : code - codes;
    format.levels[static_cast<size_t>(code)] = static_cast<float>(value);
  }
}

// Sign, exponent and mantissa bits; the exponent's bias is 2^(exponent_bits - 1) - 1. `specials`:
// how many of the largest magnitudes are no numbers (1: NaN; 4: infinity and NaN).
struct MinifloatShape {
  uint32_t exponent_bits;
  uint32_t mantissa_bits;
  uint32_t specials;
};

float minifloat_level(const MinifloatShape& shape, uint32_t magnitude) {
  const int bias = (1 << (shape.exponent_bits - 1)) - 1;
  const auto mantissa_bits = static_cast<int>(shape.mantissa_bits);
  const int exponent = static_cast<int>(magnitude >> shape.mantissa_bits);
  const uint32_t one = 1U << shape.mantissa_bits;
  const uint32_t mantissa = magnitude & (one - 1);
  if (exponent == 0) return std::ldexp(static_cast<float>(mantissa), 1 - bias - mantissa_bits);
  return std::ldexp(static_cast<float>(one + mantissa), exponent - bias - mantissa_bits);
}

void make_minifloat(const MinifloatShape& shape, ElementFormat& format) {
  format.family = ElementFamily::kMinifloat;
  format.bits = 1 + shape.exponent_bits + shape.mantissa_bits;
  format.packing = format.bits == 8 ? Packing::kBytes : Packing::kPlanes;
  if (format.bits == 4) format.packing = Packing::kNibbles;
  format.mantissa_bits = static_cast<int32_t>(shape.mantissa_bits);
  format.least_exponent = 2 - (1 << (shape.exponent_bits - 1));
  const uint32_t half = 1U << (format.bits - 1);
  const uint32_t numbers = half - shape.specials;
  for (uint32_t magnitude = 0; magnitude < half; ++magnitude) {
    float level = minifloat_level(shape, magnitude);
    if (magnitude >= numbers) {
      const bool infinite = shape.specials > 1 && magnitude == numbers;
      level = infinite ? std::numeric_limits<float>::infinity() : float_from_bits(kFloatNan);
    }
    format.levels[magnitude] = level;
    format.levels[half + magnitude] = magnitude < numbers ? -level : level;
    if (std::isinf(level)) format.levels[half + magnitude] = -level;
  }
  describe_levels(format, {format.levels.data(), numbers});
}

constexpr MinifloatShape kE4M3 = {4, 3, 1};
constexpr MinifloatShape kE5M2 = {5, 2, 4};
constexpr MinifloatShape kE2M3 = {2, 3, 0};
constexpr MinifloatShape kE3M2 = {3, 2, 0};
constexpr MinifloatShape kE2M1 = {2, 1, 0};

ElementFormat scaled_minifloat(const MinifloatShape& shape, ScaleRule rule) {
  ElementFormat format;
  make_minifloat(shape, format);
  format.rule = rule;
  return format;
}

// `sorted`: codes 0, 1, …; thresholds lie midway, in float32.
void make_table(std::span<const float> sorted, ElementFormat& format) {
  TERSUM_CHECK(sorted.size() >= 2 && sorted.size() <= kThresholdsMax + 1);
  format.family = ElementFamily::kTable;
  format.threshold_count = static_cast<uint32_t>(sorted.size() - 1);
  std::copy(sorted.begin(), sorted.end(), format.levels.begin());
  for (size_t k = 0; k + 1 < sorted.size(); ++k) {
    format.thresholds[k] = 0.5F * sorted[k] + 0.5F * sorted[k + 1];
  }
  describe_levels(format, sorted);
  // The first level that is not negative: times a scale of 0 it is +0.
  const auto zero = std::find_if(sorted.begin(), sorted.end() - 1, [](float x) { return x >= 0; });
  format.zero_code = static_cast<uint8_t>(zero - sorted.begin());
}

}  // namespace

template <int kBits>
ElementFormat integer_format() {
  static_assert(kBits >= 2 && kBits <= 8);
  ElementFormat format;
  make_integer(kBits, format);
  return format;
}
template ElementFormat integer_format<8>();
template ElementFormat integer_format<7>();
template ElementFormat integer_format<6>();
template ElementFormat integer_format<5>();
template ElementFormat integer_format<4>();
template ElementFormat integer_format<3>();
template ElementFormat integer_format<2>();

ElementFormat sign_format() {
  ElementFormat format;
  constexpr float kSigns[] = {-1, 1};
  make_table(kSigns, format);
  format.bits = 1;
  format.packing = Packing::kPlanes;
  format.rule = ScaleRule::kBf16Mean;
  return format;
}

ElementFormat unit_format() {
  ElementFormat format;
  constexpr float kLevels[] = {-1, 1};
  make_table(kLevels, format);
  return format;
}

ElementFormat halves_format() {
  ElementFormat format;
  constexpr float kLevels[] = {-1.5F, -0.5F, 0.5F, 1.5F};
  make_table(kLevels, format);
  format.bits = 2;
  format.packing = Packing::kPlanes;
  return format;
}

ElementFormat five_format() {
  ElementFormat format;
  constexpr float kLevels[] = {-2, -1, 0, 1, 2};
  make_table(kLevels, format);
  format.bits = 3;
  format.packing = Packing::kTriples;
  for (size_t code = kNoTriple; code < format.levels.size(); ++code) {
    format.levels[code] = float_from_bits(kFloatNan);
  }
  return format;
}

ElementFormat fp8e4m3_format() { return scaled_minifloat(kE4M3, ScaleRule::kBf16Up); }
ElementFormat fp8e5m2_format() { return scaled_minifloat(kE5M2, ScaleRule::kBf16Up); }
ElementFormat mxfp8e4m3_format() { return scaled_minifloat(kE4M3, ScaleRule::kE8M0Up); }
ElementFormat mxfp8e5m2_format() { return scaled_minifloat(kE5M2, ScaleRule::kE8M0Up); }
ElementFormat mxfp6e2m3_format() { return scaled_minifloat(kE2M3, ScaleRule::kE8M0Up); }
ElementFormat mxfp6e3m2_format() { return scaled_minifloat(kE3M2, ScaleRule::kE8M0Up); }
ElementFormat mxfp4_format() { return scaled_minifloat(kE2M1, ScaleRule::kE8M0Up); }
ElementFormat nvfp4_format() { return scaled_minifloat(kE2M1, ScaleRule::kE4M3Tensor); }

ElementFormat mxint8_format() {
  ElementFormat format;
  make_integer(8, format);
  format.rule = ScaleRule::kE8M0Up;
  // An element is code / 64.
  format.scale_exponent = -6;
  return format;
}

ElementFormat nf4_format() {
  // The constants of QLoRA (Dettmers et al., 2023, appendix E).
  constexpr float kLevels[] = {-1.0F,
                               -0.6961928009986877F,
                               -0.5250730514526367F,
                               -0.39491748809814453F,
                               -0.28444138169288635F,
                               -0.18477343022823334F,
                               -0.09105003625154495F,
                               0.0F,
                               0.07958029955625534F,
                               0.16093020141124725F,
                               0.24611230194568634F,
                               0.33791524171829224F,
                               0.44070982933044434F,
                               0.5626170039176941F,
                               0.7229568362236023F,
                               1.0F};
  ElementFormat format;
  make_table(kLevels, format);
  format.bits = 4;
  format.packing = Packing::kNibbles;
  return format;
}

ElementFormat table_format(std::span<const float> levels) {
  ElementFormat format;
  make_table(levels, format);
  format.bits = static_cast<uint32_t>(std::countr_zero(levels.size()));
  format.packing = format.bits == 4 ? Packing::kNibbles : Packing::kPlanes;
  // The scale is the block's largest magnitude, which the outer levels need not reach.
  format.level_max = 1;
  format.edge_max = std::max(1 + levels.front(), 1 - levels.back());
  return format;
}

}  // namespace tersum
