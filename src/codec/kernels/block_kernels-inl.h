// Encode and decode of the block formats in vectors.
#if defined(TERSUM_CODEC_KERNELS_BLOCK_KERNELS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TERSUM_CODEC_KERNELS_BLOCK_KERNELS_INL_H_
#undef TERSUM_CODEC_KERNELS_BLOCK_KERNELS_INL_H_
#else
#define TERSUM_CODEC_KERNELS_BLOCK_KERNELS_INL_H_
#endif

#include <algorithm>
#include <cstring>

#include "codec/kernels/block_reference.h"
#include "codec/kernels/block_scales-inl.h"
#include "hwy/highway.h"

#if HWY_TARGET != HWY_SCALAR  // the reference serves there
HWY_BEFORE_NAMESPACE();
namespace tersum {
namespace HWY_NAMESPACE {

// Blocks that go through the group machinery together.
HWY_INLINE size_t group_blocks(const BlockFormat& format) {
  return std::min<size_t>(kGroupBlocks, kGroupValues / format.block);
}

// Partial maxima of `blocks` whole blocks; those of the rest of the group are 0.
HWY_INLINE void find_maxima(const float* HWY_RESTRICT from, size_t block, size_t blocks,
                            GroupScales& group) {
  const DF df;
  const DI di;
  for (size_t b = 0; b < blocks; ++b, from += block) {
    auto even = magnitude_bits(hn::LoadU(df, from));
    auto odd = magnitude_bits(hn::LoadU(df, from + kLanes));
    for (size_t i = 2 * kLanes; i < block; i += 2 * kLanes) {
      even = hn::Max(even, magnitude_bits(hn::LoadU(df, from + i)));
      odd = hn::Max(odd, magnitude_bits(hn::LoadU(df, from + i + kLanes)));
    }
    hn::Store(hn::Max(even, odd), di, group.maxima + b * kLanes);
  }
  for (size_t b = blocks; b < kGroupBlocks; ++b) {
    hn::Store(hn::Zero(di), di, group.maxima + b * kLanes);
  }
}

// One whole block.
template <int kBits, class Format>
HWY_INLINE void decode_block(const std::byte* HWY_RESTRICT codes, float scale, size_t block,
                             std::byte* HWY_RESTRICT to) {
  const auto factor = hn::Set(DF(), scale);
  for (size_t i = 0; i < block; i += kNibbleGroup) {
    VF run[kRunVectors];
    load_codes<kBits>(codes + i * kBits / 8, run);
    for (size_t v = 0; v < kRunVectors; ++v) {
      Format::store_clean(hn::Mul(run[v], factor), to + (i + v * kLanes) * Format::kBytes);
    }
  }
}

// Where encode_group leaves the decoding of what it encoded: nowhere, or from `to` on.
struct NoValues {
  HWY_INLINE void put(size_t, VI, VF) const {}
  template <int kBits>
  HWY_INLINE void put_block(const std::byte*, float, size_t, size_t) const {}
};
template <class Format>
struct ValuesOut {
  std::byte* to;
  // The values at, at + 1, … of the group, from their codes: the same product that decoding takes.
  HWY_INLINE void put(size_t at, VI codes, VF scale) const {
    Format::store_clean(hn::Mul(hn::ConvertTo(DF(), codes), scale), to + at * Format::kBytes);
  }
  template <int kBits>
  HWY_INLINE void put_block(const std::byte* codes, float scale, size_t block, size_t at) const {
    decode_block<kBits, Format>(codes, scale, block, to + at * Format::kBytes);
  }
};

// The scales of one unit's values: all of one block, or of several.
struct OneBlock {
  VF inverse;
  VF scale;
  HWY_INLINE VF inverse_at(size_t) const { return inverse; }
  HWY_INLINE VF scale_at(size_t) const { return scale; }
};
struct SeveralBlocks {
  const GroupScales& group;
  size_t log2;
  HWY_INLINE VF inverse_at(size_t at) const { return hn::Set(DF(), group.inverse[at >> log2]); }
  HWY_INLINE VF scale_at(size_t at) const { return hn::Set(DF(), group.scale[at >> log2]); }
};

// `at`: number of the value in its group.
template <class Scales, class Out>
HWY_INLINE VI quantize_vector(const float* HWY_RESTRICT from, size_t at, const Scales& scales,
                              const Out& out) {
  const auto code = hn::NearestInt(hn::Mul(hn::LoadU(DF(), from + at), scales.inverse_at(at)));
  out.put(at, code, scales.scale_at(at));
  return code;
}

// Byte vector number i of a unit of int4: its low nibbles are a run of neighbours, its high ones
// the run 16 later.
template <class Scales, class Out>
HWY_INLINE VI quantize_pair(const float* HWY_RESTRICT from, size_t at, size_t i,
                            const Scales& scales, const Out& out) {
  const size_t byte = i * kLanes;
  at += byte / kNibbleGroupBytes * kNibbleGroup + byte % kNibbleGroupBytes;
  const auto low = quantize_vector(from, at, scales, out);
  const auto high = quantize_vector(from, at + kNibbleGroupBytes, scales, out);
  return hn::Or(hn::ShiftLeft<4>(high), hn::And(low, hn::Set(DI(), 0x0f)));
}

template <int kBits, class Scales, class Out>
HWY_INLINE void quantize_unit(const float* HWY_RESTRICT from, size_t at, const Scales& scales,
                              const Out& out, std::byte* HWY_RESTRICT codes) {
  auto* const to = reinterpret_cast<int8_t*>(codes) + at * kBits / 8;
  if constexpr (kBits == 8) {
    const auto c0 = quantize_vector(from, at, scales, out);
    const auto c1 = quantize_vector(from, at + kLanes, scales, out);
    const auto c2 = quantize_vector(from, at + 2 * kLanes, scales, out);
    const auto c3 = quantize_vector(from, at + 3 * kLanes, scales, out);
    store_bytes(c0, c1, c2, c3, to);
  } else {
    const auto p0 = quantize_pair(from, at, 0, scales, out);
    const auto p1 = quantize_pair(from, at, 1, scales, out);
    const auto p2 = quantize_pair(from, at, 2, scales, out);
    const auto p3 = quantize_pair(from, at, 3, scales, out);
    store_bytes(p0, p1, p2, p3, to);
  }
}

// The codes of `blocks` whole blocks with the scales of `group`.
template <int kBits, class Out>
HWY_INLINE void quantize_group(const BlockFormat& format, const float* HWY_RESTRICT from,
                               size_t blocks, const GroupScales& group, const Out& out,
                               std::byte* HWY_RESTRICT codes) {
  constexpr size_t kUnit = kUnitValues<kBits>;
  const size_t block = format.block;
  const size_t log2 = format.block_log2;
  const size_t end = blocks << log2;
  size_t at = 0;
  if (!group.special && block >= kUnit) {
    while (at < end) {
      const OneBlock scales{hn::Set(DF(), group.inverse[at >> log2]),
                            hn::Set(DF(), group.scale[at >> log2])};
      for (const size_t block_end = at + block; at < block_end; at += kUnit) {
        quantize_unit<kBits>(from, at, scales, out, codes);
      }
    }
  } else if (!group.special) {
    // One unit covers several blocks; what is left of a last, partial unit falls through.
    const SeveralBlocks scales{group, log2};
    for (; at + kUnit <= end; at += kUnit) quantize_unit<kBits>(from, at, scales, out, codes);
  }
  for (; at < end; at += block) {
    const float scale = group.scale[at >> log2];
    quantize_block(format, from + at, block, scale, codes + at * kBits / 8);
    out.template put_block<kBits>(codes + at * kBits / 8, scale, block, at);
  }
}

// Scales and codes of `blocks` whole blocks whose partial maxima are in `group`.
template <int kBits, class Out>
HWY_INLINE void encode_group(const BlockFormat& format, const float* HWY_RESTRICT from,
                             size_t blocks, GroupScales& group, const Out& out,
                             std::byte* HWY_RESTRICT scales, std::byte* HWY_RESTRICT codes) {
  compute_scales(format, group);
  std::memcpy(scales, group.wire, blocks * kScaleBytes);
  quantize_group<kBits>(format, from, blocks, group, out, codes);
}

template <class Format>
HWY_INLINE void load_tile(const std::byte* HWY_RESTRICT from, size_t count,
                          float* HWY_RESTRICT tile) {
  for (size_t i = 0; i < count; i += kLanes) {
    hn::Store(Format::load(from + i * Format::kBytes), DF(), tile + i);
  }
}

template <int kBits, class Format>
HWY_NOINLINE void encode_slice(const BlockFormat& format, const void* values, size_t count,
                               std::byte* wire) {
  GroupScales group;
  HWY_ALIGN float tile[Format::kBytes == 4 ? 1 : kGroupValues];
  const size_t block = format.block;
  const size_t whole = count / block;
  const size_t step = group_blocks(format);
  std::byte* const codes = wire + code_offset(format, count, 0);
  for (size_t b = 0; b < whole; b += step) {
    const size_t blocks = std::min(step, whole - b);
    const auto* const bytes = static_cast<const std::byte*>(values) + b * block * Format::kBytes;
    const float* from = tile;
    if constexpr (Format::kBytes == 4) {
      from = reinterpret_cast<const float*>(bytes);
    } else {
      load_tile<Format>(bytes, blocks * block, tile);
    }
    find_maxima(from, block, blocks, group);
    encode_group<kBits>(format, from, blocks, group, NoValues(), wire + b * kScaleBytes,
                        codes + code_bytes(format, b * block));
  }
  if (whole * block < count) encode_slice_block(format, values, count, whole, wire);
}

template <int kBits, class Format>
HWY_NOINLINE void decode_slice(const BlockFormat& format, const std::byte* wire, size_t count,
                               void* values) {
  const size_t block = format.block;
  const size_t whole = count / block;
  const std::byte* const codes = wire + code_offset(format, count, 0);
  auto* const to = static_cast<std::byte*>(values);
  for (size_t b = 0; b < whole; ++b) {
    decode_block<kBits, Format>(codes + b * block * kBits / 8, load_scale(wire + b * kScaleBytes),
                                block, to + b * block * Format::kBytes);
  }
  if (whole * block < count) decode_slice_block(format, wire, count, whole, values);
}

}  // namespace HWY_NAMESPACE
}  // namespace tersum
HWY_AFTER_NAMESPACE();
#endif  // HWY_TARGET

#endif  // TERSUM_CODEC_KERNELS_BLOCK_KERNELS_INL_H_
