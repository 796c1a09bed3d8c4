// What coding lost, block by block.
#if defined(TERSUM_CODEC_KERNELS_ELEMENT_ERRORS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TERSUM_CODEC_KERNELS_ELEMENT_ERRORS_INL_H_
#undef TERSUM_CODEC_KERNELS_ELEMENT_ERRORS_INL_H_
#else
#define TERSUM_CODEC_KERNELS_ELEMENT_ERRORS_INL_H_
#endif

#include <cmath>

#include "codec/kernels/element_kernels.h"
#include "codec/kernels/hwy_compat-inl.h"
#include "hwy/highway.h"

#if HWY_TARGET != HWY_SCALAR  // the reference serves there
HWY_BEFORE_NAMESPACE();
namespace tersum {
namespace HWY_NAMESPACE {

using DD = hn::CappedTag<double, 8>;
using VD = hn::Vec<DD>;
inline constexpr size_t kDoubleLanes = hn::MaxLanes(DD());
inline constexpr size_t kErrorVectors = kErrorLanes / kDoubleLanes;

// Adds the sums that are half of kVectors vectors apart, until one vector is left.
template <size_t kVectors>
HWY_INLINE VD fold_vectors(VD (&sums)[kErrorVectors]) {
  if constexpr (kVectors == 1) {
    return sums[0];
  } else {
    for (size_t v = 0; v < kVectors / 2; ++v) sums[v] = hn::Add(sums[v], sums[v + kVectors / 2]);
    return fold_vectors<kVectors / 2>(sums);
  }
}

// The same with the lanes of a vector.
template <class D>
HWY_INLINE double fold_lanes(D /*d*/, hn::Vec<D> sum) {
  if constexpr (hn::MaxLanes(D()) == 1) {
    return hn::GetLane(sum);
  } else {
    const hn::Half<D> dh;
    return fold_lanes(dh, hn::Add(hn::LowerHalf(dh, sum), hn::UpperHalf(dh, sum)));
  }
}

void block_errors(const float* HWY_RESTRICT values, const float* HWY_RESTRICT decoded, size_t block,
                  size_t blocks, double* HWY_RESTRICT errors) {
  const DD dd;
  const hn::Rebind<float, DD> df;
  for (size_t b = 0; b < blocks; ++b) {
    VD sums[kErrorVectors];
    for (auto& sum : sums) sum = hn::Zero(dd);
    for (size_t i = b * block; i < (b + 1) * block; i += kErrorLanes) {
      for (size_t v = 0; v < kErrorVectors; ++v) {
        const size_t at = i + v * kDoubleLanes;
        const auto off = hn::Sub(hn::LoadU(df, values + at), hn::LoadU(df, decoded + at));
        const auto wide = hn::PromoteTo(dd, off);
        sums[v] = hn::Add(sums[v], hn::Mul(wide, wide));
      }
    }
    const double error = fold_lanes(dd, fold_vectors<kErrorVectors>(sums));
    errors[b] = std::isfinite(error) ? error : 0;
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace tersum
HWY_AFTER_NAMESPACE();
#endif  // HWY_TARGET

#endif  // TERSUM_CODEC_KERNELS_ELEMENT_ERRORS_INL_H_
