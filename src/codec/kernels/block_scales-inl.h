// Scales of several blocks at once.
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

struct GroupScales {
  alignas(64) int32_t maxima[kGroupBlocks * kLanes];  // per block, lane by lane
  alignas(64) float scale[kGroupBlocks];
  alignas(64) float inverse[kGroupBlocks];
  alignas(64) uint16_t wire[kGroupBlocks];
  // A scale is NaN, denormal or clamped: those groups take the scalar path.
  bool special;
};

HWY_INLINE VI magnitude_bits(VF value) {
  const DI di;
  return hn::And(hn::BitCast(di, value), hn::Set(di, 0x7fffffff));
}

using FourMaxima = hn::Vec<hn::CappedTag<int32_t, 4>>;

// The maximum over the 128-bit parts of a vector, lane by lane.
#if HWY_CAP_GE512
HWY_INLINE FourMaxima maximum_of_parts(VI v) {
  const hn::Half<DI> dh;
  const hn::Half<decltype(dh)> dq;
  const auto h = hn::Max(hn::LowerHalf(dh, v), hn::UpperHalf(dh, v));
  return hn::Max(hn::LowerHalf(dq, h), hn::UpperHalf(dq, h));
}
#elif HWY_CAP_GE256
HWY_INLINE FourMaxima maximum_of_parts(VI v) {
  const hn::Half<DI> dh;
  return hn::Max(hn::LowerHalf(dh, v), hn::UpperHalf(dh, v));
}
#else
HWY_INLINE FourMaxima maximum_of_parts(VI v) { return v; }
#endif

// The maxima of blocks first..first+3, `partial`(b) being kLanes partial ones of block b. A
// transposing tree: four vectors become one whose 128-bit parts each hold a partial maximum of all
// four blocks.
template <class Partial>
HWY_INLINE FourMaxima four_maxima(const Partial& partial, size_t first) {
  const DI di;
  const hn::RepartitionToWide<DI> dw;
  const auto v0 = partial(first);
  const auto v1 = partial(first + 1);
  const auto v2 = partial(first + 2);
  const auto v3 = partial(first + 3);
  const auto m01 = hn::Max(hn::InterleaveLower(di, v0, v1), hn::InterleaveUpper(di, v0, v1));
  const auto m23 = hn::Max(hn::InterleaveLower(di, v2, v3), hn::InterleaveUpper(di, v2, v3));
  const auto w01 = hn::BitCast(dw, m01);
  const auto w23 = hn::BitCast(dw, m23);
  return maximum_of_parts(hn::Max(hn::BitCast(di, hn::InterleaveLower(dw, w01, w23)),
                                  hn::BitCast(di, hn::InterleaveUpper(dw, w01, w23))));
}

// The maxima of kLanes blocks. They stay in registers: a wide load right behind the narrow stores
// of its parts would wait for the cache.
template <class Partial>
HWY_INLINE VI block_maxima(const Partial& partial) {
#if HWY_CAP_GE256
  const hn::CappedTag<int32_t, 8> dh;
  const auto half = hn::Combine(dh, four_maxima(partial, 4), four_maxima(partial, 0));
#if HWY_CAP_GE512
  const auto upper = hn::Combine(dh, four_maxima(partial, 12), four_maxima(partial, 8));
  return hn::Combine(DI(), upper, half);
#else
  return half;
#endif
#else
  return four_maxima(partial, 0);
#endif
}

// Partial maxima in memory, a vector of each block.
struct StoredMaxima {
  const int32_t* maxima;
  HWY_INLINE VI operator()(size_t block) const { return hn::Load(DI(), maxima + block * kLanes); }
};

// block_scale() and the reciprocals, for all blocks of the group, from their partial maxima.
HWY_INLINE void compute_scales(const BlockFormat& format, GroupScales& group) {
  const DF df;
  const DI di;
  const auto code_max = hn::Set(df, static_cast<float>(format.code_max));
  const auto last_finite = hn::Set(di, static_cast<int32_t>(format.overflow_bits - 1));
  const auto scale_max = hn::Set(di, static_cast<int32_t>(format.scale_max_bits));
  const auto zero = hn::Zero(di);
  auto special = hn::MaskFromVec(zero);
  for (size_t b = 0; b < kGroupBlocks; b += kLanes) {
    const auto absmax = block_maxima(StoredMaxima{group.maxima + b * kLanes});
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
    special = hn::Or(special, hn::Or(hn::AndNot(is_zero, is_tiny), hn::Or(is_clamped, is_nan)));
    const auto scale = hn::BitCast(df, bits);
    const auto inverse = hn::Div(hn::Set(df, 1.0f), scale);
    hn::Store(scale, df, group.scale + b);
    hn::Store(hn::IfThenZeroElse(hn::RebindMask(df, is_zero), inverse), df, group.inverse + b);
    store_words(hn::ShiftRight<16>(hn::BitCast(DU(), bits)), group.wire + b);
  }
  group.special = !hn::AllFalse(di, special);
}

}  // namespace HWY_NAMESPACE
}  // namespace tersum
HWY_AFTER_NAMESPACE();
#endif  // HWY_TARGET

#endif  // TERSUM_CODEC_KERNELS_BLOCK_SCALES_INL_H_
