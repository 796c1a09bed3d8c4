// Codes of +sr: a value goes to one of its two neighbouring levels, to each with the probability
// that makes its mean the value.
#if defined(TERSUM_CODEC_KERNELS_ELEMENT_ROUNDING_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TERSUM_CODEC_KERNELS_ELEMENT_ROUNDING_INL_H_
#undef TERSUM_CODEC_KERNELS_ELEMENT_ROUNDING_INL_H_
#else
#define TERSUM_CODEC_KERNELS_ELEMENT_ROUNDING_INL_H_
#endif

#include <algorithm>
#include <array>
#include <bit>
#include <limits>

#include "base/check.h"
#include "codec/kernels/element_coding-inl.h"
#include "codec/kernels/element_kernels.h"
#include "codec/kernels/element_reference.h"
#include "codec/kernels/hwy_compat-inl.h"
#include "codec/kernels/random_rounding.h"
#include "codec/kernels/rounding_numbers-inl.h"
#include "hwy/highway.h"

#if HWY_TARGET != HWY_SCALAR  // the reference serves there
HWY_BEFORE_NAMESPACE();
namespace tersum {
namespace HWY_NAMESPACE {

// rounded_fixed() of element_reference.cc.
HWY_INLINE VI rounded_fixed(VF value, VI half) {
  const auto fixed = nearest_int(hn::Mul(value, hn::Set(DF(), 0x1p16F)));
  return hn::ShiftRight<kRoundingHalf>(hn::Add(fixed, half));
}

// A coder changes its codes once more as bytes, if it has to.
class RandomIntegerCoder {
 public:
  explicit RandomIntegerCoder(const ElementFormat& format)
      : mask_(static_cast<int8_t>((1U << format.bits) - 1)),
        code_max_(static_cast<int8_t>(format.code_max)) {}

  HWY_INLINE VI code(VF scaled, VI half) const { return rounded_fixed(scaled, half); }
  // A last code may be a hair beyond itself, and go up: four times as many at once as bytes.
  template <class V>
  HWY_INLINE V operator()(V bytes) const {
    const hn::DFromV<V> d;
    const auto least = hn::Set(d, static_cast<int8_t>(-code_max_));
    const auto limited = hn::Max(hn::Min(bytes, hn::Set(d, code_max_)), least);
    return hn::And(limited, hn::Set(d, mask_));
  }

 private:
  int8_t mask_;
  int8_t code_max_;
};

class RandomMinifloatCoder : public SameBytes {
 public:
  explicit RandomMinifloatCoder(const ElementFormat& format)
      : shift_(23 - format.mantissa_bits),
        half_shift_(shift_ - kRoundingHalf),
        sign_shift_(static_cast<int>(32 - format.bits)),
        rebias_((126 + format.least_exponent) << format.mantissa_bits),
        level_max_(format.level_max),
        least_normal_(float_from_bits(static_cast<uint32_t>(127 + format.least_exponent) << 23)),
        to_steps_(float_from_bits(
            static_cast<uint32_t>(127 + format.mantissa_bits - format.least_exponent) << 23)) {}

  HWY_INLINE VI code(VF scaled, VI half) const {
    const DF df;
    const DI di;
    const auto bits = hn::BitCast(di, scaled);
    const auto unsigned_bits = hn::And(bits, hn::Set(di, 0x7fffffff));
    const auto sign = hn::Xor(bits, unsigned_bits);
    const auto magnitude = hn::Min(hn::BitCast(df, unsigned_bits), hn::Set(df, level_max_));
    const auto steps =
        hn::Mul(hn::Min(magnitude, hn::Set(df, least_normal_)), hn::Set(df, to_steps_));
    const auto small = rounded_fixed(steps, half);
    // What the random bits carry into the kept ones rounds up, also to the next power of two. Half
    // a unit of theirs makes the rest below them round to nearest.
    const auto addend =
        hn::Add(hn::ShiftLeftSame(half, half_shift_), hn::Set(di, 1 << (half_shift_ - 1)));
    const auto rounded = hn::ShiftRightSame(hn::Add(hn::BitCast(di, magnitude), addend), shift_);
    const auto normal = hn::Sub(rounded, hn::Set(di, rebias_));
    const auto is_small = hn::RebindMask(di, hn::Lt(magnitude, hn::Set(df, least_normal_)));
    const auto code = hn::IfThenElse(is_small, small, normal);
    const auto top = hn::ShiftRightSame(sign, sign_shift_);
    return sign_shift_ == 24 ? hn::Or(code, top)
                             : hn::Or(code, hn::And(top, hn::Set(di, 1 << (31 - sign_shift_))));
  }

 private:
  int shift_;
  int half_shift_;
  int sign_shift_;
  int32_t rebias_;
  float level_max_;
  float least_normal_;
  float to_steps_;
};

// One more where the share of the way from `level` to the next one, `gap` on, is above a number.
HWY_INLINE hn::Mask<DF> goes_up(VF scaled, VF level, VF gap, VI half) {
  const DF df;
  const auto middle = hn::Add(hn::ConvertTo(df, half), hn::Set(df, 0.5F));
  const auto share = hn::Mul(middle, hn::Set(df, 0x1p-16F));
  return hn::Lt(hn::Mul(share, gap), hn::Sub(scaled, level));
}

// Of 16 levels at most: with longer tables `+sr` is refused.
#if TERSUM_HAS_TABLE16
class RandomTableCoder : public SameBytes {
 public:
  explicit RandomTableCoder(const ElementFormat& format) : search_(inner_levels(format).data()) {
    for (size_t k = 0; k < format.threshold_count; ++k) {
      levels_[k] = format.levels[k];
      gaps_[k] = format.levels[k + 1] - format.levels[k];
    }
  }

  HWY_INLINE VI code(VF scaled, VI half) const {
    const auto below = search_.code(scaled);
    const auto level = Table16(levels_).of(below);
    const auto gap = Table16(gaps_).of(below);
    return add_one_where(goes_up(scaled, level, gap, half), below);
  }

 private:
  // The levels between the first and the last, and what nothing reaches.
  static std::array<float, kTreeNodes> inner_levels(const ElementFormat& format) {
    TERSUM_CHECK(format.threshold_count <= kTreeNodes);
    std::array<float, kTreeNodes> inner;
    inner.fill(std::numeric_limits<float>::quiet_NaN());
    std::copy_n(format.levels.data() + 1, format.threshold_count - 1, inner.data());
    return inner;
  }

  TreeCoder search_;
  // Of every level but the last.
  alignas(64) float levels_[kTreeNodes + 1] = {};
  alignas(64) float gaps_[kTreeNodes + 1] = {};
};
#else
class RandomTableCoder : public SameBytes {
 public:
  explicit RandomTableCoder(const ElementFormat& format)
      : levels_(format.levels.data()), last_(format.threshold_count) {}

  HWY_INLINE VI code(VF scaled, VI half) const {
    const DF df;
    const DI di;
    auto below = hn::Zero(di);
    for (uint32_t k = 1; k < last_; ++k) {
      below = add_one_where(hn::Ge(scaled, hn::Set(df, levels_[k])), below);
    }
    const auto level = hn::GatherIndex(df, levels_, below);
    const auto gap = hn::Sub(hn::GatherIndex(df, levels_ + 1, below), level);
    return add_one_where(goes_up(scaled, level, gap, half), below);
  }

 private:
  const float* levels_;
  uint32_t last_;
};
#endif

template <class Coder>
HWY_NOINLINE void round_with(Coder coder, const RoundingPlace& place,
                             const float* HWY_RESTRICT tile, size_t count, size_t block,
                             const BlockScale* HWY_RESTRICT scales, uint8_t* HWY_RESTRICT codes) {
  const DF df;
  const RoundingHalves halves(place, count);
  const auto log2 = static_cast<size_t>(std::countr_zero(block));
  const size_t last = (count - 1) >> log2;
  for (size_t at = 0; at < count; at += 4 * kLanes) {
    VI run[4];
    for (size_t v = 0; v < 4; ++v) {
      const size_t i = at + v * kLanes;
      const auto inverse = hn::Set(df, scales[std::min(i >> log2, last)].inverse);
      run[v] = coder.code(hn::Mul(hn::LoadU(df, tile + i), inverse), halves.at(i));
    }
    store_bytes(run, coder, reinterpret_cast<int8_t*>(codes) + at);
  }
}

void quantize_random_tile(const ElementFormat& format, const RoundingPlace& place,
                          const float* tile, size_t count, const BlockScale* scales,
                          uint8_t* codes) {
  if (count == 0) return;
  switch (format.family) {
    case ElementFamily::kInteger:
      round_with(RandomIntegerCoder(format), place, tile, count, format.block, scales, codes);
      break;
    case ElementFamily::kMinifloat:
      round_with(RandomMinifloatCoder(format), place, tile, count, format.block, scales, codes);
      break;
    case ElementFamily::kTable:
      round_with(RandomTableCoder(format), place, tile, count, format.block, scales, codes);
      break;
  }
  code_special(format, scales, count / format.block, false, [&](size_t b, size_t at) {
    RoundingPlace here = place;
    here.first += at;
    element_reference().quantize_random(format, here, tile + at, format.block, scales + b,
                                        codes + at);
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace tersum
HWY_AFTER_NAMESPACE();
#endif  // HWY_TARGET

#endif  // TERSUM_CODEC_KERNELS_ELEMENT_ROUNDING_INL_H_
