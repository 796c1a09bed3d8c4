// Scales of several blocks at once, and codes from and to vectors.
//
// A block's scale hangs on a chain: maximum over lanes, division, rounding, reciprocal. One block
// at a time that chain is what a core waits for; for 16 blocks together it costs what it costs for
// one.
#if defined(TERSUM_CODEC_KERNELS_BLOCK_SCALES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TERSUM_CODEC_KERNELS_BLOCK_SCALES_INL_H_
#undef TERSUM_CODEC_KERNELS_BLOCK_SCALES_INL_H_
#else
#define TERSUM_CODEC_KERNELS_BLOCK_SCALES_INL_H_
#endif

#include "codec/kernels/block_format.h"
#include "codec/kernels/hwy_compat-inl.h"
#include "codec/kernels/vector_formats-inl.h"
#include "hwy/highway.h"

#if HWY_TARGET != HWY_SCALAR  // the reference serves there
HWY_BEFORE_NAMESPACE();
namespace tersum {
namespace HWY_NAMESPACE {

// Blocks whose scales are computed together.
inline constexpr size_t kGroupBlocks = 16;
// Values of a group at most: 16 KiB of float32, half of an L1, so that the second pass reads L1.
inline constexpr size_t kGroupValues = 4096;

struct GroupScales {
  alignas(64) int32_t maxima[kGroupBlocks * 16];  // per block kLanes partial maxima, then see below
  alignas(64) float scale[kGroupBlocks];
  alignas(64) float inverse[kGroupBlocks];
  alignas(64) uint16_t wire[kGroupBlocks];
  // A scale is NaN, denormal or clamped: those blocks take the scalar path.
  bool special;
};

HWY_INLINE VI magnitude_bits(VF value) {
  const DI di;
  return hn::And(hn::BitCast(di, value), hn::Set(di, 0x7fffffff));
}

// The maximum over the 128-bit parts of a vector, lane by lane.
#if HWY_CAP_GE512
HWY_INLINE hn::Vec<hn::CappedTag<int32_t, 4>> maximum_of_parts(VI v) {
  const hn::Half<DI> dh;
  const hn::Half<decltype(dh)> dq;
  const auto h = hn::Max(hn::LowerHalf(dh, v), hn::UpperHalf(dh, v));
  return hn::Max(hn::LowerHalf(dq, h), hn::UpperHalf(dq, h));
}
#elif HWY_CAP_GE256
HWY_INLINE hn::Vec<hn::CappedTag<int32_t, 4>> maximum_of_parts(VI v) {
  const hn::Half<DI> dh;
  return hn::Max(hn::LowerHalf(dh, v), hn::UpperHalf(dh, v));
}
#else
HWY_INLINE VI maximum_of_parts(VI v) { return v; }
#endif

// In: kLanes partial maxima per block. Out: maxima[0..15], one per block. A transposing tree: four
// vectors become one whose 128-bit parts each hold a partial maximum of all four blocks.
HWY_INLINE void reduce_maxima(GroupScales& group) {
  const DI di;
  const hn::RepartitionToWide<DI> dw;
  for (size_t b = 0; b < kGroupBlocks; b += 4) {
    const int32_t* const from = group.maxima + b * kLanes;
    const auto v0 = hn::Load(di, from);
    const auto v1 = hn::Load(di, from + kLanes);
    const auto v2 = hn::Load(di, from + 2 * kLanes);
    const auto v3 = hn::Load(di, from + 3 * kLanes);
    const auto m01 = hn::Max(hn::InterleaveLower(di, v0, v1), hn::InterleaveUpper(di, v0, v1));
    const auto m23 = hn::Max(hn::InterleaveLower(di, v2, v3), hn::InterleaveUpper(di, v2, v3));
    const auto w01 = hn::BitCast(dw, m01);
    const auto w23 = hn::BitCast(dw, m23);
    const auto m = hn::Max(hn::BitCast(di, hn::InterleaveLower(dw, w01, w23)),
                           hn::BitCast(di, hn::InterleaveUpper(dw, w01, w23)));
    // maxima[b..b+3] was read above or in an earlier round: b <= b * kLanes.
    hn::Store(maximum_of_parts(m), hn::CappedTag<int32_t, 4>(), group.maxima + b);
  }
}

// block_scale() and the reciprocals, for all blocks of the group.
HWY_INLINE void compute_scales(const BlockFormat& format, GroupScales& group) {
  const DF df;
  const DI di;
  reduce_maxima(group);
  const auto code_max = hn::Set(df, static_cast<float>(format.code_max));
  const auto last_finite = hn::Set(di, static_cast<int32_t>(format.overflow_bits - 1));
  const auto scale_max = hn::Set(di, static_cast<int32_t>(format.scale_max_bits));
  const auto zero = hn::Zero(di);
  auto special = zero;
  for (size_t b = 0; b < kGroupBlocks; b += kLanes) {
    const auto absmax = hn::Load(di, group.maxima + b);
    const auto is_nan = hn::Gt(absmax, last_finite);
    const auto quotient = hn::BitCast(di, hn::Div(hn::BitCast(df, absmax), code_max));
    auto bits = hn::And(hn::Add(quotient, hn::Set(di, 0xffff)),
                        hn::Set(di, static_cast<int32_t>(0xffff0000u)));
    const auto reach = hn::Mul(hn::BitCast(df, bits), code_max);
    const auto is_short = hn::RebindMask(di, hn::Lt(reach, hn::BitCast(df, absmax)));
    bits = hn::IfThenElse(is_short, hn::Add(bits, hn::Set(di, 0x10000)), bits);
    const auto is_clamped = hn::Gt(bits, scale_max);
    const auto is_tiny = hn::Gt(hn::Set(di, static_cast<int32_t>(kLeastNormalBits)), bits);
    const auto is_zero = hn::Eq(bits, zero);
    bits = hn::IfThenElse(is_clamped, scale_max, bits);
    bits = hn::IfThenElse(is_nan, hn::Set(di, static_cast<int32_t>(kFloatNan)), bits);
    const auto odd = hn::AndNot(hn::VecFromMask(di, is_zero), hn::VecFromMask(di, is_tiny));
    special = hn::Or(special, hn::Or(odd, hn::VecFromMask(di, is_clamped)));
    special = hn::Or(special, hn::VecFromMask(di, is_nan));
    const auto scale = hn::BitCast(df, bits);
    const auto inverse = hn::Div(hn::Set(df, 1.0f), scale);
    hn::Store(scale, df, group.scale + b);
    hn::Store(hn::IfThenZeroElse(hn::RebindMask(df, is_zero), inverse), df, group.inverse + b);
    store_words(hn::ShiftRight<16>(hn::BitCast(DU(), bits)), group.wire + b);
  }
  group.special = !hn::AllTrue(di, hn::Eq(special, zero));
}

// 32 codes at a time as 32 / kLanes vectors of float32; kBits picks the layout.
inline constexpr size_t kRunVectors = kNibbleGroup / kLanes;

template <int kBits>
HWY_INLINE void load_codes(const std::byte* HWY_RESTRICT codes, VF (&out)[kRunVectors]);

template <>
HWY_INLINE void load_codes<8>(const std::byte* HWY_RESTRICT codes, VF (&out)[kRunVectors]) {
  const hn::Rebind<int8_t, DI> db;
  const auto* const from = reinterpret_cast<const int8_t*>(codes);
  for (size_t v = 0; v < kRunVectors; ++v) {
    out[v] = hn::ConvertTo(DF(), hn::PromoteTo(DI(), hn::LoadU(db, from + v * kLanes)));
  }
}

template <>
HWY_INLINE void load_codes<4>(const std::byte* HWY_RESTRICT codes, VF (&out)[kRunVectors]) {
  const hn::Rebind<int8_t, DI> db;
  const auto* const from = reinterpret_cast<const int8_t*>(codes);
  for (size_t v = 0; v < kRunVectors / 2; ++v) {
    const auto both = hn::PromoteTo(DI(), hn::LoadU(db, from + v * kLanes));
    out[v] = hn::ConvertTo(DF(), hn::ShiftRight<28>(hn::ShiftLeft<28>(both)));
    out[v + kRunVectors / 2] = hn::ConvertTo(DF(), hn::ShiftRight<4>(both));
  }
}

// Values that one store of codes takes: 4 vectors of bytes; each int4 byte holds two values.
template <int kBits>
inline constexpr size_t kUnitValues = 4 * kLanes * (8 / kBits);

}  // namespace HWY_NAMESPACE
}  // namespace tersum
HWY_AFTER_NAMESPACE();
#endif  // HWY_TARGET

#endif  // TERSUM_CODEC_KERNELS_BLOCK_SCALES_INL_H_
