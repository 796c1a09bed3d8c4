// The way back of a Hadamard transform whose input is integer codes: summed as int16, twice as many
// a vector as float32, and multiplied by their scale once they are sums.
//
// The bits are those of products summed as float32, as none of those sums is ever rounded
// (rotates_as_integers() says of which formats). Such sums may be taken in any order; this one
// needs few permutations.
#if defined(TERSUM_CODEC_KERNELS_INTEGER_ROTATION_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TERSUM_CODEC_KERNELS_INTEGER_ROTATION_INL_H_
#undef TERSUM_CODEC_KERNELS_INTEGER_ROTATION_INL_H_
#else
#define TERSUM_CODEC_KERNELS_INTEGER_ROTATION_INL_H_
#endif

#include "codec/kernels/element_kernels.h"
#include "codec/kernels/element_levels-inl.h"
#include "codec/kernels/element_rotation-inl.h"
#include "codec/kernels/hwy_compat-inl.h"
#include "codec/kernels/short_vectors-inl.h"
#include "hwy/highway.h"

#if HWY_TARGET != HWY_SCALAR  // the reference serves there
HWY_BEFORE_NAMESPACE();
namespace tersum {
namespace HWY_NAMESPACE {

// Codes that are permuted together: two vectors of int16.
inline constexpr size_t kUnit = 2 * kShortLanes;

// All butterflies of a unit but those of its longest step, which are left to pair_butterfly(). Each
// exchange between the two vectors brings another step between them. Which bits of a code's number
// its lane's number has, lowest first, `|` between those inside a part of 128 bits and those of the
// part, and which bit tells the vectors (of 512 bits; the rows of longer steps are missing below):
//
//               lane          vector
//   loaded      0 1 2 | 3 4   5
//   lanes       5 0 1 | 3 4   2        step 4
//   pairs       5 2 0 | 3 4   1        step 2
//   pairs       5 1 2 | 3 4   0        step 1
//   pairs       5 0 1 | 3 4   2
//   parts       5 0 1 | 4 2   3        step 8
//   parts       5 0 1 | 2 3   4        step 16
HWY_INLINE void near_butterflies(VH& a, VH& b) {
  interleave(a, b);
  butterfly(a, b);
  interleave_pairs(a, b);
  butterfly(a, b);
  interleave_pairs(a, b);
  butterfly(a, b);
  interleave_pairs(a, b);
  for (size_t step = 8; step < kShortLanes; step *= 2) {
    separate_parts(a, b);
    butterfly(a, b);
  }
}

// The butterflies between vectors `first_step` and more apart.
template <size_t kCount>
HWY_INLINE void butterflies_from(size_t first_step, VH (&v)[kCount]) {
  for (size_t step = first_step; step < kCount; step *= 2) {
    for (size_t i = 0; i < kCount; ++i) {
      if ((i & step) != 0) continue;
      const auto a = v[i];
      v[i] = hn::Add(a, v[i + step]);
      v[i + step] = hn::Sub(a, v[i + step]);
    }
  }
}

// The unit of codes at `codes`, in the order that near_butterflies() leaves.
HWY_INLINE void load_unit(const SignedCodes& signed_codes, const uint8_t* codes, VH& a, VH& b) {
  const hn::Rebind<int8_t, DH> db;
  a = hn::PromoteTo(DH(), signed_codes.load(db, codes));
  b = hn::PromoteTo(DH(), signed_codes.load(db, codes + kShortLanes));
  near_butterflies(a, b);
}

// Sums to values. A NaN that the terms bring is so rare that a block is looked at once, and gone
// through again if there is one.
template <bool kDiagonal, bool kTerms>
class IntegerEnding {
 public:
  IntegerEnding(const RotationEnds& ends, float* to) : ends_(ends), to_(to) {}

  HWY_INLINE void begin(size_t at) { begin_ = at; }
  // The unit `at` of a block, with the butterflies that it lacks.
  HWY_INLINE void put_unit(VH a, VH b, float scale, size_t at) {
    const auto factor = hn::Set(DF(), scale);
    VI sum;
    VI difference;
    pair_butterfly(a, sum, difference);
    watch(put(sum, factor, at, at), put(difference, factor, at + kShortLanes, at + kShortLanes));
    pair_butterfly(b, sum, difference);
    at += kLanes;
    watch(put(sum, factor, at, at), put(difference, factor, at + kShortLanes, at + kShortLanes));
  }
  // A unit of two blocks.
  HWY_INLINE void put_blocks(VH a, VH b, const BlockScale* scales) {
    const auto first = hn::Set(DF(), scales[0].scale);
    const auto second = hn::Set(DF(), scales[1].scale);
    watch(put(even_lanes(a), first, 0, 0), put(odd_lanes(a), second, kShortLanes, 0));
    watch(put(even_lanes(b), first, kLanes, kLanes),
          put(odd_lanes(b), second, kShortLanes + kLanes, kLanes));
  }
  HWY_INLINE void end(size_t count) {
    if (HWY_LIKELY(!kTerms || !nan_.seen())) return;
    clean_nans(to_ + begin_, count);
    nan_ = NanWatch();
  }

 private:
  // Value number `at` from begin_ on, `place` of its block.
  HWY_INLINE VF put(VI sums, VF scale, size_t at, size_t place) const {
    const DF df;
    const size_t i = begin_ + at;
    auto value = hn::Mul(hn::ConvertTo(df, sums), scale);
    const auto sign = hn::LoadU(df, ends_.signs + place);
    if constexpr (kDiagonal) value = hn::Mul(value, hn::LoadU(df, ends_.diagonal + i));
    if constexpr (kTerms) {
      value = signed_sum(value, sign, hn::LoadU(df, ends_.terms + i));
    } else {
      value = hn::Mul(value, sign);
    }
    hn::StoreU(value, df, to_ + i);
    return value;
  }
  HWY_INLINE void watch(VF a, VF b) {
    if constexpr (kTerms) nan_.watch(a, b);
  }

  const RotationEnds ends_;
  float* const to_;
  size_t begin_ = 0;
  NanWatch nan_;
};

// Blocks of so many units.
template <size_t kUnits, class Ending>
HWY_NOINLINE void turn_units(const SignedCodes& signed_codes, const uint8_t* HWY_RESTRICT codes,
                             size_t blocks, const BlockScale* HWY_RESTRICT scales, Ending ending) {
  constexpr size_t kBlock = kUnits * kUnit;
  for (size_t b = 0; b < blocks; ++b) {
    VH v[2 * kUnits];
    for (size_t u = 0; u < kUnits; ++u) {
      load_unit(signed_codes, codes + b * kBlock + u * kUnit, v[2 * u], v[2 * u + 1]);
    }
    butterflies_from(2, v);
    ending.begin(b * kBlock);
    for (size_t u = 0; u < kUnits; ++u) {
      ending.put_unit(v[2 * u], v[2 * u + 1], scales[b].scale, u * kUnit);
    }
    ending.end(kBlock);
  }
}

// Pairs of blocks of half a unit.
template <class Ending>
HWY_NOINLINE void turn_halves(const SignedCodes& signed_codes, const uint8_t* HWY_RESTRICT codes,
                              size_t pairs, const BlockScale* HWY_RESTRICT scales, Ending ending) {
  for (size_t p = 0; p < pairs; ++p) {
    VH a;
    VH b;
    load_unit(signed_codes, codes + p * kUnit, a, b);
    ending.begin(p * kUnit);
    ending.put_blocks(a, b, scales + 2 * p);
    ending.end(kUnit);
  }
}

// Longer blocks: the sums of a few units at a time to memory, and the butterflies between them
// there.
class LongBlock {
 public:
  HWY_INLINE void load(const SignedCodes& signed_codes, const uint8_t* codes, size_t block) {
    for (size_t at = 0; at < block; at += kGroup) {
      VH v[kGroupVectors];
      for (size_t k = 0; k < kGroupVectors; k += 2) {
        load_unit(signed_codes, codes + at + k * kShortLanes, v[k], v[k + 1]);
      }
      butterflies_from(2, v);
      for (size_t k = 0; k < kGroupVectors; ++k) {
        hn::Store(v[k], DH(), sums_ + at + k * kShortLanes);
      }
    }
    for (size_t step = kGroup; step < block; step *= 2) far_butterflies(step, block);
  }
  HWY_INLINE VH sums(size_t at) const { return hn::Load(DH(), sums_ + at); }

 private:
  static constexpr size_t kGroupVectors = 8;
  static constexpr size_t kGroup = kGroupVectors * kShortLanes;

  HWY_INLINE void far_butterflies(size_t step, size_t block) {
    for (size_t at = 0; at < block; at += kShortLanes) {
      if ((at & step) != 0) continue;
      VH a = sums(at);
      VH b = sums(at + step);
      butterfly(a, b);
      hn::Store(a, DH(), sums_ + at);
      hn::Store(b, DH(), sums_ + at + step);
    }
  }

  alignas(64) int16_t sums_[kBlockMax];
};

template <class Ending>
HWY_NOINLINE void turn_long(const SignedCodes& signed_codes, const uint8_t* HWY_RESTRICT codes,
                            size_t block, size_t blocks, const BlockScale* HWY_RESTRICT scales,
                            Ending ending) {
  LongBlock sums;
  for (size_t b = 0; b < blocks; ++b) {
    sums.load(signed_codes, codes + b * block, block);
    ending.begin(b * block);
    for (size_t at = 0; at < block; at += kUnit) {
      ending.put_unit(sums.sums(at), sums.sums(at + kShortLanes), scales[b].scale, at);
    }
    ending.end(block);
  }
}

// Returns how many blocks that were: of half units an even number.
template <class Ending>
HWY_INLINE size_t turn_blocks(const ElementFormat& format, const uint8_t* codes, size_t blocks,
                              const BlockScale* scales, const Ending& ending) {
  const SignedCodes signed_codes(format);
  switch (2 * format.block / kUnit) {
    case 1:
      turn_halves(signed_codes, codes, blocks / 2, scales, ending);
      return blocks / 2 * 2;
    case 2:
      turn_units<1>(signed_codes, codes, blocks, scales, ending);
      return blocks;
    case 4:
      turn_units<2>(signed_codes, codes, blocks, scales, ending);
      return blocks;
    case 8:
      turn_units<4>(signed_codes, codes, blocks, scales, ending);
      return blocks;
    default:
      turn_long(signed_codes, codes, format.block, blocks, scales, ending);
      return blocks;
  }
}

HWY_INLINE size_t turn_integers(const ElementFormat& format, const RotationEnds& ends,
                                const uint8_t* codes, size_t blocks, const BlockScale* scales,
                                float* to) {
  return with_ends(ends, [&]<bool kDiagonal, bool kTerms>() {
    return turn_blocks(format, codes, blocks, scales, IntegerEnding<kDiagonal, kTerms>(ends, to));
  });
}

HWY_NOINLINE void turn_floats(const ElementFormat& format, const RotationEnds& ends,
                              const uint8_t* codes, const BlockScale* scale, float* to) {
  alignas(64) float block[kBlockMax];
  dequantize_tile(format, codes, format.block, scale, block);
  unrotate_tile(ends, block, format.block, format.block, to);
}

// Products with a scale of 0 are zeros with the codes' signs, of which a sum of codes knows
// nothing: such blocks are summed as floats, and the runs between them as integers.
void unrotate_codes_tile(const ElementFormat& format, const RotationEnds& ends,
                         const uint8_t* codes, size_t count, const BlockScale* scales, float* to) {
  const size_t blocks = count / format.block;
  for (size_t b = 0; b < blocks; ++b) {
    size_t end = b;
    while (end < blocks && scales[end].scale != 0) ++end;
    const size_t first = b * format.block;
    b += turn_integers(format, ends.from(first), codes + first, end - b, scales + b, to + first);
    const size_t at = b * format.block;
    if (b < blocks) turn_floats(format, ends.from(at), codes + at, scales + b, to + at);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace tersum
HWY_AFTER_NAMESPACE();
#endif  // HWY_TARGET

#endif  // TERSUM_CODEC_KERNELS_INTEGER_ROTATION_INL_H_
