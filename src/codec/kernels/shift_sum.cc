#include "codec/kernels/shift_sum.h"

#include <algorithm>
#include <bit>
#include <limits>

#include "base/check.h"

namespace tersum {
namespace {

constexpr int32_t kNoExponent = std::numeric_limits<int32_t>::min();
constexpr int32_t kNanExponent = std::numeric_limits<int32_t>::max();

// Of a power of two, which may be denormal.
int32_t exponent_of(float scale) {
  const uint32_t bits = float_bits(scale);
  if (bits >= kFloatInfinity) return kNanExponent;
  const auto field = static_cast<int32_t>(bits >> 23);
  return field > 0 ? field - 127 : std::countr_zero(bits) - 149;
}

float power_of_two(int32_t exponent) {
  if (exponent >= -126) return float_from_bits(static_cast<uint32_t>(exponent + 127) << 23);
  return float_from_bits(1U << static_cast<uint32_t>(exponent + 149));
}

int32_t shift_limit(const ElementFormat& format, size_t contributions) {
  const auto carry = static_cast<int32_t>(std::bit_width(contributions - 1));
  return 32 - static_cast<int32_t>(format.bits) - carry;
}

}  // namespace

ShiftSum::ShiftSum(const ElementFormat& format, const ElementKernels& kernels, size_t contributions)
    : format_(format), kernels_(kernels), shift_max_(shift_limit(format, contributions)) {
  TERSUM_CHECK(format.family == ElementFamily::kInteger && contributions > 0);
  TERSUM_CHECK(shift_max_ >= 0);
}

void ShiftSum::begin(size_t count) {
  count_ = count;
  std::fill_n(tops_, blocks(), kNoExponent);
  std::fill_n(sums_, count, 0);
}

void ShiftSum::align(const BlockScale* scales) {
  for (size_t b = 0; b < blocks(); ++b) tops_[b] = std::max(tops_[b], exponent_of(scales[b].scale));
}

int32_t ShiftSum::unit_exponent(size_t block) const {
  const int32_t least = format_.scale_exponent - 127;
  return std::max(tops_[block] - shift_max_, least);
}

void ShiftSum::add(const uint8_t* codes, const BlockScale* scales) {
  int32_t shifts[kTileBlocksMax];
  for (size_t b = 0; b < blocks(); ++b) {
    const bool is_nan = tops_[b] == kNanExponent;
    shifts[b] = is_nan ? 0 : exponent_of(scales[b].scale) - unit_exponent(b);
  }
  kernels_.add_shifted(format_, codes, count_, shifts, sums_);
}

void ShiftSum::finish(float* tile) {
  float units[kTileBlocksMax];
  for (size_t b = 0; b < blocks(); ++b) {
    const bool is_nan = tops_[b] == kNanExponent;
    units[b] = is_nan ? float_from_bits(kFloatNan) : power_of_two(unit_exponent(b));
  }
  kernels_.scale_sums(sums_, count_, format_.block, units, tile);
}

}  // namespace tersum
