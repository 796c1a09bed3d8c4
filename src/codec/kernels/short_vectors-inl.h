// Vectors of int16 for the integer transform: exchanges of what two of them hold, sums of
// neighbours.
#if defined(TERSUM_CODEC_KERNELS_SHORT_VECTORS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TERSUM_CODEC_KERNELS_SHORT_VECTORS_INL_H_
#undef TERSUM_CODEC_KERNELS_SHORT_VECTORS_INL_H_
#else
#define TERSUM_CODEC_KERNELS_SHORT_VECTORS_INL_H_
#endif

#include "codec/kernels/hwy_compat-inl.h"
#include "hwy/highway.h"

#if HWY_TARGET != HWY_SCALAR  // the reference serves there
HWY_BEFORE_NAMESPACE();
namespace tersum {
namespace HWY_NAMESPACE {

using DH = hn::Repartition<int16_t, DI>;
using VH = hn::Vec<DH>;
inline constexpr size_t kShortLanes = 2 * kLanes;

HWY_INLINE void butterfly(VH& a, VH& b) {
  const auto sum = hn::Add(a, b);
  b = hn::Sub(a, b);
  a = sum;
}

// In each part of 128 bits, a0 a1 … and b0 b1 … become a0 b0 a1 b1 …, its second half in b.
HWY_INLINE void interleave(VH& a, VH& b) {
  const DH dh;
  const auto lower = hn::InterleaveLower(dh, a, b);
  b = hn::InterleaveUpper(dh, a, b);
  a = lower;
}
// The same of pairs a0 a1, ….
HWY_INLINE void interleave_pairs(VH& a, VH& b) {
  const DH dh;
  const DI di;
  const auto pairs_a = hn::BitCast(di, a);
  const auto pairs_b = hn::BitCast(di, b);
  a = hn::BitCast(dh, hn::InterleaveLower(di, pairs_a, pairs_b));
  b = hn::BitCast(dh, hn::InterleaveUpper(di, pairs_a, pairs_b));
}

// Of the parts of 128 bits of a, then of b, every second one: first those of even numbers.
HWY_INLINE void separate_parts([[maybe_unused]] VH& a, [[maybe_unused]] VH& b) {
#if HWY_CAP_GE512
  const __m512i even = _mm512_shuffle_i32x4(a.raw, b.raw, 0x88);
  b = VH{_mm512_shuffle_i32x4(a.raw, b.raw, 0xdd)};
  a = VH{even};
#elif HWY_CAP_GE256
  const auto even = hn::ConcatLowerLower(DH(), b, a);
  b = hn::ConcatUpperUpper(DH(), b, a);
  a = even;
#endif
}

// Lanes 0, 2, … and 1, 3, … as int32.
HWY_INLINE VI even_lanes(VH v) {
  return hn::ShiftRight<16>(hn::ShiftLeft<16>(hn::BitCast(DI(), v)));
}
HWY_INLINE VI odd_lanes(VH v) { return hn::ShiftRight<16>(hn::BitCast(DI(), v)); }

// Their sums and differences.
HWY_INLINE void pair_butterfly(VH v, VI& sum, VI& difference) {
#if TERSUM_X86_TARGET
  // Products with 1 and 1, with 1 and -1, added up.
  const auto ones = hn::Set(DH(), 1);
  const auto signs = hn::BitCast(DH(), hn::Set(DI(), static_cast<int32_t>(0xffff0001U)));
#if HWY_CAP_GE512
  sum = VI{_mm512_madd_epi16(v.raw, ones.raw)};
  difference = VI{_mm512_madd_epi16(v.raw, signs.raw)};
#elif HWY_CAP_GE256
  sum = VI{_mm256_madd_epi16(v.raw, ones.raw)};
  difference = VI{_mm256_madd_epi16(v.raw, signs.raw)};
#else
  sum = VI{_mm_madd_epi16(v.raw, ones.raw)};
  difference = VI{_mm_madd_epi16(v.raw, signs.raw)};
#endif
#else
  sum = hn::Add(even_lanes(v), odd_lanes(v));
  difference = hn::Sub(even_lanes(v), odd_lanes(v));
#endif
}

}  // namespace HWY_NAMESPACE
}  // namespace tersum
HWY_AFTER_NAMESPACE();
#endif  // HWY_TARGET

#endif  // TERSUM_CODEC_KERNELS_SHORT_VECTORS_INL_H_
