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
    alignas(64) double lanes[kDoubleLanes];
    hn::Store(fold_vectors<kErrorVectors>(sums), dd, lanes);
    for (size_t half = kDoubleLanes / 2; half > 0; half /= 2) {
      for (size_t lane = 0; lane < half; ++lane) lanes[lane] += lanes[lane + half];
    }
    errors[b] = std::isfinite(lanes[0]) ? lanes[0] : 0;
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace tersum
HWY_AFTER_NAMESPACE();
#endif  // HWY_TARGET

#endif  // TERSUM_CODEC_KERNELS_ELEMENT_ERRORS_INL_H_
