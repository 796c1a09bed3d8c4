// Element formats: blocks of values that share a scale, each value a code of 1 to 8 bits.
//
// One description serves integers, minifloats and tables; docs/codecs.md is the specification. What
// a code stands for is one table of 256 levels, so that a decoder needs nothing else.
//
// Thread safety: plain values, pure functions. Layout of a slice of n values, blocks of B:
//
//   tensor scale   float32, only with ScaleRule::kE4M3Tensor and kSlice
//   scale          one per block, `scale_bytes` each
//   codes          by Packing, see code_bytes()
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "codec/kernels/block_format.h"

namespace tersum {

// How a number becomes a code.
enum class ElementFamily : uint8_t {
  kInteger,    // the nearest integer, ties to even
  kMinifloat,  // sign, exponent, mantissa; ties to even
  kTable,      // the nearest of a few sorted levels; a tie goes up
};

// How codes lie on the wire, in groups; only the last group of a slice may be shorter than that.
enum class Packing : uint8_t {
  kBytes,    // a byte each
  kNibbles,  // groups of 32: 16 bytes, as int4 (block_format.h)
  kPlanes,   // groups of 32: for each bit, lowest first, 4 bytes with that bit of all codes
  kTriples,  // groups of 96 codes below 5: 32 numbers c + 5 c' + 25 c'', in seven planes
};

enum class ScaleRule : uint8_t {
  kBf16Up,      // the least bf16 that brings the block's largest magnitude into the levels
  kBf16Mean,    // the mean magnitude, rounded to the nearest bf16
  kE8M0Up,      // the least power of two that does; one byte
  kE8M0Floor,   // 2^(floor(log2 largest) - floor(log2 largest level)): may saturate; one byte
  kE4M3Tensor,  // the nearest e4m3 number, times a float32 of the slice; one byte
  kSlice,       // a float32 of the slice, known before: values may be beyond the levels; no bytes
};

inline constexpr size_t kPlaneGroup = 32;
inline constexpr size_t kTripleGroup = 96;
inline constexpr size_t kTripleBits = 7;
inline constexpr size_t kThresholdsMax = 255;
// Codes of kTriples that stand for no level; what decodes to them is NaN.
inline constexpr uint8_t kNoTriple = 5;

struct ElementFormat {
  ValueKind kind = ValueKind::kFloat32;
  ElementFamily family = ElementFamily::kInteger;
  Packing packing = Packing::kPlanes;
  ScaleRule rule = ScaleRule::kBf16Up;
  uint32_t bits = 6;           // of a code
  uint32_t block = 128;        // values that share a scale; a power of two
  uint32_t granule = 128;      // slices are cut at multiples of this: whole blocks and whole groups
  int32_t scale_exponent = 0;  // an E8M0 scale is 2^(byte - 127 + scale_exponent)
  int32_t code_max = 31;       // kInteger: codes are -code_max..code_max
  int32_t mantissa_bits = 0;   // kMinifloat
  int32_t least_exponent = 0;  // kMinifloat: of the least normal number
  uint32_t threshold_count = 0;  // kTable: one less than the levels
  uint8_t zero_code = 0;         // what pads a partial block
  float level_max = 31;          // the largest level, or one above all, which is scaled for
  float gap_max = 1;             // between neighbouring levels
  float edge_max = 0;            // from an end of -level_max..level_max to its nearest level
  bool sums_codes = false;       // kInteger with E8M0 scales: added up by shift_sum.h
  // A code stands for NaN or an infinity if these bits of it are `numbers` or more; 256: none does.
  uint8_t number_mask = 0xff;
  uint32_t numbers = 256;
  // Magnitudes (float32 bits) from here on are no finite number of the value type.
  uint32_t overflow_bits = kFloatInfinity;
  // The largest scale with which level_max is still a finite number of the value type.
  float scale_max = 0;
  std::array<float, 256> levels{};                     // by code
  std::array<float, kThresholdsMax + 1> thresholds{};  // kTable: value >= [k]: code k + 1 or above
};

constexpr size_t scale_bytes(ScaleRule rule) {
  if (rule == ScaleRule::kSlice) return 0;
  return rule == ScaleRule::kBf16Up || rule == ScaleRule::kBf16Mean ? 2 : 1;
}
constexpr size_t tensor_scale_bytes(ScaleRule rule) {
  return rule == ScaleRule::kE4M3Tensor || rule == ScaleRule::kSlice ? 4 : 0;
}
constexpr size_t group_values(Packing packing) {
  return packing == Packing::kTriples ? kTripleGroup : kPlaneGroup;
}

inline size_t block_count(const ElementFormat& format, size_t count) {
  return (count + format.block - 1) / format.block;
}
// Of the codes of `count` values that begin at a group.
size_t code_bytes(const ElementFormat& format, size_t count);
inline size_t scales_offset(const ElementFormat& format) { return tensor_scale_bytes(format.rule); }
inline size_t codes_offset(const ElementFormat& format, size_t count) {
  return scales_offset(format) + block_count(format, count) * scale_bytes(format.rule);
}
inline size_t slice_bytes(const ElementFormat& format, size_t count) {
  return count == 0 ? 0 : codes_offset(format, count) + code_bytes(format, count);
}

// A block's scale and what coding its values takes: code of (value * pre) * inverse. `pre` is 1 but
// for tiny scales, whose reciprocal would overflow. A scale that is NaN or 0 has inverse 0.
struct BlockScale {
  float scale = 0;
  float pre = 1;
  float inverse = 0;
};
inline BlockScale make_block_scale(float scale) {
  BlockScale out;
  out.scale = scale;
  if (!(scale > 0)) return out;
  if (scale < float_from_bits(kLeastNormalBits)) out.pre = kTinyBlockFactor;
  out.inverse = 1.0F / (scale * out.pre);
  return out;
}

// Sets the fields that follow from levels, rule and kind. `levels` must be filled.
void complete_format(ElementFormat& format);

// The scale of a block for ScaleRule::kBf16Up, kE8M0Up, kE8M0Floor and kE4M3Tensor. `absmax_bits`:
// its largest magnitude as float32 bits. NaN for a block with something not finite. Writes it to
// `wire`. Of kSlice it is `tensor_scale`.
float choose_scale(const ElementFormat& format, uint32_t absmax_bits, float tensor_scale,
                   std::byte* wire);
// For the blocks of a tile: the scales that choose_scale() gives, those bytes, and what coding
// takes.
void choose_scales(const ElementFormat& format, const uint32_t* absmax_bits, size_t blocks,
                   float tensor_scale, std::byte* wire, BlockScale* scales);
// A mean is taken of this many sums side by side, of terms that are multiplied by a factor: 1,024
// of the largest numbers do not overflow then.
inline constexpr size_t kMeanLanes = 16;
inline constexpr float kMeanFactor = 0x1p-10F;
// ScaleRule::kBf16Mean: the same for the blocks of `count` values, from what
// ElementKernels::magnitudes says of them.
void choose_means(const ElementFormat& format, const uint32_t* absmax_bits, const float* sums,
                  size_t count, std::byte* wire, BlockScale* scales);
// The scale that stands on the wire. What is no number, or negative, stands for NaN.
float read_scale(const ElementFormat& format, const std::byte* wire, float tensor_scale);
// Of `blocks` blocks, to scales[b].scale.
void read_scales(const ElementFormat& format, const std::byte* wire, size_t blocks,
                 float tensor_scale, BlockScale* scales);
// True if it leaves every scale of a block normal, or 0: the least e4m3 number above 0 is 2^-9.
inline bool is_wide_tensor_scale(float tensor_scale) {
  return tensor_scale * 0x1p-9F >= float_from_bits(kLeastNormalBits);
}
// kE4M3Tensor: from the slice's largest finite magnitude.
float choose_tensor_scale(const ElementFormat& format, uint32_t absmax_bits);
// Makes what is no number, or negative, NaN.
float read_tensor_scale(const std::byte* wire);

// True if float32 rounds no sum of the Hadamard transform of a block: its codes add up to at most
// 2^16, and a scale of 8 bits makes that 2^24 of the scale's last place. All steps but the last one
// stay within an int16 then.
inline bool rotates_as_integers(const ElementFormat& format) {
  const bool short_scale = format.rule == ScaleRule::kBf16Up || format.rule == ScaleRule::kE8M0Up ||
                           format.rule == ScaleRule::kE8M0Floor;
  return format.family == ElementFamily::kInteger && short_scale &&
         format.block << (format.bits - 1) <= 1U << 16;
}

// The e4m3 number with these bits; 0x7f and 0xff are NaN.
float e4m3_value(uint8_t bits);

}  // namespace tersum
