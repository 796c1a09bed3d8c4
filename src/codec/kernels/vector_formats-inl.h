// Vectors of float32 from and to the element formats: float32, bfloat16, float16.
#if defined(TERSUM_CODEC_KERNELS_VECTOR_FORMATS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TERSUM_CODEC_KERNELS_VECTOR_FORMATS_INL_H_
#undef TERSUM_CODEC_KERNELS_VECTOR_FORMATS_INL_H_
#else
#define TERSUM_CODEC_KERNELS_VECTOR_FORMATS_INL_H_
#endif

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

struct BFloat16Format {
  static constexpr size_t kBytes = 2;
  static HWY_INLINE VF load(const std::byte* HWY_RESTRICT from) {
    return hn::BitCast(DF(),
                       hn::ShiftLeft<16>(load_words(reinterpret_cast<const uint16_t*>(from))));
  }
  static HWY_INLINE void store(VF value, std::byte* HWY_RESTRICT to) {
    const DU du;
    const auto bits = hn::BitCast(du, value);
    const auto odd = hn::And(hn::ShiftRight<16>(bits), hn::Set(du, 1u));
    const auto rounded = hn::ShiftRight<16>(hn::Add(hn::Add(bits, hn::Set(du, 0x7fffu)), odd));
    const auto is_nan = hn::RebindMask(du, hn::IsNaN(value));
    store_words(hn::IfThenElse(is_nan, hn::Set(du, uint32_t{kBf16Nan}), rounded),
                reinterpret_cast<uint16_t*>(to));
  }
  static HWY_INLINE void store_clean(VF value, std::byte* HWY_RESTRICT to) { store(value, to); }
};

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
