#include "codec/kernels/block_format.h"

#include <algorithm>
#include <bit>
#include <limits>

#include "base/check.h"

namespace tersum {
uint32_t overflow_bits_of(ValueKind kind) {
  switch (kind) {
    case ValueKind::kFloat32:
      return kFloatInfinity;
    case ValueKind::kBFloat16:
      return kBf16Overflow;
    case ValueKind::kFloat16:
      return kHalfOverflow;
  }
  return 0;
}

namespace {

// Walks down from above: at most a few dozen steps, once per format.
uint32_t find_scale_max(uint32_t overflow_bits, int32_t code_max) {
  const float largest = float_from_bits(overflow_bits - 1);
  uint32_t bits = (float_bits(largest / static_cast<float>(code_max)) & 0xffff0000u) + 0x10000u;
  // In double: the product may lie beyond float32.
  while (double{float_from_bits(bits)} * code_max > double{largest}) bits -= 0x10000u;
  return bits;
}

}  // namespace

BlockFormat make_block_format(ValueKind kind, int bits, uint32_t block) {
  TERSUM_CHECK(bits == 8 || bits == 4);
  TERSUM_CHECK(block >= kBlockMin && block <= kBlockMax && (block & (block - 1)) == 0);
  BlockFormat format;
  format.kind = kind;
  format.bits = bits;
  format.block = block;
  format.block_log2 = static_cast<uint32_t>(std::countr_zero(block));
  format.code_max = bits == 8 ? 127 : 7;
  format.overflow_bits = overflow_bits_of(kind);
  format.scale_max_bits = find_scale_max(format.overflow_bits, format.code_max);
  return format;
}

float block_scale(const BlockFormat& format, uint32_t absmax_bits) {
  if (absmax_bits >= format.overflow_bits) return float_from_bits(kFloatNan);
  const float absmax = float_from_bits(absmax_bits);
  const auto code_max = static_cast<float>(format.code_max);
  // Up to the next bf16. The quotient itself is rounded, so among the denormals the scale may still
  // be one step short; code_max * scale has at most 15 bits, so this comparison is exact.
  uint32_t bits = (float_bits(absmax / code_max) + 0xffffu) & 0xffff0000u;
  if (code_max * float_from_bits(bits) < absmax) bits += 0x10000u;
  return float_from_bits(std::min(bits, format.scale_max_bits));
}

}  // namespace tersum
