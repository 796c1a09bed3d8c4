// Scales of the blocks of a tile, as many blocks at once as a vector has lanes.
//
// What choose_scale() and read_scale() compute for one block, by the same operations; where a block
// among them takes a way of its own (nothing finite, a scale that is clamped or next to nothing)
// the scalar functions do them all.
#if defined(TERSUM_CODEC_KERNELS_ELEMENT_SCALES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TERSUM_CODEC_KERNELS_ELEMENT_SCALES_INL_H_
#undef TERSUM_CODEC_KERNELS_ELEMENT_SCALES_INL_H_
#else
#define TERSUM_CODEC_KERNELS_ELEMENT_SCALES_INL_H_
#endif

#include <algorithm>
#include <cmath>

#include "codec/kernels/block_scales-inl.h"
#include "codec/kernels/element_format.h"
#include "codec/kernels/element_levels-inl.h"
#include "codec/kernels/element_reference.h"
#include "codec/kernels/hwy_compat-inl.h"
#include "hwy/highway.h"

#if HWY_TARGET != HWY_SCALAR  // the reference serves there
HWY_BEFORE_NAMESPACE();
namespace tersum {
namespace HWY_NAMESPACE {

// Of kLanes blocks.
struct LaneScales {
  VF scale;
  VU wire;
  hn::Mask<DI> special;
};

HWY_INLINE void store_lanes(VF scale, BlockScale* HWY_RESTRICT scales) {
  const DF df;
  const auto one = hn::Set(df, 1.0F);
  const auto inverse = hn::IfThenZeroElse(hn::Eq(scale, hn::Zero(df)), hn::Div(one, scale));
  static_assert(sizeof(BlockScale) == 3 * sizeof(float));
  hn::StoreInterleaved3(scale, one, inverse, df, &scales->scale);
}

// Numbers below 256, a byte each.
HWY_INLINE void store_low_bytes(VU numbers, std::byte* to) {
  const hn::Rebind<uint8_t, DI> db;
  hn::StoreU(hn::DemoteTo(db, hn::BitCast(DI(), numbers)), db, reinterpret_cast<uint8_t*>(to));
}

// kBf16Up: as bf16_up().
class Bf16Chooser {
 public:
  static constexpr size_t kWireBytes = 2;
  explicit Bf16Chooser(const ElementFormat& format)
      : level_max_(format.level_max),
        scale_max_(static_cast<int32_t>(float_bits(format.scale_max))) {}

  HWY_INLINE LaneScales choose(VI absmax) const {
    const DF df;
    const DI di;
    const auto level_max = hn::Set(df, level_max_);
    const auto quotient = hn::BitCast(di, hn::Div(hn::BitCast(df, absmax), level_max));
    auto bits = hn::And(hn::Add(quotient, hn::Set(di, 0xffff)),
                        hn::Set(di, static_cast<int32_t>(0xffff0000U)));
    const auto reach = hn::Mul(hn::BitCast(df, bits), level_max);
    const auto is_short = hn::RebindMask(di, hn::Lt(reach, hn::BitCast(df, absmax)));
    bits = hn::IfThenElse(is_short, hn::Add(bits, hn::Set(di, 0x10000)), bits);
    const auto is_clamped = hn::Gt(bits, hn::Set(di, scale_max_));
    const auto is_tiny = hn::Gt(hn::Set(di, static_cast<int32_t>(kLeastNormalBits)), bits);
    const auto is_zero = hn::Eq(bits, hn::Zero(di));
    return {hn::BitCast(df, bits), hn::ShiftRight<16>(hn::BitCast(DU(), bits)),
            hn::Or(is_clamped, hn::AndNot(is_zero, is_tiny))};
  }
  static HWY_INLINE void store_wire(VU wire, std::byte* to) {
    store_words(wire, reinterpret_cast<uint16_t*>(to));
  }

 private:
  float level_max_;
  int32_t scale_max_;
};

// kE8M0Up and kE8M0Floor: as e8m0_byte(), for exponents whose reciprocals are normal, too.
class PowerChooser {
 public:
  static constexpr size_t kWireBytes = 1;
  explicit PowerChooser(const ElementFormat& format) {
    const auto level = static_cast<int32_t>(float_bits(format.level_max));
    // Carries into the exponent where the mantissa is larger than the level's.
    up_ = format.rule == ScaleRule::kE8M0Up ? kMantissa - (level & kMantissa) : 0;
    level_field_ = level >> 23;
    most_ = std::min(static_cast<int32_t>(float_bits(format.scale_max) >> 23) - 127, -kLeast);
    to_byte_ = 127 - format.scale_exponent;
  }

  HWY_INLINE LaneScales choose(VI absmax) const {
    const DI di;
    const auto field = hn::ShiftRight<23>(hn::Add(absmax, hn::Set(di, up_)));
    const auto exponent = hn::Sub(field, hn::Set(di, level_field_));
    const auto below = hn::Gt(hn::Set(di, kLeast), exponent);
    const auto above = hn::Gt(exponent, hn::Set(di, most_));
    const auto is_tiny = hn::Gt(hn::Set(di, static_cast<int32_t>(kLeastNormalBits)), absmax);
    const auto scale = hn::ShiftLeft<23>(hn::Add(exponent, hn::Set(di, 127)));
    return {hn::BitCast(DF(), scale), hn::BitCast(DU(), hn::Add(exponent, hn::Set(di, to_byte_))),
            hn::Or(is_tiny, hn::Or(below, above))};
  }
  static HWY_INLINE void store_wire(VU wire, std::byte* to) { store_low_bytes(wire, to); }

 private:
  static constexpr int32_t kMantissa = 0x007fffff;
  static constexpr int32_t kLeast = -100;

  int32_t up_;
  int32_t level_field_;
  int32_t most_;
  int32_t to_byte_;
};

// The bits of an e4m3 number without a sign, but for NaN, as a float.
HWY_INLINE VF e4m3_values(VI bits) {
  const DF df;
  const DI di;
  const auto normal = hn::BitCast(df, hn::ShiftLeft<20>(hn::Add(bits, hn::Set(di, 120 << 3))));
  const auto denormal = hn::Mul(hn::ConvertTo(df, bits), hn::Set(df, 0x1p-9F));
  return hn::IfThenElse(hn::RebindMask(df, hn::Gt(hn::Set(di, 8), bits)), denormal, normal);
}

// kE4M3Tensor: as nearest_e4m3(), with a tensor scale that leaves every scale normal, or 0.
class E4M3Chooser {
 public:
  static constexpr size_t kWireBytes = 1;
  E4M3Chooser(const ElementFormat& format, float tensor_scale)
      : level_max_(format.level_max), tensor_scale_(tensor_scale) {}

  HWY_INLINE LaneScales choose(VI absmax) const {
    const DF df;
    const DI di;
    const auto in_levels = hn::Div(hn::BitCast(df, absmax), hn::Set(df, level_max_));
    // 448 has a code of its own, and no larger number has one.
    const auto value = hn::Min(hn::Div(in_levels, hn::Set(df, tensor_scale_)), hn::Set(df, 448.0F));
    const auto bits = hn::BitCast(di, value);
    const auto odd = hn::And(hn::ShiftRight<20>(bits), hn::Set(di, 1));
    const auto rounded = hn::ShiftRight<20>(hn::Add(hn::Add(bits, hn::Set(di, 0x7ffff)), odd));
    const auto normal = hn::Sub(rounded, hn::Set(di, 120 << 3));
    const auto least = hn::Set(df, 0x1p-6F);
    const auto small = nearest_int(hn::Mul(hn::Min(value, least), hn::Set(df, 512.0F)));
    const auto code = hn::IfThenElse(hn::RebindMask(di, hn::Lt(value, least)), small, normal);
    const auto scale = hn::Mul(e4m3_values(code), hn::Set(df, tensor_scale_));
    return {scale, hn::BitCast(DU(), code), hn::MaskFromVec(hn::Zero(di))};
  }
  static HWY_INLINE void store_wire(VU wire, std::byte* to) { store_low_bytes(wire, to); }

 private:
  float level_max_;
  float tensor_scale_;
};

template <class Chooser>
HWY_NOINLINE void choose_with(const Chooser& chooser, const ElementFormat& format,
                              const uint32_t* HWY_RESTRICT absmax_bits, size_t blocks,
                              float tensor_scale, std::byte* HWY_RESTRICT wire,
                              BlockScale* HWY_RESTRICT scales) {
  const DI di;
  const auto last_finite = hn::Set(di, static_cast<int32_t>(format.overflow_bits - 1));
  for (size_t b = 0; b < blocks; b += kLanes) {
    const size_t here = std::min(kLanes, blocks - b);
    std::byte* const to = wire + b * Chooser::kWireBytes;
    if (here == kLanes) {
      const auto absmax = hn::LoadU(di, reinterpret_cast<const int32_t*>(absmax_bits + b));
      const LaneScales chosen = chooser.choose(absmax);
      if (HWY_LIKELY(hn::AllFalse(di, hn::Or(chosen.special, hn::Gt(absmax, last_finite))))) {
        chooser.store_wire(chosen.wire, to);
        store_lanes(chosen.scale, scales + b);
        continue;
      }
    }
    element_reference().choose_scales(format, absmax_bits + b, here, tensor_scale, to, scales + b);
  }
}

void choose_tile_scales(const ElementFormat& format, const uint32_t* absmax_bits, size_t blocks,
                        float tensor_scale, std::byte* wire, BlockScale* scales) {
  if (format.rule == ScaleRule::kBf16Up) {
    return choose_with(Bf16Chooser(format), format, absmax_bits, blocks, tensor_scale, wire,
                       scales);
  }
  if (format.rule == ScaleRule::kE8M0Up || format.rule == ScaleRule::kE8M0Floor) {
    return choose_with(PowerChooser(format), format, absmax_bits, blocks, tensor_scale, wire,
                       scales);
  }
  if (format.rule == ScaleRule::kE4M3Tensor && is_wide_tensor_scale(tensor_scale)) {
    return choose_with(E4M3Chooser(format, tensor_scale), format, absmax_bits, blocks, tensor_scale,
                       wire, scales);
  }
  element_reference().choose_scales(format, absmax_bits, blocks, tensor_scale, wire, scales);
}

// kE8M0Up and kE8M0Floor: as e8m0_value() where that is a normal number.
class PowerReader {
 public:
  explicit PowerReader(const ElementFormat& format) : exponent_(format.scale_exponent) {}
  HWY_INLINE VF read(const uint8_t* wire, hn::Mask<DI>& special) const {
    const DI di;
    const auto byte = load_codes(wire);
    const auto field = hn::Add(byte, hn::Set(di, exponent_));
    const auto is_nan = hn::Eq(byte, hn::Set(di, 255));
    special = hn::Or(is_nan, hn::Gt(hn::Set(di, 1), field));
    return hn::BitCast(DF(), hn::ShiftLeft<23>(field));
  }

 private:
  int32_t exponent_;
};

// kE4M3Tensor, with a tensor scale that is a number.
class E4M3Reader {
 public:
  explicit E4M3Reader(float tensor_scale) : levels_(8, 3, -6), tensor_scale_(tensor_scale) {}
  HWY_INLINE VF read(const uint8_t* wire, hn::Mask<DI>& special) const {
    special = hn::Gt(load_codes(wire), hn::Set(DI(), 0x7e));
    return hn::Mul(levels_.of(wire), hn::Set(DF(), tensor_scale_));
  }

 private:
  MinifloatLevels levels_;
  float tensor_scale_;
};

// Scales of a byte each.
template <class Reader>
HWY_NOINLINE void read_with(const Reader& reader, const ElementFormat& format,
                            const std::byte* HWY_RESTRICT wire, size_t blocks, float tensor_scale,
                            BlockScale* HWY_RESTRICT scales) {
  const DI di;
  for (size_t b = 0; b < blocks; b += kLanes) {
    const size_t here = std::min(kLanes, blocks - b);
    if (here == kLanes) {
      hn::Mask<DI> special;
      const auto scale = reader.read(reinterpret_cast<const uint8_t*>(wire + b), special);
      if (HWY_LIKELY(hn::AllFalse(di, special))) {
        alignas(64) float scale_of[kLanes];
        hn::Store(scale, DF(), scale_of);
        for (size_t k = 0; k < kLanes; ++k) scales[b + k].scale = scale_of[k];
        continue;
      }
    }
    element_reference().read_scales(format, wire + b, here, tensor_scale, scales + b);
  }
}

void read_tile_scales(const ElementFormat& format, const std::byte* wire, size_t blocks,
                      float tensor_scale, BlockScale* scales) {
  if (format.rule == ScaleRule::kE8M0Up || format.rule == ScaleRule::kE8M0Floor) {
    return read_with(PowerReader(format), format, wire, blocks, tensor_scale, scales);
  }
  if (format.rule == ScaleRule::kE4M3Tensor && std::isfinite(tensor_scale)) {
    return read_with(E4M3Reader(tensor_scale), format, wire, blocks, tensor_scale, scales);
  }
  element_reference().read_scales(format, wire, blocks, tensor_scale, scales);
}

void choose_tile_means(const ElementFormat& format, const uint32_t* HWY_RESTRICT absmax_bits,
                       const float* HWY_RESTRICT sums, size_t count, std::byte* wire,
                       BlockScale* HWY_RESTRICT scales) {
  const DF df;
  const DI di;
  const auto last_finite = hn::Set(di, static_cast<int32_t>(format.overflow_bits - 1));
  const auto factor = hn::Set(df, 1 / (kMeanFactor * static_cast<float>(format.block)));
  for (size_t b = 0; b * format.block < count; b += kLanes) {
    const size_t left = count - b * format.block;
    const size_t here = std::min(kLanes * format.block, left);
    if (here == kLanes * format.block) {
      const auto absmax = hn::LoadU(di, reinterpret_cast<const int32_t*>(absmax_bits + b));
      const auto mean = hn::BitCast(di, hn::Mul(hn::LoadU(df, sums + b), factor));
      const auto odd = hn::And(hn::ShiftRight<16>(mean), hn::Set(di, 1));
      const auto rounded = hn::Add(hn::Add(mean, hn::Set(di, 0x7fff)), odd);
      const auto bits = hn::And(rounded, hn::Set(di, static_cast<int32_t>(0xffff0000U)));
      const auto scale = hn::BitCast(df, bits);
      const auto beyond = hn::RebindMask(di, hn::Gt(scale, hn::Set(df, format.scale_max)));
      const auto is_tiny = hn::Gt(hn::Set(di, static_cast<int32_t>(kLeastNormalBits)), bits);
      const auto not_zero = hn::Ne(bits, hn::Zero(di));
      const auto special =
          hn::Or(hn::Or(hn::And(is_tiny, not_zero), beyond), hn::Gt(absmax, last_finite));
      if (HWY_LIKELY(hn::AllFalse(di, special))) {
        store_words(hn::ShiftRight<16>(hn::BitCast(DU(), bits)),
                    reinterpret_cast<uint16_t*>(wire + 2 * b));
        store_lanes(scale, scales + b);
        continue;
      }
    }
    element_reference().choose_means(format, absmax_bits + b, sums + b, here, wire + 2 * b,
                                     scales + b);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace tersum
HWY_AFTER_NAMESPACE();
#endif  // HWY_TARGET

#endif  // TERSUM_CODEC_KERNELS_ELEMENT_SCALES_INL_H_
