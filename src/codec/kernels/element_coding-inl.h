// Values of a tile from and to codes, once the scales are known.
#if defined(TERSUM_CODEC_KERNELS_ELEMENT_CODING_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TERSUM_CODEC_KERNELS_ELEMENT_CODING_INL_H_
#undef TERSUM_CODEC_KERNELS_ELEMENT_CODING_INL_H_
#else
#define TERSUM_CODEC_KERNELS_ELEMENT_CODING_INL_H_
#endif

#include <algorithm>
#include <bit>

#include "codec/kernels/element_kernels.h"
#include "codec/kernels/element_reference.h"
#include "codec/kernels/hwy_compat-inl.h"
#include "hwy/highway.h"

#if HWY_TARGET != HWY_SCALAR  // the reference serves there
HWY_BEFORE_NAMESPACE();
namespace tersum {
namespace HWY_NAMESPACE {

// Each coder makes the codes of one vector of scaled values, as signed bytes.
class IntegerCoder {
 public:
  explicit IntegerCoder(const ElementFormat& format)
      : mask_(format.bits == 8 ? -1 : (1 << format.bits) - 1) {}
  // Nothing is beyond the last code: the scale was rounded up, and a clamped one takes another way.
  HWY_INLINE VI code(VF scaled) const { return hn::And(nearest_int(scaled), hn::Set(DI(), mask_)); }

 private:
  int32_t mask_;
};

class MinifloatCoder {
 public:
  explicit MinifloatCoder(const ElementFormat& format)
      : shift_(23 - format.mantissa_bits),
        sign_shift_(static_cast<int>(32 - format.bits)),
        rebias_((126 + format.least_exponent) << format.mantissa_bits),
        level_max_(format.level_max),
        // Powers of two from their exponents: exact.
        least_normal_(float_from_bits(static_cast<uint32_t>(127 + format.least_exponent) << 23)),
        to_steps_(float_from_bits(
            static_cast<uint32_t>(127 + format.mantissa_bits - format.least_exponent) << 23)) {}

  HWY_INLINE VI code(VF scaled) const {
    const DF df;
    const DI di;
    const auto bits = hn::BitCast(di, scaled);
    const auto unsigned_bits = hn::And(bits, hn::Set(di, 0x7fffffff));
    const auto sign = hn::Xor(bits, unsigned_bits);
    const auto magnitude = hn::Min(hn::BitCast(df, unsigned_bits), hn::Set(df, level_max_));
    const auto small = nearest_int(
        hn::Mul(hn::Min(magnitude, hn::Set(df, least_normal_)), hn::Set(df, to_steps_)));
    const auto m = hn::BitCast(di, magnitude);
    const auto odd = hn::And(hn::ShiftRightSame(m, shift_), hn::Set(di, 1));
    const auto half = hn::Set(di, (1 << (shift_ - 1)) - 1);
    const auto rounded = hn::ShiftRightSame(hn::Add(hn::Add(m, half), odd), shift_);
    const auto normal = hn::Sub(rounded, hn::Set(di, rebias_));
    const auto is_small = hn::RebindMask(di, hn::Lt(magnitude, hn::Set(df, least_normal_)));
    const auto code = hn::IfThenElse(is_small, small, normal);
    // An arithmetic shift takes the sign to its place and, for bytes, to where a signed one has it.
    const auto top = hn::ShiftRightSame(sign, sign_shift_);
    return sign_shift_ == 24 ? hn::Or(code, top)
                             : hn::Or(code, hn::And(top, hn::Set(di, 1 << (31 - sign_shift_))));
  }

 private:
  int shift_;
  int sign_shift_;
  int32_t rebias_;
  float level_max_;
  float least_normal_;
  float to_steps_;
};

class TableCoder {
 public:
  explicit TableCoder(const ElementFormat& format)
      : thresholds_(format.thresholds.data()), count_(format.threshold_count) {
#if TERSUM_HAS_LOOKUP16
    if (count_ == kTreeNodes) fill_tree();
#endif
  }

  HWY_INLINE VI code(VF scaled) const {
    const DI di;
#if TERSUM_HAS_LOOKUP16
    if (count_ == kTreeNodes) return search(scaled);
#endif
    auto code = hn::Zero(di);
    for (uint32_t k = 0; k < count_; ++k) {
      const auto above = hn::Ge(scaled, hn::Set(DF(), thresholds_[k]));
      code = hn::Sub(code, hn::BitCast(di, hn::VecFromMask(DF(), above)));
    }
    // As signed bytes.
    return hn::ShiftRight<24>(hn::ShiftLeft<24>(code));
  }

 private:
  static constexpr uint32_t kTreeNodes = 15;

#if TERSUM_HAS_LOOKUP16
  // Node n of a search tree over 15 thresholds has the children 2n and 2n + 1.
  void fill_tree() {
    tree_[0] = 0;
    for (uint32_t node = 1; node <= kTreeNodes; ++node) {
      const auto level = static_cast<uint32_t>(std::bit_width(node)) - 1;
      const uint32_t in_level = node - (1U << level);
      tree_[node] = thresholds_[((2 * in_level + 1) << (3 - level)) - 1];
    }
  }
  HWY_INLINE VI search(VF scaled) const {
    const DI di;
    const auto tree = hn::Load(DF(), tree_);
    auto node = hn::Set(di, 1);
    for (int level = 0; level < 4; ++level) {
      const auto above = hn::RebindMask(di, hn::Ge(scaled, lookup16(tree, node)));
      const auto left = hn::Add(node, node);
      node = hn::IfThenElse(above, hn::Add(left, hn::Set(di, 1)), left);
    }
    return hn::Sub(node, hn::Set(di, 16));
  }
  alignas(64) float tree_[16];
#endif

  const float* thresholds_;
  uint32_t count_;
};

// Four vectors at a time: what lies behind `count` is padding, whose codes mean nothing.
template <class Coder>
HWY_NOINLINE void quantize_with(const Coder& coder, const float* HWY_RESTRICT tile, size_t count,
                                size_t block, const BlockScale* HWY_RESTRICT scales,
                                uint8_t* HWY_RESTRICT codes) {
  const DF df;
  const auto log2 = static_cast<size_t>(std::countr_zero(block));
  const size_t last = (count - 1) >> log2;
  for (size_t at = 0; at < count; at += 4 * kLanes) {
    VI run[4];
    for (size_t v = 0; v < 4; ++v) {
      const size_t i = at + v * kLanes;
      const auto inverse = hn::Set(df, scales[std::min(i >> log2, last)].inverse);
      run[v] = coder.code(hn::Mul(hn::LoadU(df, tile + i), inverse));
    }
    store_bytes(run, reinterpret_cast<int8_t*>(codes) + at);
  }
}

// What the vectors above do not cover: NaN, zero and tiny scales, and integers beyond the last
// code, which a clamped scale gives.
inline bool is_special(const ElementFormat& format, const BlockScale& scale) {
  // A power of two may be clamped anywhere above half of the largest scale.
  return !(scale.scale > 0) || scale.pre != 1.0F || scale.scale > 0.5F * format.scale_max;
}

void quantize_tile(const ElementFormat& format, const float* tile, size_t count,
                   const BlockScale* scales, uint8_t* codes) {
  if (count == 0) return;
  switch (format.family) {
    case ElementFamily::kInteger:
      quantize_with(IntegerCoder(format), tile, count, format.block, scales, codes);
      break;
    case ElementFamily::kMinifloat:
      quantize_with(MinifloatCoder(format), tile, count, format.block, scales, codes);
      break;
    case ElementFamily::kTable:
      quantize_with(TableCoder(format), tile, count, format.block, scales, codes);
      break;
  }
  // A scale that was rounded down leaves integers beyond the last code in any block.
  const bool any = format.family == ElementFamily::kInteger && format.rule == ScaleRule::kE8M0Floor;
  for (size_t b = 0; b < count / format.block; ++b) {
    if (!any && !is_special(format, scales[b])) continue;
    const size_t at = b * format.block;
    element_reference().quantize(format, tile + at, format.block, scales + b, codes + at);
  }
}

template <bool kAdd, class Levels>
HWY_NOINLINE void dequantize_with(const Levels& levels, const uint8_t* HWY_RESTRICT codes,
                                  size_t count, size_t block, const BlockScale* HWY_RESTRICT scales,
                                  float* HWY_RESTRICT tile) {
  const DF df;
  const hn::Rebind<uint8_t, DI> db;
  const auto log2 = static_cast<size_t>(std::countr_zero(block));
  const size_t last = (count - 1) >> log2;
  for (size_t at = 0; at < count; at += kLanes) {
    const auto scale = hn::Set(df, scales[std::min(at >> log2, last)].scale);
    const auto code = hn::PromoteTo(DI(), hn::LoadU(db, codes + at));
    auto value = hn::Mul(levels.of(code), scale);
    if constexpr (kAdd) value = hn::Add(hn::Load(df, tile + at), value);
    hn::Store(value, df, tile + at);
  }
}

// Integers under powers of two: the product is an addition to the exponent (L-Mul, arXiv
// 2410.00907, without its offset, which would be an error here). True where no product leaves the
// normal numbers.
inline bool adds_exponents(const ElementFormat& format, const BlockScale* scales, size_t blocks) {
  if (format.rule != ScaleRule::kE8M0Up && format.rule != ScaleRule::kE8M0Floor) return false;
  constexpr uint32_t kOne = 127U << 23;
  constexpr uint32_t kReach = 100U << 23;
  return std::all_of(scales, scales + blocks, [](const BlockScale& scale) {
    return float_bits(scale.scale) - (kOne - kReach) <= 2 * kReach;
  });
}

// kBytes: codes of 8 bits, which need no sign of their own.
template <bool kAdd, bool kBytes>
HWY_NOINLINE void dequantize_powers(const ElementFormat& format, const uint8_t* HWY_RESTRICT codes,
                                    size_t count, const BlockScale* HWY_RESTRICT scales,
                                    float* HWY_RESTRICT tile) {
  const DF df;
  const DI di;
  const auto up = static_cast<int>(32 - format.bits);
  const auto log2 = static_cast<size_t>(std::countr_zero(format.block));
  const size_t last = (count - 1) >> log2;
  for (size_t at = 0; at < count; at += kLanes) {
    const float scale = scales[std::min(at >> log2, last)].scale;
    const auto exponent = hn::Set(di, static_cast<int32_t>(float_bits(scale)) - (127 << 23));
    VI integer;
    if constexpr (kBytes) {
      const hn::Rebind<int8_t, DI> db;
      integer = hn::PromoteTo(di, hn::LoadU(db, reinterpret_cast<const int8_t*>(codes) + at));
    } else {
      const auto code = hn::PromoteTo(di, hn::LoadU(hn::Rebind<uint8_t, DI>(), codes + at));
      integer = hn::ShiftRightSame(hn::ShiftLeftSame(code, up), up);
    }
    const auto level = hn::BitCast(di, hn::ConvertTo(df, integer));
    // Zero has no exponent to add to.
    const auto term = hn::IfThenElseZero(hn::Ne(integer, hn::Zero(di)), exponent);
    auto value = hn::BitCast(df, hn::Add(level, term));
    if constexpr (kAdd) value = hn::Add(hn::Load(df, tile + at), value);
    hn::Store(value, df, tile + at);
  }
}

class IntegerLevels {
 public:
  explicit IntegerLevels(const ElementFormat& format)
      : shift_(static_cast<int>(32 - format.bits)) {}
  HWY_INLINE VF of(VI code) const {
    return hn::ConvertTo(DF(), hn::ShiftRightSame(hn::ShiftLeftSame(code, shift_), shift_));
  }

 private:
  int shift_;
};

class TableLevels {
 public:
  explicit TableLevels(const ElementFormat& format) : levels_(format.levels.data()) {}
  HWY_INLINE VF of(VI code) const { return hn::GatherIndex(DF(), levels_, code); }

 private:
  const float* levels_;
};

#if TERSUM_HAS_LOOKUP16
class SmallLevels {
 public:
  explicit SmallLevels(const ElementFormat& format)
      : levels_(hn::LoadU(DF(), format.levels.data())) {}
  HWY_INLINE VF of(VI code) const { return lookup16(levels_, code); }

 private:
  VF levels_;
};
#endif

template <bool kAdd>
HWY_INLINE void dequantize_to(const ElementFormat& format, const uint8_t* codes, size_t count,
                              const BlockScale* scales, float* tile) {
  if (count == 0) return;
  const size_t block = format.block;
  if (format.family == ElementFamily::kInteger) {
    if (adds_exponents(format, scales, count / block)) {
      return format.bits == 8 ? dequantize_powers<kAdd, true>(format, codes, count, scales, tile)
                              : dequantize_powers<kAdd, false>(format, codes, count, scales, tile);
    }
    return dequantize_with<kAdd>(IntegerLevels(format), codes, count, block, scales, tile);
  }
#if TERSUM_HAS_LOOKUP16
  if (format.bits <= 4) {
    return dequantize_with<kAdd>(SmallLevels(format), codes, count, block, scales, tile);
  }
#endif
  dequantize_with<kAdd>(TableLevels(format), codes, count, block, scales, tile);
}

void dequantize_tile(const ElementFormat& format, const uint8_t* codes, size_t count,
                     const BlockScale* scales, float* tile) {
  dequantize_to<false>(format, codes, count, scales, tile);
}

void dequantize_add_tile(const ElementFormat& format, const uint8_t* codes, size_t count,
                         const BlockScale* scales, float* tile) {
  dequantize_to<true>(format, codes, count, scales, tile);
}

}  // namespace HWY_NAMESPACE
}  // namespace tersum
HWY_AFTER_NAMESPACE();
#endif  // HWY_TARGET

#endif  // TERSUM_CODEC_KERNELS_ELEMENT_CODING_INL_H_
