// Values of the block formats from and to codes, once the scales are known.
#if defined(TERSUM_CODEC_KERNELS_BLOCK_CODES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TERSUM_CODEC_KERNELS_BLOCK_CODES_INL_H_
#undef TERSUM_CODEC_KERNELS_BLOCK_CODES_INL_H_
#else
#define TERSUM_CODEC_KERNELS_BLOCK_CODES_INL_H_
#endif

#include "codec/kernels/block_format.h"
#include "codec/kernels/block_reference.h"
#include "codec/kernels/block_scales-inl.h"
#include "codec/kernels/hwy_compat-inl.h"
#include "codec/kernels/vector_formats-inl.h"
#include "hwy/highway.h"

#if HWY_TARGET != HWY_SCALAR  // the reference serves there
HWY_BEFORE_NAMESPACE();
namespace tersum {
namespace HWY_NAMESPACE {

// Decoding goes by runs of 32 values, kRunVectors vectors of float32.
inline constexpr size_t kRunVectors = kNibbleGroup / kLanes;

// A block's scale in the form that decoding a run of its codes takes.
template <int kBits>
struct RunScale {
  float scale;

  HWY_INLINE void set(float value) { scale = value; }
};

#if TERSUM_HAS_LOOKUP16
// With as many lanes as an int4 has codes, one lookup is conversion and product in one.
template <>
struct RunScale<4> {
  alignas(64) float value_of[16];  // by nibble

  HWY_INLINE void set(float value) {
    alignas(64) static constexpr float kCodes[16] = {0,  1,  2,  3,  4,  5,  6,  7,
                                                     -8, -7, -6, -5, -4, -3, -2, -1};
    const DF df;
    hn::Store(hn::Mul(hn::Load(df, kCodes), hn::Set(df, value)), df, value_of);
  }
};
#endif

// The values of 32 codes.
template <int kBits>
HWY_INLINE void load_values(const std::byte* HWY_RESTRICT codes, const RunScale<kBits>& scale,
                            VF (&out)[kRunVectors]);

template <>
HWY_INLINE void load_values<8>(const std::byte* HWY_RESTRICT codes, const RunScale<8>& scale,
                               VF (&out)[kRunVectors]) {
  const hn::Rebind<int8_t, DI> db;
  const auto* const from = reinterpret_cast<const int8_t*>(codes);
  const auto factor = hn::Set(DF(), scale.scale);
  for (size_t v = 0; v < kRunVectors; ++v) {
    const auto code = hn::PromoteTo(DI(), hn::LoadU(db, from + v * kLanes));
    out[v] = hn::Mul(hn::ConvertTo(DF(), code), factor);
  }
}

template <>
HWY_INLINE void load_values<4>(const std::byte* HWY_RESTRICT codes, const RunScale<4>& scale,
                               VF (&out)[kRunVectors]) {
#if TERSUM_HAS_LOOKUP16
  const hn::Rebind<uint8_t, DI> db;
  const auto table = hn::Load(DF(), scale.value_of);
  const auto both = hn::PromoteTo(DI(), hn::LoadU(db, reinterpret_cast<const uint8_t*>(codes)));
  out[0] = lookup16(table, both);
  out[1] = lookup16(table, hn::ShiftRight<4>(both));
#else
  const hn::Rebind<int8_t, DI> db;
  const auto* const from = reinterpret_cast<const int8_t*>(codes);
  const auto factor = hn::Set(DF(), scale.scale);
  for (size_t v = 0; v < kRunVectors / 2; ++v) {
    const auto both = hn::PromoteTo(DI(), hn::LoadU(db, from + v * kLanes));
    const auto low = hn::ShiftRight<28>(hn::ShiftLeft<28>(both));
    out[v] = hn::Mul(hn::ConvertTo(DF(), low), factor);
    out[v + kRunVectors / 2] = hn::Mul(hn::ConvertTo(DF(), hn::ShiftRight<4>(both)), factor);
  }
#endif
}

// One whole block.
template <int kBits, class Format>
HWY_INLINE void decode_block(const std::byte* HWY_RESTRICT codes, float scale, size_t block,
                             std::byte* HWY_RESTRICT to) {
  RunScale<kBits> run_scale;
  run_scale.set(scale);
  for (size_t i = 0; i < block; i += kNibbleGroup) {
    VF run[kRunVectors];
    load_values<kBits>(codes + i * kBits / 8, run_scale, run);
    for (size_t v = 0; v < kRunVectors; ++v) {
      Format::store_clean(run[v], to + (i + v * kLanes) * Format::kBytes);
    }
  }
}

// Where quantize_group leaves the decoding of what it encoded: nowhere, or from `to` on.
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
                              Out out) {
  const auto code = nearest_int(hn::Mul(hn::LoadU(DF(), from + at), scales.inverse_at(at)));
  out.put(at, code, scales.scale_at(at));
  return code;
}

// Values that one store of codes takes: 4 vectors of bytes; each int4 byte holds two values.
template <int kBits>
inline constexpr size_t kUnitValues = 4 * kLanes * (8 / kBits);

template <int kBits, class Scales, class Out>
HWY_INLINE void quantize_unit(const float* HWY_RESTRICT from, size_t at, const Scales& scales,
                              Out out, std::byte* HWY_RESTRICT codes) {
  auto* const to = reinterpret_cast<int8_t*>(codes) + at * kBits / 8;
  if constexpr (kBits == 8) {
    VI v[4];
    for (size_t i = 0; i < 4; ++i) v[i] = quantize_vector(from, at + i * kLanes, scales, out);
    store_bytes(v, to);
  } else {
    // Byte vector number i: its low nibbles are a run of neighbours, its high ones the run 16
    // later.
    VI low[4];
    VI high[4];
    for (size_t i = 0; i < 4; ++i) {
      const size_t byte = i * kLanes;
      const size_t run = at + byte / kNibbleGroupBytes * kNibbleGroup + byte % kNibbleGroupBytes;
      low[i] = quantize_vector(from, run, scales, out);
      high[i] = quantize_vector(from, run + kNibbleGroupBytes, scales, out);
    }
    store_nibbles(low, high, to);
  }
}

// The codes of `blocks` whole blocks with the scales of `group`.
template <int kBits, class Out>
HWY_NOINLINE void quantize_group(const BlockFormat& format, const float* HWY_RESTRICT from,
                                 size_t blocks, const GroupScales& group, Out out,
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

}  // namespace HWY_NAMESPACE
}  // namespace tersum
HWY_AFTER_NAMESPACE();
#endif  // HWY_TARGET

#endif  // TERSUM_CODEC_KERNELS_BLOCK_CODES_INL_H_
