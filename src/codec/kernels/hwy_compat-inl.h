// What Highway 1.0.3 lacks for the codec kernels, per target.
//
// No include guard in the usual sense: foreach_target includes this once per target.
#if defined(TERSUM_CODEC_KERNELS_HWY_COMPAT_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TERSUM_CODEC_KERNELS_HWY_COMPAT_INL_H_
#undef TERSUM_CODEC_KERNELS_HWY_COMPAT_INL_H_
#else
#define TERSUM_CODEC_KERNELS_HWY_COMPAT_INL_H_
#endif

#include <cstddef>
#include <cstdint>

#include "codec/kernels/numbers.h"
#include "hwy/cache_control.h"
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

// Asks for what lies kPrefetchBytes behind `at`: that much is computed while it comes. A core whose
// kernels only load waits for memory and computes in turns, since its own prefetcher stops at every
// page: int8 of 128 MiB was encoded in 14.9 ms so, in 11.9 asked for, and combined in 24.1 and
// 18.1; within a cache it makes no difference. Distances of 1 to 4 KiB do alike. What is asked for
// may lie behind the array: a prefetch cannot fault.
inline constexpr size_t kPrefetchBytes = 2048;
inline constexpr size_t kLineBytes = 64;

template <size_t kLines>
HWY_INLINE void prefetch_ahead(const void* at) {
  const char* const ahead = static_cast<const char*>(at) + kPrefetchBytes;
  for (size_t line = 0; line < kLines; ++line) hwy::Prefetch(ahead + line * kLineBytes);
}

// The integers nearest to values that are known to fit, ties to even. Highway's own also handles
// those that do not, at four instructions a vector.
HWY_INLINE VI nearest_int(VF value) {
#if HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX3_DL
  return VI{_mm512_cvtps_epi32(value.raw)};
#elif HWY_TARGET == HWY_AVX2
  return VI{_mm256_cvtps_epi32(value.raw)};
#elif HWY_TARGET == HWY_SSE4 || HWY_TARGET == HWY_SSSE3
  return VI{_mm_cvtps_epi32(value.raw)};
#else
  return hn::NearestInt(value);
#endif
}

// The magnitude of `value`, at most `most`.
HWY_INLINE VF limited_magnitude(VF value, VF most) {
#if HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX3_DL
  constexpr int kLesserMagnitude = 2;
  constexpr int kNoSign = 2 << 2;
  return VF{_mm512_range_ps(value.raw, most.raw, kNoSign | kLesserMagnitude)};
#else
  return hn::Min(hn::Abs(value), most);
#endif
}

// One more in the lanes of `mask`.
HWY_INLINE VI add_one_where(hn::Mask<DF> mask, VI v) {
#if HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX3_DL
  return VI{_mm512_mask_add_epi32(v.raw, mask.raw, v.raw, _mm512_set1_epi32(1))};
#else
  return hn::Sub(v, hn::BitCast(DI(), hn::VecFromMask(DF(), mask)));
#endif
}

// Each bit from `ones` where `mask` has it, else from `zeros`. Below AVX-512 Highway's own selects
// whole lanes.
HWY_INLINE VI select_bits(VI mask, VI ones, VI zeros) {
#if HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX3_DL
  return hn::IfVecThenElse(mask, ones, zeros);
#else
  return hn::Or(hn::And(mask, ones), hn::AndNot(mask, zeros));
#endif
}

// True where one instruction looks up 16 floats.
#define TERSUM_HAS_LOOKUP16 (HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX3_DL)

#if TERSUM_HAS_LOOKUP16
// table[index % 16], lane by lane.
HWY_INLINE VF lookup16(VF table, VI index) {
  return VF{_mm512_permutexvar_ps(index.raw, table.raw)};
}
#endif

// True where 16 floats are in registers when they are looked up.
#define TERSUM_HAS_TABLE16 (TERSUM_HAS_LOOKUP16 || HWY_TARGET == HWY_AVX2)

#if TERSUM_HAS_TABLE16
// 16 floats, which may lie unaligned.
class Table16 {
 public:
  explicit HWY_INLINE Table16(const float* from) {
    for (size_t i = 0; i < kParts; ++i) parts_[i] = hn::LoadU(DF(), from + i * kLanes);
  }
  // Entry index % 16, lane by lane.
  HWY_INLINE VF of(VI index) const {
#if TERSUM_HAS_LOOKUP16
    return lookup16(parts_[0], index);
#else
    const __m256 low = _mm256_permutevar8x32_ps(parts_[0].raw, index.raw);
    const __m256 high = _mm256_permutevar8x32_ps(parts_[1].raw, index.raw);
    const __m256 which = _mm256_castsi256_ps(_mm256_slli_epi32(index.raw, 28));
    return VF{_mm256_blendv_ps(low, high, which)};
#endif
  }

 private:
  static constexpr size_t kParts = 16 / kLanes;
  VF parts_[kParts];
};

// Entry index % 32 of a table that is aligned to 64 bytes, lane by lane.
HWY_INLINE VF lookup32(const float* table, VI index) {
#if TERSUM_HAS_LOOKUP16
  return VF{_mm512_permutex2var_ps(_mm512_load_ps(table), index.raw, _mm512_load_ps(table + 16))};
#else
  const __m256 which = _mm256_castsi256_ps(_mm256_slli_epi32(index.raw, 27));
  return VF{
      _mm256_blendv_ps(Table16(table).of(index).raw, Table16(table + 16).of(index).raw, which)};
#endif
}
HWY_INLINE VI lookup32(const int32_t* table, VI index) {
  return hn::BitCast(DI(), lookup32(reinterpret_cast<const float*>(table), index));
}
#endif

// What store_bytes() may do to vectors of bytes: nothing.
struct SameBytes {
  template <class V>
  HWY_INLINE V operator()(V bytes) const {
    return bytes;
  }
};

// 4 * kLanes integers that each fit an int8, as one vector of bytes and back in memory in the order
// a, b, c, d: one store for four vectors. The packs of x86 work inside 128-bit parts, so that on
// wider vectors 32-bit units arrive transposed (part-major instead of vector-major); one
// permutation when storing sets them right.
#if TERSUM_X86_TARGET
using PackedBytes = hn::Vec<hn::Repartition<int8_t, DI>>;

HWY_INLINE PackedBytes pack_bytes(const VI (&v)[4]) {
  const hn::Repartition<int16_t, DI> dw;
  const auto ab = hn::ReorderDemote2To(dw, v[0], v[1]);
  const auto cd = hn::ReorderDemote2To(dw, v[2], v[3]);
#if HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX3_DL
  return PackedBytes{_mm512_packs_epi16(ab.raw, cd.raw)};
#elif HWY_TARGET == HWY_AVX2
  return PackedBytes{_mm256_packs_epi16(ab.raw, cd.raw)};
#else
  return PackedBytes{_mm_packs_epi16(ab.raw, cd.raw)};
#endif
}

HWY_INLINE void store_packed(PackedBytes packed, int8_t* HWY_RESTRICT to) {
#if HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX3_DL
  alignas(64) static constexpr int32_t kOrder[16] = {0, 4, 8,  12, 1, 5, 9,  13,
                                                     2, 6, 10, 14, 3, 7, 11, 15};
  _mm512_storeu_si512(to, _mm512_permutexvar_epi32(_mm512_load_si512(kOrder), packed.raw));
#elif HWY_TARGET == HWY_AVX2
  alignas(32) static constexpr int32_t kOrder[8] = {0, 4, 1, 5, 2, 6, 3, 7};
  const __m256i order = _mm256_load_si256(reinterpret_cast<const __m256i*>(kOrder));
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(to),
                      _mm256_permutevar8x32_epi32(packed.raw, order));
#else
  _mm_storeu_si128(reinterpret_cast<__m128i*>(to), packed.raw);
#endif
}

// `change` is applied to vectors of bytes, of any length; what did not fit was saturated.
template <class Change>
HWY_INLINE void store_bytes(const VI (&codes)[4], const Change& change, int8_t* HWY_RESTRICT to) {
  store_packed(change(pack_bytes(codes)), to);
}

// Bytes whose low nibbles are those of `low` and whose high ones are the low ones of `high`.
HWY_INLINE void store_nibbles(const VI (&low)[4], const VI (&high)[4], int8_t* HWY_RESTRICT to) {
  const hn::Repartition<int8_t, DI> db;
  const hn::Repartition<uint16_t, DI> dw;
  // Nothing shifts bytes; what 16-bit lanes shift across is masked away.
  const auto shifted = hn::BitCast(db, hn::ShiftLeft<4>(hn::BitCast(dw, pack_bytes(high))));
  const auto mask = hn::Set(db, 0x0f);
  store_packed(hn::Or(hn::AndNot(mask, shifted), hn::And(mask, pack_bytes(low))), to);
}
#else
template <class Change>
HWY_INLINE void store_bytes(const VI (&codes)[4], const Change& change, int8_t* HWY_RESTRICT to) {
  const hn::Rebind<int8_t, DI> db;
  for (size_t i = 0; i < 4; ++i) {
    hn::StoreU(change(hn::DemoteTo(db, codes[i])), db, to + i * kLanes);
  }
}

HWY_INLINE void store_nibbles(const VI (&low)[4], const VI (&high)[4], int8_t* HWY_RESTRICT to) {
  VI both[4];
  for (size_t i = 0; i < 4; ++i) {
    both[i] = hn::Or(hn::ShiftLeft<4>(high[i]), hn::And(low[i], hn::Set(DI(), 0x0f)));
  }
  store_bytes(both, SameBytes(), to);
}
#endif

HWY_INLINE void store_bytes(const VI (&codes)[4], int8_t* HWY_RESTRICT to) {
  store_bytes(codes, SameBytes(), to);
}

// Notices NaN among the vectors that it is shown, two at a time: half a comparison each.
class NanWatch {
 public:
#if HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX3_DL
  // A comparison under a mask is an And, so that the masks need no instruction of their own.
  HWY_INLINE void watch(VF a, VF b) {
    ordered_ = _mm512_mask_cmp_ps_mask(ordered_, a.raw, b.raw, _CMP_ORD_Q);
  }
  [[nodiscard]] HWY_INLINE bool seen() const { return ordered_ != 0xffff; }

 private:
  __mmask16 ordered_ = 0xffff;
#else
  HWY_INLINE NanWatch() : unordered_(hn::Zero(DF())) {}
  HWY_INLINE void watch(VF a, VF b) { unordered_ = hn::Or(unordered_, unordered(a, b)); }
  [[nodiscard]] HWY_INLINE bool seen() const {
    return !hn::AllFalse(DF(), hn::MaskFromVec(unordered_));
  }

 private:
  static HWY_INLINE VF unordered(VF a, VF b) {
#if HWY_TARGET == HWY_AVX2
    return VF{_mm256_cmp_ps(a.raw, b.raw, _CMP_UNORD_Q)};
#elif HWY_TARGET == HWY_SSE4 || HWY_TARGET == HWY_SSSE3
    return VF{_mm_cmpunord_ps(a.raw, b.raw)};
#else
    return hn::VecFromMask(DF(), hn::Or(hn::IsNaN(a), hn::IsNaN(b)));
#endif
  }

  VF unordered_;
#endif
};

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
