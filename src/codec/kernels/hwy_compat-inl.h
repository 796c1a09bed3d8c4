// What Highway 1.0.3 lacks for the codec kernels, per target.
//
// No include guard in the usual sense: foreach_target includes this once per target.
#if defined(TERSUM_CODEC_KERNELS_HWY_COMPAT_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TERSUM_CODEC_KERNELS_HWY_COMPAT_INL_H_
#undef TERSUM_CODEC_KERNELS_HWY_COMPAT_INL_H_
#else
#define TERSUM_CODEC_KERNELS_HWY_COMPAT_INL_H_
#endif

#include "codec/kernels/numbers.h"
#include "hwy/highway.h"

// True where packs and float16 conversions are those of x86 with the given width.
#define TERSUM_X86_TARGET                                                         \
  (HWY_TARGET == HWY_SSSE3 || HWY_TARGET == HWY_SSE4 || HWY_TARGET == HWY_AVX2 || \
   HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX3_DL)

HWY_BEFORE_NAMESPACE();
namespace tersum {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Every kernel works on vectors of this many floats: 4, 8 or 16.
using DF = hn::CappedTag<float, 16>;
using DU = hn::RebindToUnsigned<DF>;
using DI = hn::RebindToSigned<DF>;
using VF = hn::Vec<DF>;
using VU = hn::Vec<DU>;
using VI = hn::Vec<DI>;
inline constexpr size_t kLanes = hn::MaxLanes(DF());

// Stores the low bytes of the 4 * kLanes integers of a, b, c, d in this order; each must fit an
// int8. One store for four vectors: the packs work inside 128-bit parts, so that on wider vectors
// 32-bit units arrive transposed (part-major instead of vector-major) and one permutation sets them
// right.
HWY_INLINE void store_bytes(VI a, VI b, VI c, VI d, int8_t* HWY_RESTRICT to) {
  const DI di;
#if TERSUM_X86_TARGET
  const hn::Repartition<int16_t, DI> dw;
  const auto ab = hn::ReorderDemote2To(dw, a, b);
  const auto cd = hn::ReorderDemote2To(dw, c, d);
#if HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX3_DL
  alignas(64) static constexpr int32_t kOrder[16] = {0, 4, 8,  12, 1, 5, 9,  13,
                                                     2, 6, 10, 14, 3, 7, 11, 15};
  const __m512i packed = _mm512_packs_epi16(ab.raw, cd.raw);
  _mm512_storeu_si512(to, _mm512_permutexvar_epi32(_mm512_load_si512(kOrder), packed));
#elif HWY_TARGET == HWY_AVX2
  alignas(32) static constexpr int32_t kOrder[8] = {0, 4, 1, 5, 2, 6, 3, 7};
  const __m256i packed = _mm256_packs_epi16(ab.raw, cd.raw);
  const __m256i order = _mm256_load_si256(reinterpret_cast<const __m256i*>(kOrder));
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), _mm256_permutevar8x32_epi32(packed, order));
#else
  _mm_storeu_si128(reinterpret_cast<__m128i*>(to), _mm_packs_epi16(ab.raw, cd.raw));
#endif
  (void)di;
#else
  const hn::Rebind<int8_t, DI> db;
  hn::StoreU(hn::DemoteTo(db, a), db, to);
  hn::StoreU(hn::DemoteTo(db, b), db, to + kLanes);
  hn::StoreU(hn::DemoteTo(db, c), db, to + 2 * kLanes);
  hn::StoreU(hn::DemoteTo(db, d), db, to + 3 * kLanes);
  (void)di;
#endif
}

// The low 16 bits of the integers of a (then of b), each at most 0xffff.
HWY_INLINE void store_words(VU a, uint16_t* HWY_RESTRICT to) {
  const hn::Rebind<uint16_t, DU> dh;
  hn::StoreU(hn::DemoteTo(dh, hn::BitCast(DI(), a)), dh, to);
}

HWY_INLINE VU load_words(const uint16_t* HWY_RESTRICT from) {
  const hn::Rebind<uint16_t, DU> dh;
  return hn::PromoteTo(DU(), hn::LoadU(dh, from));
}

// float16 bits (zero-extended) to float32 and back, with the same results as numbers.h.
HWY_INLINE VF half_bits_to_float(VU half) {
  const DF df;
  const DU du;
  const auto magnitude = hn::And(half, hn::Set(du, 0x7fffu));
  const auto sign = hn::ShiftLeft<16>(hn::Xor(half, magnitude));
  // Read as a float32, the shifted bits are the number times 2^-112, denormals included; the
  // product is exact.
  const auto scaled = hn::Mul(hn::BitCast(df, hn::ShiftLeft<13>(magnitude)), hn::Set(df, 0x1p112f));
  const auto is_special = hn::Gt(hn::BitCast(DI(), magnitude), hn::Set(DI(), 0x7bff));
  const auto is_nan = hn::Gt(hn::BitCast(DI(), magnitude), hn::Set(DI(), 0x7c00));
  auto bits = hn::BitCast(du, scaled);
  bits = hn::IfThenElse(hn::RebindMask(du, is_special), hn::Set(du, kFloatInfinity), bits);
  bits = hn::Or(bits, sign);
  bits = hn::IfThenElse(hn::RebindMask(du, is_nan), hn::Set(du, kFloatNan), bits);
  return hn::BitCast(df, bits);
}

HWY_INLINE VU float_to_half_bits(VF value) {
  const DF df;
  const DU du;
  const DI di;
  const auto bits = hn::BitCast(du, value);
  const auto magnitude = hn::And(bits, hn::Set(du, ~kFloatSignBit));
  const auto sign = hn::ShiftRight<16>(hn::Xor(bits, magnitude));
  const auto signed_magnitude = hn::BitCast(di, magnitude);
  // Normal: rebias and round 13 bits away. Denormal: adding 1/2 leaves multiples of 2^-24 as the
  // low bits of the sum, rounded by the addition itself.
  const auto odd = hn::And(hn::ShiftRight<13>(magnitude), hn::Set(du, 1u));
  const auto rounded = hn::Add(hn::Add(magnitude, hn::Set(du, 0x0fffu)), odd);
  const auto normal = hn::Sub(hn::ShiftRight<13>(rounded), hn::Set(du, 112u << 10));
  const auto half_sum = hn::Add(hn::BitCast(df, magnitude), hn::Set(df, 0.5f));
  const auto denormal = hn::Sub(hn::BitCast(du, half_sum), hn::Set(du, 0x3f000000u));
  const auto is_denormal = hn::Gt(hn::Set(di, int32_t{113 << 23}), signed_magnitude);
  const auto is_overflow = hn::Gt(signed_magnitude, hn::Set(di, int32_t{kHalfOverflow} - 1));
  const auto is_nan = hn::Gt(signed_magnitude, hn::Set(di, int32_t{kFloatInfinity}));
  auto half = hn::IfThenElse(hn::RebindMask(du, is_denormal), denormal, normal);
  half = hn::IfThenElse(hn::RebindMask(du, is_overflow), hn::Set(du, 0x7c00u), half);
  half = hn::Or(half, sign);
  return hn::IfThenElse(hn::RebindMask(du, is_nan), hn::Set(du, uint32_t{kHalfNan}), half);
}

}  // namespace HWY_NAMESPACE
}  // namespace tersum
HWY_AFTER_NAMESPACE();

#endif  // TERSUM_CODEC_KERNELS_HWY_COMPAT_INL_H_
