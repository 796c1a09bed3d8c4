// The Hadamard transform of the blocks of a tile.
//
// Steps shorter than a vector are done inside one: exchange the partners, change the sign of one of
// them, add. a + (-b) is a - b bit for bit, so the order of sums is the reference's.
#if defined(TERSUM_CODEC_KERNELS_ELEMENT_ROTATION_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TERSUM_CODEC_KERNELS_ELEMENT_ROTATION_INL_H_
#undef TERSUM_CODEC_KERNELS_ELEMENT_ROTATION_INL_H_
#else
#define TERSUM_CODEC_KERNELS_ELEMENT_ROTATION_INL_H_
#endif

#include "codec/kernels/element_kernels.h"
#include "codec/kernels/hwy_compat-inl.h"
#include "hwy/highway.h"

#if HWY_TARGET != HWY_SCALAR  // the reference serves there
HWY_BEFORE_NAMESPACE();
namespace tersum {
namespace HWY_NAMESPACE {

// The sign bit in the lanes whose number has the bit `step`.
HWY_INLINE VU lane_signs(int32_t step) {
  const DI di;
  const auto is_second = hn::Ne(hn::And(hn::Iota(di, 0), hn::Set(di, step)), hn::Zero(di));
  return hn::BitCast(DU(), hn::IfThenElseZero(is_second, hn::Set(di, INT32_MIN)));
}

HWY_INLINE VF with_partner(VF value, VF partner, VU signs) {
  const DU du;
  return hn::Add(partner, hn::BitCast(DF(), hn::Xor(hn::BitCast(du, value), signs)));
}

class LaneSteps {
 public:
  LaneSteps()
      : one_(lane_signs(1)), two_(lane_signs(2)), four_(lane_signs(4)), eight_(lane_signs(8)) {}

  HWY_INLINE VF apply(VF v) const {
    v = with_partner(v, hn::Shuffle2301(v), one_);
    v = with_partner(v, hn::Shuffle1032(v), two_);
#if HWY_CAP_GE512
    v = with_partner(v, hn::SwapAdjacentBlocks(v), four_);
    v = with_partner(v, hn::ConcatLowerUpper(DF(), v, v), eight_);
#elif HWY_CAP_GE256
    v = with_partner(v, hn::ConcatLowerUpper(DF(), v, v), four_);
#endif
    return v;
  }

 private:
  VU one_;
  VU two_;
  VU four_;
  VU eight_;
};

// The steps of whole vectors.
HWY_INLINE void long_steps(size_t block, float* HWY_RESTRICT x) {
  const DF df;
  for (size_t step = kLanes; step < block; step *= 2) {
    for (size_t begin = 0; begin < block; begin += 2 * step) {
      for (size_t i = begin; i < begin + step; i += kLanes) {
        const auto a = hn::Load(df, x + i);
        const auto b = hn::Load(df, x + i + step);
        hn::Store(hn::Add(a, b), df, x + i);
        hn::Store(hn::Sub(a, b), df, x + i + step);
      }
    }
  }
}

void rotate_tile(const float* factors, size_t block, size_t count, float* tile) {
  const DF df;
  const LaneSteps steps;
  for (size_t begin = 0; begin < count; begin += block) {
    for (size_t i = begin; i < begin + block; i += kLanes) {
      const auto scaled = hn::Mul(hn::Load(df, tile + i), hn::LoadU(df, factors + i));
      hn::Store(steps.apply(scaled), df, tile + i);
    }
    long_steps(block, tile + begin);
  }
}

void unrotate_tile(const float* factors, size_t block, size_t count, float* tile) {
  const DF df;
  const LaneSteps steps;
  for (size_t begin = 0; begin < count; begin += block) {
    for (size_t i = begin; i < begin + block; i += kLanes) {
      hn::Store(steps.apply(hn::Load(df, tile + i)), df, tile + i);
    }
    long_steps(block, tile + begin);
    for (size_t i = begin; i < begin + block; i += kLanes) {
      hn::Store(hn::Mul(hn::Load(df, tile + i), hn::LoadU(df, factors + i)), df, tile + i);
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace tersum
HWY_AFTER_NAMESPACE();
#endif  // HWY_TARGET

#endif  // TERSUM_CODEC_KERNELS_ELEMENT_ROTATION_INL_H_
