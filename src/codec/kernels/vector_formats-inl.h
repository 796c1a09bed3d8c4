// Vectors of float32 from and to the element formats: float32, bfloat16, float16.
#if defined(TERSUM_CODEC_KERNELS_VECTOR_FORMATS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TERSUM_CODEC_KERNELS_VECTOR_FORMATS_INL_H_
#undef TERSUM_CODEC_KERNELS_VECTOR_FORMATS_INL_H_
#else
#define TERSUM_CODEC_KERNELS_VECTOR_FORMATS_INL_H_
#endif

#include "codec/kernels/dense_format.h"
#include "codec/kernels/hwy_compat-inl.h"
#include "codec/kernels/numbers.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace tersum {
namespace HWY_NAMESPACE {

HWY_INLINE VF canonical(VF value) {
  const DF df;
  return hn::IfThenElse(hn::IsNaN(value), hn::BitCast(df, hn::Set(DU(), kFloatNan)), value);
}

// Of whole vectors.
HWY_INLINE void clean_nans(float* values, size_t count) {
  for (size_t i = 0; i < count; i += kLanes) {
    hn::StoreU(canonical(hn::LoadU(DF(), values + i)), DF(), values + i);
  }
}

// Each format: kBytes per element; load and store of kLanes elements at byte pointers. store()
// makes NaN canonical; store_clean() is for results that hold no other NaN than the canonical one.
struct Float32Format {
  static constexpr size_t kBytes = 4;
  static HWY_INLINE VF load(const std::byte* HWY_RESTRICT from) {
    return hn::LoadU(DF(), reinterpret_cast<const float*>(from));
  }
  static HWY_INLINE void store_clean(VF value, std::byte* HWY_RESTRICT to) {
    hn::StoreU(value, DF(), reinterpret_cast<float*>(to));
  }
  static HWY_INLINE void store(VF value, std::byte* HWY_RESTRICT to) {
    store_clean(canonical(value), to);
  }
};

// The same past the caches, to where a vector may begin; a fence is the caller's.
struct StreamedFloat32Format : Float32Format {
  static HWY_INLINE void store_clean(VF value, std::byte* HWY_RESTRICT to) {
    hn::Stream(value, DF(), reinterpret_cast<float*>(to));
  }
};

// Bits of the bfloat16 nearest to a value that is no NaN, in the upper halves; the lower ones are
// noise.
HWY_INLINE VU nearest_bf16(VF value) {
  const DU du;
  const auto bits = hn::BitCast(du, value);
  const auto odd = hn::And(hn::ShiftRight<16>(bits), hn::Set(du, 1u));
  return hn::Add(hn::Add(bits, hn::Set(du, 0x7fffu)), odd);
}

struct BFloat16Format {
  static constexpr size_t kBytes = 2;
  // What every value up to this magnitude is rounded by alone; beyond, NaN needs care.
  static constexpr uint32_t kPlainMax = kFloatInfinity;

  static HWY_INLINE VF load(const std::byte* HWY_RESTRICT from) {
    return hn::BitCast(DF(),
                       hn::ShiftLeft<16>(load_words(reinterpret_cast<const uint16_t*>(from))));
  }
  static HWY_INLINE VU round(VF value) {
    const DU du;
    const auto is_nan = hn::RebindMask(du, hn::IsNaN(value));
    return hn::IfThenElse(is_nan, hn::Set(du, kFloatNan), nearest_bf16(value));
  }
  static HWY_INLINE void store_rounded(VU rounded, std::byte* HWY_RESTRICT to) {
    store_words(hn::ShiftRight<16>(rounded), reinterpret_cast<uint16_t*>(to));
  }
  static HWY_INLINE VF value_of(VU rounded) {
    return hn::BitCast(DF(), hn::And(rounded, hn::Set(DU(), 0xffff0000u)));
  }
  static HWY_INLINE void store(VF value, std::byte* HWY_RESTRICT to) {
    store_rounded(round(value), to);
  }
  static HWY_INLINE void store_clean(VF value, std::byte* HWY_RESTRICT to) { store(value, to); }
};

// The bf16 wire; see float_to_bf16_wire().
template <class Limits>
struct Bf16WireFormat : BFloat16Format {
  static constexpr uint32_t kPlainMax = Limits::kLast;

  static HWY_INLINE VU round(VF value) {
    const DI di;
    const auto bits = hn::BitCast(di, value);
    const auto magnitude = hn::And(bits, hn::Set(di, 0x7fffffff));
    const auto last = hn::Set(di, static_cast<int32_t>(Limits::kLast));
    const auto beyond = hn::Gt(magnitude, last);
    const auto finite = hn::Gt(hn::Set(di, static_cast<int32_t>(Limits::kOverflow)), magnitude);
    const auto clamped = hn::Or(last, hn::Xor(bits, magnitude));
    return BFloat16Format::round(
        hn::BitCast(DF(), hn::IfThenElse(hn::And(beyond, finite), clamped, bits)));
  }
  static HWY_INLINE void store(VF value, std::byte* HWY_RESTRICT to) {
    store_rounded(round(value), to);
  }
};

// Rounds several vectors; what needs care is so rare that one question is asked for all of them.
template <class Format, size_t kCount>
HWY_INLINE void round_run(const VF (&values)[kCount], VU (&rounded)[kCount]) {
  const DI di;
  auto largest = hn::Zero(di);
  for (const auto& value : values) {
    largest = hn::Max(largest, hn::And(hn::BitCast(di, value), hn::Set(di, 0x7fffffff)));
  }
  const auto plain_max = hn::Set(di, static_cast<int32_t>(Format::kPlainMax));
  if (HWY_LIKELY(hn::AllFalse(di, hn::Gt(largest, plain_max)))) {
    for (size_t v = 0; v < kCount; ++v) rounded[v] = nearest_bf16(values[v]);
  } else {
    for (size_t v = 0; v < kCount; ++v) rounded[v] = Format::round(values[v]);
  }
}

struct Float16Format {
  static constexpr size_t kBytes = 2;
  static HWY_INLINE VF load(const std::byte* HWY_RESTRICT from) {
    return half_bits_to_float(load_words(reinterpret_cast<const uint16_t*>(from)));
  }
  static HWY_INLINE void store(VF value, std::byte* HWY_RESTRICT to) {
    store_words(float_to_half_bits(value), reinterpret_cast<uint16_t*>(to));
  }
  static HWY_INLINE void store_clean(VF value, std::byte* HWY_RESTRICT to) { store(value, to); }
};

}  // namespace HWY_NAMESPACE
}  // namespace tersum
HWY_AFTER_NAMESPACE();

#endif  // TERSUM_CODEC_KERNELS_VECTOR_FORMATS_INL_H_
