// Codes of the values of a tile, once the scales are known.
#if defined(TERSUM_CODEC_KERNELS_ELEMENT_CODING_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TERSUM_CODEC_KERNELS_ELEMENT_CODING_INL_H_
#undef TERSUM_CODEC_KERNELS_ELEMENT_CODING_INL_H_
#else
#define TERSUM_CODEC_KERNELS_ELEMENT_CODING_INL_H_
#endif

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

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

// Adding 2^(e + 23 - m), e the value's exponent or the least normal one, leaves the value in steps
// of its own grid in the sum's lowest bits, rounded by the addition itself. With the exponent field
// added to those they are the code: a carry out of the mantissa goes where it belongs.
template <int kBits, int kMantissa>
class MinifloatCoder {
 public:
  explicit MinifloatCoder(const ElementFormat& format)
      : least_field_((127 + format.least_exponent) << 23), level_max_(format.level_max) {
    // The exponent field that the least normal number has is no part of the code; what takes it out
    // modulo 2^bits is even, so that ties stay ties to even.
    const int32_t rebias = -(least_field_ >> kToCode) & ((1 << kBits) - 1);
    to_grid_ = (kToCode << 23) + rebias;
  }

  HWY_INLINE VI code(VF scaled) const {
    const DF df;
    const DI di;
    const auto bits = hn::BitCast(di, scaled);
    const auto magnitude = limited_magnitude(scaled, hn::Set(df, level_max_));
    const auto field = hn::Max(hn::And(hn::BitCast(di, magnitude), hn::Set(di, 0x7f800000)),
                               hn::Set(di, least_field_));
    const auto grid = hn::BitCast(df, hn::Add(field, hn::Set(di, to_grid_)));
    const auto steps = hn::BitCast(di, hn::Add(magnitude, grid));
    const auto code = hn::Add(steps, hn::ShiftRight<kToCode>(field));
    // The sign to its place and the code below it: as signed bytes, or as the bits that shorter
    // codes have.
    const auto low = hn::Set(di, (1 << (kBits - 1)) - 1);
    if constexpr (kBits == 8) return select_bits(low, code, hn::ShiftRight<24>(bits));
    const auto top = hn::BitCast(di, hn::ShiftRight<32 - kBits>(hn::BitCast(DU(), bits)));
    return select_bits(low, code, top);
  }

 private:
  static constexpr int kToCode = 23 - kMantissa;

  int32_t least_field_;
  int32_t to_grid_;
  float level_max_;
};

// `kCount` thresholds, a number that is known.
template <uint32_t kCount>
class ShortTableCoder {
 public:
  explicit ShortTableCoder(const ElementFormat& format) {
    std::copy_n(format.thresholds.data(), kCount, thresholds_);
  }

  HWY_INLINE VI code(VF scaled) const {
    auto code = hn::Zero(DI());
    for (uint32_t k = 0; k < kCount; ++k) {
      code = add_one_where(hn::Ge(scaled, hn::Set(DF(), thresholds_[k])), code);
    }
    return code;
  }

 private:
  float thresholds_[kCount];
};

class TableCoder {
 public:
  explicit TableCoder(const ElementFormat& format)
      : thresholds_(format.thresholds.data()), count_(format.threshold_count) {}

  HWY_INLINE VI code(VF scaled) const {
    auto code = hn::Zero(DI());
    for (uint32_t k = 0; k < count_; ++k) {
      code = add_one_where(hn::Ge(scaled, hn::Set(DF(), thresholds_[k])), code);
    }
    // As signed bytes.
    return hn::ShiftRight<24>(hn::ShiftLeft<24>(code));
  }

 private:
  const float* thresholds_;
  uint32_t count_;
};

#if TERSUM_HAS_TABLE16
inline constexpr uint32_t kTreeNodes = 15;

// Node n of a search tree over 15 thresholds has the children 2n and 2n + 1.
class TreeCoder {
 public:
  explicit TreeCoder(const float* thresholds) {
    tree_[0] = 0;
    for (uint32_t node = 1; node <= kTreeNodes; ++node) {
      const auto level = static_cast<uint32_t>(std::bit_width(node)) - 1;
      const uint32_t in_level = node - (1U << level);
      tree_[node] = thresholds[((2 * in_level + 1) << (3 - level)) - 1];
    }
  }
  HWY_INLINE VI code(VF scaled) const {
    const DI di;
    const Table16 tree(tree_);
    auto node = hn::Set(di, 1);
    for (int level = 0; level < 4; ++level) {
      const auto above = hn::RebindMask(di, hn::Ge(scaled, tree.of(node)));
      const auto left = hn::Add(node, node);
      node = hn::IfThenElse(above, hn::Add(left, hn::Set(di, 1)), left);
    }
    return hn::Sub(node, hn::Set(di, 16));
  }

 private:
  float tree_[16];
};

// Levels within 1, whose thresholds lie far enough apart that each of 31 cells of one width has at
// most one: a value is beyond those of the cells before its own, and is compared with that of its
// own. Which cell a value is in only has to be monotone, and is, whatever rounding does.
class CellCoder {
 public:
  explicit CellCoder(const ElementFormat& format) {
    std::fill_n(thresholds_, kCells, std::numeric_limits<float>::infinity());
    fits_ = format.level_max <= 1 && format.threshold_count < 16;
    int next = -kReach;
    for (uint32_t k = 0; k < format.threshold_count && fits_; ++k) {
      const int cell = static_cast<int>(std::lrint(format.thresholds[k] * kPerUnit));
      fits_ = cell >= next && cell <= kReach;
      for (; next <= cell && fits_; ++next) codes_[place(next)] = static_cast<int32_t>(k);
      if (fits_) thresholds_[place(cell)] = format.thresholds[k];
    }
    for (; next <= kReach && fits_; ++next) {
      codes_[place(next)] = static_cast<int32_t>(format.threshold_count);
    }
  }
  // False: the thresholds are too close for it.
  [[nodiscard]] bool fits() const { return fits_; }

  HWY_INLINE VI code(VF scaled) const {
    const DI di;
    const auto cell = nearest_int(hn::Mul(scaled, hn::Set(DF(), kPerUnit)));
    const auto threshold = lookup32(thresholds_, cell);
    const auto code = lookup32(codes_, cell);
    const auto above = hn::RebindMask(di, hn::Ge(scaled, threshold));
    return hn::IfThenElse(above, hn::Add(code, hn::Set(di, 1)), code);
  }

 private:
  static constexpr int kCells = 32;
  static constexpr int kReach = 15;
  // |scaled| is at most 1 + 1/32, where a scale was rounded down (relative_scales.h), and a
  // rounding: 15.47, so cells -15 to 15.
  static constexpr float kPerUnit = 15;
  static size_t place(int cell) { return static_cast<size_t>(cell & (kCells - 1)); }

  alignas(64) float thresholds_[kCells];
  alignas(64) int32_t codes_[kCells] = {};
  bool fits_ = false;
};
#endif

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
class SpecialScales {
 public:
  // A power of two may be clamped anywhere above half of the largest scale.
  explicit SpecialScales(const ElementFormat& format)
      : range_(float_bits(0.5F * format.scale_max) - kLeastNormalBits) {}

  [[nodiscard]] HWY_INLINE bool has(const BlockScale& scale) const {
    return float_bits(scale.scale) - kLeastNormalBits > range_;
  }
  // One look over all without a branch.
  [[nodiscard]] HWY_INLINE bool has_any(const BlockScale* HWY_RESTRICT scales,
                                        size_t blocks) const {
    uint32_t most = 0;
    for (size_t b = 0; b < blocks; ++b) {
      most = std::max(most, float_bits(scales[b].scale) - kLeastNormalBits);
    }
    return most > range_;
  }

 private:
  uint32_t range_;
};

// Codes the special blocks of a tile again, by `code`(block, number of its first value); `all`:
// every block is.
template <class Code>
HWY_INLINE void code_special(const ElementFormat& format, const BlockScale* HWY_RESTRICT scales,
                             size_t blocks, bool all, const Code& code) {
  const SpecialScales special(format);
  if (HWY_LIKELY(!all && !special.has_any(scales, blocks))) return;
  for (size_t b = 0; b < blocks; ++b) {
    if (all || special.has(scales[b])) code(b, b * format.block);
  }
}

void quantize_by_table(const ElementFormat& format, const float* tile, size_t count,
                       const BlockScale* scales, uint8_t* codes) {
  const auto with = [&](const auto& coder) {
    quantize_with(coder, tile, count, format.block, scales, codes);
  };
#if TERSUM_HAS_TABLE16
  if (format.threshold_count == kTreeNodes) {
    const CellCoder cells(format);
    if (cells.fits()) return with(cells);
    return with(TreeCoder(format.thresholds.data()));
  }
#endif
  switch (format.threshold_count) {
    case 1:
      return with(ShortTableCoder<1>(format));  // int1
    case 4:
      return with(ShortTableCoder<4>(format));  // five
#if !TERSUM_HAS_TABLE16
    case 15:
      return with(ShortTableCoder<15>(format));  // nf4, tables of 16
#endif
    default:
      with(TableCoder(format));
  }
}

void quantize_minifloats(const ElementFormat& format, const float* tile, size_t count,
                         const BlockScale* scales, uint8_t* codes) {
  const auto with = [&](const auto& coder) {
    quantize_with(coder, tile, count, format.block, scales, codes);
  };
  switch (format.bits * 10 + static_cast<uint32_t>(format.mantissa_bits)) {
    case 83:
      return with(MinifloatCoder<8, 3>(format));
    case 82:
      return with(MinifloatCoder<8, 2>(format));
    case 63:
      return with(MinifloatCoder<6, 3>(format));
    case 62:
      return with(MinifloatCoder<6, 2>(format));
    case 41:
      return with(MinifloatCoder<4, 1>(format));
    default:
      element_reference().quantize(format, tile, count, scales, codes);
  }
}

void quantize_tile(const ElementFormat& format, const float* tile, size_t count,
                   const BlockScale* scales, uint8_t* codes) {
  if (count == 0) return;
  switch (format.family) {
    case ElementFamily::kInteger:
      quantize_with(IntegerCoder(format), tile, count, format.block, scales, codes);
      break;
    case ElementFamily::kMinifloat:
      quantize_minifloats(format, tile, count, scales, codes);
      break;
    case ElementFamily::kTable:
      quantize_by_table(format, tile, count, scales, codes);
      break;
  }
  // A scale that was rounded down leaves integers beyond the last code in any block.
  const bool all = format.family == ElementFamily::kInteger && format.rule == ScaleRule::kE8M0Floor;
  code_special(format, scales, count / format.block, all, [&](size_t b, size_t at) {
    element_reference().quantize(format, tile + at, format.block, scales + b, codes + at);
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace tersum
HWY_AFTER_NAMESPACE();
#endif  // HWY_TARGET

#endif  // TERSUM_CODEC_KERNELS_ELEMENT_CODING_INL_H_
