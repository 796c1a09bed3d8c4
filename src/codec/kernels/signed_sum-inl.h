// Sums with a product by 1 or -1.
#if defined(TERSUM_CODEC_KERNELS_SIGNED_SUM_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TERSUM_CODEC_KERNELS_SIGNED_SUM_INL_H_
#undef TERSUM_CODEC_KERNELS_SIGNED_SUM_INL_H_
#else
#define TERSUM_CODEC_KERNELS_SIGNED_SUM_INL_H_
#endif

#include "codec/kernels/hwy_compat-inl.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace tersum {
namespace HWY_NAMESPACE {

// partner + value * sign, where sign is 1 or -1: as no product is rounded, a fused multiply-add
// gives the bits of an addition, at half the instructions of changing a sign and adding.
HWY_INLINE VF signed_sum(VF value, VF sign, VF partner) { return hn::MulAdd(value, sign, partner); }

}  // namespace HWY_NAMESPACE
}  // namespace tersum
HWY_AFTER_NAMESPACE();

#endif  // TERSUM_CODEC_KERNELS_SIGNED_SUM_INL_H_
