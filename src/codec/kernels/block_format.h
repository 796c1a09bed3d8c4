// The block formats int8 and int4: their parameters and where the bytes of a slice lie.
//
// Thread safety: plain values, pure functions. The format is specified in docs/codecs.md; this is
// its layout part:
//
//   slice of n values, blocks of B:  scale[ceil(n / B)]   bf16, little-endian, 2 bytes each
//                                    code[n]              int8: one byte each
//                                                         int4: groups of 32 values, see below
//   int4 group of r <= 32 values (only the last group of a slice has fewer than 32): h = ceil(r /
//   2) bytes; byte i holds value i in its low nibble and value h + i in its high one (0 if there is
//   none).
#pragma once

#include <cstddef>
#include <cstdint>

#include "codec/kernels/numbers.h"

namespace tersum {

// The value types that lossy codecs serve.
enum class ValueKind : uint8_t { kFloat32, kBFloat16, kFloat16 };

// Magnitudes (float32 bits) from here on are no finite number of the kind.
uint32_t overflow_bits_of(ValueKind kind);
constexpr size_t value_bytes(ValueKind kind) { return kind == ValueKind::kFloat32 ? 4 : 2; }

inline constexpr uint32_t kBlockMin = 32;
inline constexpr uint32_t kBlockMax = 1024;
inline constexpr size_t kScaleBytes = 2;
// Values per int4 group: 16 bytes, whose low and high nibbles are each a run of 16 neighbours, so
// that one load gives whole vectors of neighbours for every vector width.
inline constexpr size_t kNibbleGroup = 32;
inline constexpr size_t kNibbleGroupBytes = kNibbleGroup / 2;

struct BlockFormat {
  ValueKind kind = ValueKind::kFloat32;
  int bits = 8;          // 8 or 4
  uint32_t block = 128;  // values that share a scale; a power of two
  uint32_t block_log2 = 7;
  int32_t code_max = 127;  // codes are -code_max..code_max
  // Magnitudes (float32 bits) from here on are no finite number of the value type.
  uint32_t overflow_bits = kFloatInfinity;
  // The largest scale (float32 bits, low half 0) with which code_max still decodes to a finite
  // number.
  uint32_t scale_max_bits = 0;
};

// bits: 8 or 4. block: a power of two in kBlockMin..kBlockMax.
BlockFormat make_block_format(ValueKind kind, int bits, uint32_t block);

inline size_t block_count(const BlockFormat& format, size_t count) {
  return (count + format.block - 1) >> format.block_log2;
}
inline size_t code_bytes(const BlockFormat& format, size_t count) {
  return format.bits == 8 ? count : (count + 1) / 2;
}
inline size_t slice_bytes(const BlockFormat& format, size_t count) {
  return block_count(format, count) * kScaleBytes + code_bytes(format, count);
}
// Where the codes of block `index` begin in a slice of `count` values.
inline size_t code_offset(const BlockFormat& format, size_t count, size_t index) {
  return block_count(format, count) * kScaleBytes + code_bytes(format, index * format.block);
}

// A block's scale as a float32, or NaN for a block that holds something not finite. `absmax_bits`:
// the largest magnitude as float32 bits; a NaN's bits exceed every number's, so an integer maximum
// over magnitudes finds it.
float block_scale(const BlockFormat& format, uint32_t absmax_bits);

// The scale that stands on the wire; one that is not finite stands for NaN, whichever it is.
inline float load_scale(const std::byte* from) {
  const uint32_t bits = uint32_t{load_unaligned<uint16_t>(from)} << 16;
  return float_from_bits((bits & kFloatInfinity) == kFloatInfinity ? kFloatNan : bits);
}

// Below the least normal number a reciprocal overflows; such a block's values and scale are both
// multiplied by this first, which is exact and leaves their quotient as it is.
inline constexpr uint32_t kLeastNormalBits = 0x00800000u;
inline constexpr float kTinyBlockFactor = 0x1p64f;

}  // namespace tersum
