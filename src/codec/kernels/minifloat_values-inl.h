// Magnitudes of minifloats: an exponent's bits above a mantissa's, as a float32.
#if defined(TERSUM_CODEC_KERNELS_MINIFLOAT_VALUES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TERSUM_CODEC_KERNELS_MINIFLOAT_VALUES_INL_H_
#undef TERSUM_CODEC_KERNELS_MINIFLOAT_VALUES_INL_H_
#else
#define TERSUM_CODEC_KERNELS_MINIFLOAT_VALUES_INL_H_
#endif

#include "codec/kernels/hwy_compat-inl.h"
#include "codec/kernels/numbers.h"
#include "hwy/highway.h"

#if HWY_TARGET != HWY_SCALAR  // the reference serves there
HWY_BEFORE_NAMESPACE();
namespace tersum {
namespace HWY_NAMESPACE {

class MinifloatValues {
 public:
  // `least_exponent`: of the least normal number.
  HWY_INLINE MinifloatValues(int mantissa_bits, int least_exponent)
      : to_place_(23 - mantissa_bits),
        least_normal_(1 << mantissa_bits),
        rebias_((126 + least_exponent) << mantissa_bits),
        step_(float_from_bits(static_cast<uint32_t>(127 + least_exponent - mantissa_bits) << 23)) {}

  // Not of those that are NaN or infinite. Below the least normal number they are counted in steps:
  // at their place in a float32 they would be its denormals, on which some cores spend a hundred
  // times as long, and which a thread may flush.
  HWY_INLINE VF of(VI bits) const {
    const DF df;
    const DI di;
    const auto rebiased = hn::Add(bits, hn::Set(di, rebias_));
    const auto normal = hn::BitCast(df, hn::ShiftLeftSame(rebiased, to_place_));
    const auto denormal = hn::Mul(hn::ConvertTo(df, bits), hn::Set(df, step_));
    const auto is_small = hn::RebindMask(df, hn::Gt(hn::Set(di, least_normal_), bits));
    return hn::IfThenElse(is_small, denormal, normal);
  }

 private:
  int to_place_;
  int32_t least_normal_;
  int32_t rebias_;
  float step_;
};

}  // namespace HWY_NAMESPACE
}  // namespace tersum
HWY_AFTER_NAMESPACE();
#endif  // HWY_TARGET

#endif  // TERSUM_CODEC_KERNELS_MINIFLOAT_VALUES_INL_H_
