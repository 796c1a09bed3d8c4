#include "codec/kernels/shift_sum.h"

#include <algorithm>
#include <bit>

#include "base/check.h"

namespace tersum {
namespace {

constexpr uint8_t kNan = 0xff;
constexpr int32_t kBias = 127;

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
  std::fill_n(tops_, blocks(), uint8_t{0});
  std::fill_n(sums_, count, 0);
}

void ShiftSum::align(const std::byte* scales) {
  for (size_t b = 0; b < blocks(); ++b) {
    tops_[b] = std::max(tops_[b], static_cast<uint8_t>(scales[b]));
  }
}

void ShiftSum::add(const uint8_t* codes, const std::byte* scales) {
  int32_t shifts[kTileBlocksMax];
  for (size_t b = 0; b < blocks(); ++b) {
    // A block that is NaN has no sum that could matter.
    shifts[b] = tops_[b] == kNan ? 0 : static_cast<int32_t>(scales[b]) - unit(b);
  }
  kernels_.add_shifted(format_, codes, count_, shifts, sums_);
}

void ShiftSum::finish(float* tile) {
  float units[kTileBlocksMax];
  for (size_t b = 0; b < blocks(); ++b) {
    const bool is_nan = tops_[b] == kNan;
    units[b] = is_nan ? float_from_bits(kFloatNan)
                      : power_of_two(unit(b) - kBias + format_.scale_exponent);
  }
  kernels_.scale_sums(sums_, count_, format_.block, units, tile);
}

float ShiftSum::largest_scale() const {
  const uint8_t top = *std::max_element(tops_, tops_ + blocks());
  if (top == kNan) return float_from_bits(kFloatNan);
  return power_of_two(int32_t{top} - kBias + format_.scale_exponent);
}

}  // namespace tersum
