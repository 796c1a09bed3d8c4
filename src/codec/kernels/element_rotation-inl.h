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
#include "codec/kernels/vector_formats-inl.h"
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

// The steps between the vectors of `v`, whose distance in memory is the step's length.
template <size_t kCount>
HWY_INLINE void butterflies(VF (&v)[kCount]) {
  for (size_t step = 1; step < kCount; step *= 2) {
    for (size_t i = 0; i < kCount; ++i) {
      if ((i & step) != 0) continue;
      const auto a = v[i];
      v[i] = hn::Add(a, v[i + step]);
      v[i + step] = hn::Sub(a, v[i + step]);
    }
  }
}

// What a pass does to a vector before its steps and after them.
struct NoFactors {
  HWY_INLINE VF apply(VF value, size_t) const { return value; }
};
struct Beginning {
  const RotationEnds& ends;
  HWY_INLINE VF apply(VF value, size_t at) const {
    if (ends.diagonal != nullptr) value = hn::Mul(value, hn::LoadU(DF(), ends.diagonal + at));
    return hn::Mul(value, hn::LoadU(DF(), ends.signs + at));
  }
};
struct Ending {
  const RotationEnds& ends;
  HWY_INLINE VF apply(VF value, size_t at) const {
    value = hn::Mul(value, hn::LoadU(DF(), ends.signs + at));
    if (ends.diagonal != nullptr) value = hn::Mul(value, hn::LoadU(DF(), ends.diagonal + at));
    if (ends.terms == nullptr) return value;
    return canonical(hn::Add(value, hn::LoadU(DF(), ends.terms + at)));
  }
};

// kCount vectors in a row: the lane steps and the first steps between vectors.
template <size_t kCount, class Before, class After>
HWY_INLINE void near_steps(const LaneSteps& lanes, const float* from, const Before& before,
                           const After& after, size_t at, float* to) {
  VF v[kCount];
  for (size_t i = 0; i < kCount; ++i) {
    const size_t here = at + i * kLanes;
    v[i] = lanes.apply(before.apply(hn::LoadU(DF(), from + here), here));
  }
  butterflies(v);
  for (size_t i = 0; i < kCount; ++i) {
    const size_t here = at + i * kLanes;
    hn::StoreU(after.apply(v[i], here), DF(), to + here);
  }
}

// kCount vectors `step` values apart, for each place in a step.
template <size_t kCount, class After>
HWY_INLINE void far_steps(size_t step, const After& after, size_t at, const float* from,
                          float* to) {
  for (size_t i = at; i < at + step; i += kLanes) {
    VF v[kCount];
    for (size_t k = 0; k < kCount; ++k) v[k] = hn::LoadU(DF(), from + i + k * step);
    butterflies(v);
    for (size_t k = 0; k < kCount; ++k) {
      hn::StoreU(after.apply(v[k], i + k * step), DF(), to + i + k * step);
    }
  }
}

// So many vectors stay in registers on every instruction set.
inline constexpr size_t kNearVectors = 8;

// Only the last steps write to `to`: it may hold what `after` has still to read.
template <class Before, class After>
HWY_INLINE void transform_far(const LaneSteps& lanes, size_t block, size_t count, const float* from,
                              const Before& before, const After& after, float* work, float* to) {
  constexpr size_t kNear = kNearVectors * kLanes;
  for (size_t begin = 0; begin < count; begin += block) {
    for (size_t at = begin; at < begin + block; at += kNear) {
      near_steps<kNearVectors>(lanes, from, before, NoFactors(), at, work);
    }
    size_t step = kNear;
    for (; 8 * step <= block / 2; step *= 8) {
      for (size_t at = begin; at < begin + block; at += 8 * step) {
        far_steps<8>(step, NoFactors(), at, work, work);
      }
    }
    for (; 4 * step <= block / 2; step *= 4) {
      for (size_t at = begin; at < begin + block; at += 4 * step) {
        far_steps<4>(step, NoFactors(), at, work, work);
      }
    }
    if (8 * step == block) {
      far_steps<8>(step, after, begin, work, to);
    } else if (4 * step == block) {
      far_steps<4>(step, after, begin, work, to);
    } else {
      far_steps<2>(step, after, begin, work, to);
    }
  }
}

template <size_t kCount, class Before, class After>
HWY_INLINE void transform_near(const LaneSteps& lanes, size_t count, const float* from,
                               const Before& before, const After& after, float* to) {
  for (size_t at = 0; at < count; at += kCount * kLanes) {
    near_steps<kCount>(lanes, from, before, after, at, to);
  }
}

template <class Before, class After>
HWY_NOINLINE void transform(size_t block, size_t count, const float* from, const Before& before,
                            const After& after, float* work, float* to) {
  const LaneSteps lanes;
  switch (block / kLanes) {
    case 1:
      return transform_near<1>(lanes, count, from, before, after, to);
    case 2:
      return transform_near<2>(lanes, count, from, before, after, to);
    case 4:
      return transform_near<4>(lanes, count, from, before, after, to);
    case 8:
      return transform_near<8>(lanes, count, from, before, after, to);
    default:
      return transform_far(lanes, block, count, from, before, after, work, to);
  }
}

void rotate_tile(const RotationEnds& ends, const float* from, size_t block, size_t count,
                 float* tile) {
  transform(block, count, from, Beginning{ends}, NoFactors(), tile, tile);
}

void unrotate_tile(const RotationEnds& ends, float* tile, size_t block, size_t count, float* to) {
  transform(block, count, tile, NoFactors(), Ending{ends}, tile, to);
}

}  // namespace HWY_NAMESPACE
}  // namespace tersum
HWY_AFTER_NAMESPACE();
#endif  // HWY_TARGET

#endif  // TERSUM_CODEC_KERNELS_ELEMENT_ROTATION_INL_H_
