// The division that ends an average, in vectors of float32.
#if defined(TERSUM_CODEC_KERNELS_FINISH_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TERSUM_CODEC_KERNELS_FINISH_INL_H_
#undef TERSUM_CODEC_KERNELS_FINISH_INL_H_
#else
#define TERSUM_CODEC_KERNELS_FINISH_INL_H_
#endif

#include "codec/kernels/combine_args.h"
#include "codec/kernels/hwy_compat-inl.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace tersum {
namespace HWY_NAMESPACE {

class VectorFinish {
 public:
  explicit VectorFinish(const Finish& finish)
      : multiplies_(finish.divides() && finish.divides_exactly()),
        divides_(finish.divides() && !finish.divides_exactly()),
        factor_(multiplies_ ? 1.0f / static_cast<float>(finish.divisor)
                            : static_cast<float>(finish.divisor)) {}

  template <size_t kCount>
  HWY_INLINE void apply(VF (&sum)[kCount]) const {
    if (multiplies_) {
      for (auto& value : sum) value = hn::Mul(value, hn::Set(DF(), factor_));
    } else if (divides_) {
      for (auto& value : sum) value = hn::Div(value, hn::Set(DF(), factor_));
    }
  }

 private:
  bool multiplies_;
  bool divides_;
  float factor_;
};

}  // namespace HWY_NAMESPACE
}  // namespace tersum
HWY_AFTER_NAMESPACE();

#endif  // TERSUM_CODEC_KERNELS_FINISH_INL_H_
