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

#include "codec/kernels/block_scales-inl.h"
#include "codec/kernels/element_kernels.h"
#include "codec/kernels/hwy_compat-inl.h"
#include "codec/kernels/signed_sum-inl.h"
#include "codec/kernels/vector_formats-inl.h"
#include "hwy/highway.h"

#if HWY_TARGET != HWY_SCALAR  // the reference serves there
HWY_BEFORE_NAMESPACE();
namespace tersum {
namespace HWY_NAMESPACE {

// -1 in the lanes whose number has the bit `step`, 1 in the others.
HWY_INLINE VF lane_signs(int32_t step) {
  const DF df;
  const DI di;
  const auto is_second = hn::Ne(hn::And(hn::Iota(di, 0), hn::Set(di, step)), hn::Zero(di));
  return hn::IfThenElse(hn::RebindMask(df, is_second), hn::Set(df, -1.0F), hn::Set(df, 1.0F));
}

class LaneSteps {
 public:
  LaneSteps()
      : one_(lane_signs(1)), two_(lane_signs(2)), four_(lane_signs(4)), eight_(lane_signs(8)) {}

  HWY_INLINE VF apply(VF v) const {
    v = apply_first_three(v);
#if HWY_CAP_GE512
    v = signed_sum(v, eight_, hn::ConcatLowerUpper(DF(), v, v));
#endif
    return v;
  }
  // Those within eight lanes.
  HWY_INLINE VF apply_first_three(VF v) const {
    v = signed_sum(v, one_, hn::Shuffle2301(v));
    v = signed_sum(v, two_, hn::Shuffle1032(v));
#if HWY_CAP_GE512
    v = signed_sum(v, four_, hn::SwapAdjacentBlocks(v));
#elif HWY_CAP_GE256
    v = signed_sum(v, four_, hn::ConcatLowerUpper(DF(), v, v));
#endif
    return v;
  }

 private:
  VF one_;
  VF two_;
  VF four_;
  VF eight_;
};

// The steps between kCount vectors, whose distance in memory is the step's length.
template <size_t kCount>
HWY_INLINE void butterflies(VF* v) {
  for (size_t step = 1; step < kCount; step *= 2) {
    for (size_t i = 0; i < kCount; ++i) {
      if ((i & step) != 0) continue;
      const auto a = v[i];
      v[i] = hn::Add(a, v[i + step]);
      v[i + step] = hn::Sub(a, v[i + step]);
    }
  }
}

// What a pass does to a vector before its steps and after them. in_block(): of the block that
// begins with value number `first`; places are counted in that.
struct NoFactors {
  static constexpr bool kWatches = false;
  static constexpr bool kScans = false;
  HWY_INLINE NoFactors in_block(size_t) const { return *this; }
  HWY_INLINE VF apply(VF value, size_t) const { return value; }
};
// kFromMemory: of values that nobody has looked at yet, in an array of a rank's.
template <bool kDiagonal, bool kFromMemory = false>
struct Beginning {
  static constexpr bool kScans = kFromMemory;
  RotationEnds ends;
  HWY_INLINE Beginning in_block(size_t first) const { return {ends.from(first)}; }
  HWY_INLINE VF apply(VF value, size_t place) const {
    if constexpr (kDiagonal) value = hn::Mul(value, hn::LoadU(DF(), ends.diagonal + place));
    return hn::Mul(value, hn::LoadU(DF(), ends.signs + place));
  }
};
// NaN that the terms bring is noticed, and made canonical afterwards.
template <bool kDiagonal, bool kTerms>
struct Ending {
  static constexpr bool kWatches = kTerms;
  RotationEnds ends;
  HWY_INLINE Ending in_block(size_t first) const { return {ends.from(first)}; }
  HWY_INLINE VF apply(VF value, size_t place) const {
    // 1 and -1: it does not matter when they come.
    const auto sign = hn::LoadU(DF(), ends.signs + place);
    if constexpr (kDiagonal) value = hn::Mul(value, hn::LoadU(DF(), ends.diagonal + place));
    if constexpr (kTerms) return signed_sum(value, sign, hn::LoadU(DF(), ends.terms + place));
    return hn::Mul(value, sign);
  }
};

// What is done with vectors once only the steps between them are left: `step` values apart, the
// first of them value `at` of the block.
template <class After>
struct Stored {
  After after;
  float* to;
  NanWatch* nan;

  HWY_INLINE Stored in_block(size_t first) const {
    return {after.in_block(first), to + first, nan};
  }
  template <size_t kCount>
  HWY_INLINE void take(VF (&v)[kCount], size_t at, size_t step) const {
    butterflies<kCount>(v);
    for (size_t k = 0; k < kCount; ++k) {
      v[k] = after.apply(v[k], at + k * step);
      hn::StoreU(v[k], DF(), to + at + k * step);
    }
    if constexpr (After::kWatches) {
      for (size_t k = 0; k < kCount; k += 2) nan->watch(v[k], v[(k + 1) % kCount]);
    }
  }
};
// The largest magnitude of a and b after the last step is that of |a| + |b|, rounded alike: one of
// a + b and a - b is that number or its opposite, and the other one is no larger. (Where one is
// infinite the other may be NaN: larger as bits, so whoever asks limits them.)
struct Largest {
  VI* bits;

  HWY_INLINE Largest in_block(size_t) const { return *this; }
  template <size_t kCount>
  HWY_INLINE void take(VF (&v)[kCount], size_t /*at*/, size_t /*step*/) const {
    constexpr size_t kHalf = kCount / 2;
    if constexpr (kHalf == 0) {
      *bits = hn::Max(*bits, magnitude_bits(v[0]));
    } else {
      butterflies<kHalf>(v);
      butterflies<kHalf>(v + kHalf);
      for (size_t k = 0; k < kHalf; ++k) {
        const auto sum = hn::Add(hn::Abs(v[k]), hn::Abs(v[k + kHalf]));
        // A NaN may have any sign.
        *bits = hn::Max(*bits, magnitude_bits(sum));
      }
    }
  }
};

// kCount vectors in a row: the lane steps and the first steps between vectors.
template <size_t kCount, class Before, class End>
HWY_INLINE void near_steps(const LaneSteps& lanes, const float* from, const Before& before,
                           const End& end, size_t at) {
  VF v[kCount];
  for (size_t i = 0; i < kCount; ++i) {
    const size_t here = at + i * kLanes;
    v[i] = lanes.apply(before.apply(hn::LoadU(DF(), from + here), here));
    if constexpr (Before::kScans) prefetch_ahead<1>(from + here);
  }
  end.template take<kCount>(v, at, kLanes);
}

// kCount vectors `step` values apart, for each place in a step.
template <size_t kCount, class End>
HWY_INLINE void far_steps(size_t step, const End& end, size_t at, const float* from) {
  for (size_t i = at; i < at + step; i += kLanes) {
    VF v[kCount];
    for (size_t k = 0; k < kCount; ++k) v[k] = hn::LoadU(DF(), from + i + k * step);
    end.template take<kCount>(v, i, step);
  }
}

// So many vectors stay in registers on every instruction set.
inline constexpr size_t kNearVectors = 8;

// One block. Only the last steps come to `end`: where that writes there may lie what it has still
// to read.
template <class Before, class End>
HWY_INLINE void transform_far(const LaneSteps& lanes, size_t block, const float* from,
                              const Before& before, const End& end, float* work) {
  constexpr size_t kNear = kNearVectors * kLanes;
  const Stored<NoFactors> kept{{}, work, nullptr};
  for (size_t at = 0; at < block; at += kNear) {
    near_steps<kNearVectors>(lanes, from, before, kept, at);
  }
  size_t step = kNear;
  for (; 8 * step <= block / 2; step *= 8) {
    for (size_t at = 0; at < block; at += 8 * step) far_steps<8>(step, kept, at, work);
  }
  for (; 4 * step <= block / 2; step *= 4) {
    for (size_t at = 0; at < block; at += 4 * step) far_steps<4>(step, kept, at, work);
  }
  if (8 * step == block) {
    far_steps<8>(step, end, 0, work);
  } else if (4 * step == block) {
    far_steps<4>(step, end, 0, work);
  } else {
    far_steps<2>(step, end, 0, work);
  }
}

template <size_t kCount, class Before, class End>
HWY_INLINE void transform_near(const LaneSteps& lanes, size_t count, const float* from,
                               const Before& before, const End& end) {
  for (size_t at = 0; at < count; at += kCount * kLanes) {
    near_steps<kCount>(lanes, from + at, before.in_block(at), end.in_block(at), 0);
  }
}

template <class Before, class End>
HWY_INLINE void transform_blocks(const LaneSteps& lanes, size_t block, size_t count,
                                 const float* from, const Before& before, const End& end,
                                 float* work) {
  switch (block / kLanes) {
    case 1:
      return transform_near<1>(lanes, count, from, before, end);
    case 2:
      return transform_near<2>(lanes, count, from, before, end);
    case 4:
      return transform_near<4>(lanes, count, from, before, end);
    case 8:
      return transform_near<8>(lanes, count, from, before, end);
    default:
      for (size_t at = 0; at < count; at += block) {
        transform_far(lanes, block, from + at, before.in_block(at), end.in_block(at), work + at);
      }
  }
}

// True if `after` noticed a NaN.
template <class Before, class After>
HWY_NOINLINE bool transform(size_t block, size_t count, const float* from, const Before& before,
                            const After& after, float* work, float* to) {
  const LaneSteps lanes;
  NanWatch nan;
  transform_blocks(lanes, block, count, from, before, Stored<After>{after, to, &nan}, work);
  return nan.seen();
}

void rotate_tile(const RotationEnds& ends, const float* from, size_t block, size_t count,
                 float* tile) {
  const auto with = [&]<bool kDiagonal>() {
    transform(block, count, from, Beginning<kDiagonal>{ends}, NoFactors(), tile, tile);
  };
  if (ends.diagonal == nullptr) return with.template operator()<false>();
  with.template operator()<true>();
}

// Calls body.operator()<kDiagonal, kTerms>() with what `ends` has.
template <class Body>
HWY_INLINE auto with_ends(const RotationEnds& ends, const Body& body) {
  if (ends.diagonal == nullptr) {
    return ends.terms == nullptr ? body.template operator()<false, false>()
                                 : body.template operator()<false, true>();
  }
  return ends.terms == nullptr ? body.template operator()<true, false>()
                               : body.template operator()<true, true>();
}

void unrotate_tile(const RotationEnds& ends, float* tile, size_t block, size_t count, float* to) {
  with_ends(ends, [&]<bool kDiagonal, bool kTerms>() {
    const Ending<kDiagonal, kTerms> ending{ends};
    if (transform(block, count, tile, NoFactors(), ending, tile, to)) clean_nans(to, count);
  });
}

// True only if no magnitude after all steps is above `least`. Each is that of a sum of one value
// from every 64 in a row, transformed among themselves, so no larger than the sum of theirs. For
// what is alike throughout a block of B that is 0.8 B / 8 of a value's size, while the largest of a
// million transformed values is five times the root of B: half as much again, where B is 1,024.
//
// Roundings: u = 2^-24, N the sum of all magnitudes before. Steps in two orders and the sum of
// magnitudes are off by less than 32 u N together, and N is at most the sum of the 64 bounds (a
// transform of n values makes their sum of magnitudes no smaller): 2^-13 of the largest.
HWY_NOINLINE bool is_bounded(const LaneSteps& lanes, size_t block, const float* from,
                             const Beginning<false, true>& before, uint32_t least) {
  const DF df;
  VF sums[kNearVectors];
  for (VF& sum : sums) sum = hn::Zero(df);
  for (size_t at = 0; at < block; at += kNearVectors * kLanes) {
    VF v[kNearVectors];
    for (size_t i = 0; i < kNearVectors; ++i) {
      const size_t here = at + i * kLanes;
      v[i] = lanes.apply_first_three(before.apply(hn::LoadU(df, from + here), here));
      prefetch_ahead<1>(from + here);
    }
    butterflies<kNearVectors>(v);
    for (size_t i = 0; i < kNearVectors; ++i) sums[i] = hn::Add(sums[i], hn::Abs(v[i]));
  }
  const DI di;
  VI most = hn::Zero(di);
  for (VF sum : sums) {
#if HWY_CAP_GE512
    sum = hn::Add(sum, hn::ConcatLowerUpper(df, sum, sum));
#endif
    most = hn::Max(most, magnitude_bits(sum));  // as bits NaN is above all
  }
  const uint32_t limit = float_bits(float_from_bits(least) * (1 - 0x1p-12F));
  return static_cast<uint32_t>(hn::GetLane(hn::MaxOfLanes(di, most))) <= limit;
}

void rotated_maxima_of_tile(const float* signs, const float* from, size_t block, size_t blocks,
                            uint32_t least, uint32_t* maxima) {
  const DI di;
  const LaneSteps lanes;
  const Beginning<false, true> before{{signs}};
  const auto infinity = hn::Set(di, static_cast<int32_t>(kFloatInfinity));
  alignas(64) float work[kBlockMax];
  // Shorter blocks are seldom bounded, shorter vectors sum too few values before they are.
  const bool tries = kLanes >= 8 && block > kNearVectors * kLanes && least > 0;
  bool is_below = tries;
  for (size_t b = 0; b < blocks; ++b) {
    // Where a block was not below, most are not.
    if (tries && (is_below || b % 4 == 0)) {
      is_below = is_bounded(lanes, block, from + b * block, before, least);
      maxima[b] = least;
      if (is_below) continue;
    }
    VI bits = hn::Set(di, static_cast<int32_t>(least));
    transform_blocks(lanes, block, block, from + b * block, before, Largest{&bits}, work);
    const auto most = hn::Min(hn::MaxOfLanes(di, bits), infinity);
    maxima[b] = static_cast<uint32_t>(hn::GetLane(most));
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace tersum
HWY_AFTER_NAMESPACE();
#endif  // HWY_TARGET

#endif  // TERSUM_CODEC_KERNELS_ELEMENT_ROTATION_INL_H_
