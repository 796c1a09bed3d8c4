// Values of a tile from its codes and scales.
#if defined(TERSUM_CODEC_KERNELS_ELEMENT_LEVELS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TERSUM_CODEC_KERNELS_ELEMENT_LEVELS_INL_H_
#undef TERSUM_CODEC_KERNELS_ELEMENT_LEVELS_INL_H_
#else
#define TERSUM_CODEC_KERNELS_ELEMENT_LEVELS_INL_H_
#endif

#include <algorithm>
#include <cmath>

#include "codec/kernels/element_format.h"
#include "codec/kernels/element_packing-inl.h"
#include "codec/kernels/hwy_compat-inl.h"
#include "codec/kernels/vector_formats-inl.h"
#include "hwy/highway.h"

#if HWY_TARGET != HWY_SCALAR  // the reference serves there
HWY_BEFORE_NAMESPACE();
namespace tersum {
namespace HWY_NAMESPACE {

HWY_INLINE VI load_codes(const uint8_t* codes) {
  return hn::PromoteTo(DI(), hn::LoadU(hn::Rebind<uint8_t, DI>(), codes));
}

// Codes as signed bytes: the highest of their bits is the sign, and bits above it are 0. `D`: of
// int8.
class SignedCodes {
 public:
  explicit SignedCodes(const ElementFormat& format)
      : sign_(static_cast<int8_t>(1U << (format.bits - 1))) {}

  template <class D>
  HWY_INLINE hn::Vec<D> load(D d, const uint8_t* codes) const {
    const auto sign = hn::Set(d, sign_);
    const auto bytes = hn::LoadU(d, reinterpret_cast<const int8_t*>(codes));
    return hn::Sub(hn::Xor(bytes, sign), sign);
  }

 private:
  int8_t sign_;
};

class IntegerLevels {
 public:
  explicit IntegerLevels(const ElementFormat& format) : codes_(format) {}
  HWY_INLINE VF of(const uint8_t* codes) const {
    return hn::ConvertTo(DF(), hn::PromoteTo(DI(), codes_.load(hn::Rebind<int8_t, DI>(), codes)));
  }

 private:
  SignedCodes codes_;
};

// Of codes that are all numbers. A minifloat's bits are those of a float16 once they are at its
// place, but for the bias of the exponent, and what converts float16 knows denormals.
class MinifloatLevels {
 public:
  explicit MinifloatLevels(const ElementFormat& format)
      : MinifloatLevels(static_cast<int>(format.bits), format.mantissa_bits,
                        format.least_exponent) {}
  MinifloatLevels(int bits, int mantissa_bits, int least_exponent)
      : sign_to_place_(16 - bits),
        to_place_(6 + mantissa_bits - bits),
        mask_(static_cast<int16_t>(0x8000 | ((1 << (bits - 1)) - 1) << (10 - mantissa_bits))),
        rebias_(std::ldexp(1.0F, 14 + least_exponent)) {}

  HWY_INLINE VF of(const uint8_t* codes) const {
    const hn::Rebind<int16_t, DF> dh;
    const auto bits = hn::PromoteTo(dh, hn::LoadU(hn::Rebind<uint8_t, DF>(), codes));
    // The sign to its place, and the rest, with copies of the sign between, to the place of its
    // own.
    const auto spread = hn::ShiftRightSame(hn::ShiftLeftSame(bits, sign_to_place_), to_place_);
    const auto half_bits = hn::And(spread, hn::Set(dh, mask_));
    const hn::Rebind<hwy::float16_t, DF> half;
    const auto value = hn::PromoteTo(DF(), hn::BitCast(half, half_bits));
    return hn::Mul(value, hn::Set(DF(), rebias_));
  }

 private:
  int sign_to_place_;
  int to_place_;
  int16_t mask_;
  float rebias_;
};

class TableLevels {
 public:
  explicit TableLevels(const ElementFormat& format) : levels_(format.levels.data()) {}
  HWY_INLINE VF of(const uint8_t* codes) const {
    return hn::GatherIndex(DF(), levels_, load_codes(codes));
  }

 private:
  const float* levels_;
};

#if TERSUM_HAS_TABLE16
class SmallLevels {
 public:
  explicit SmallLevels(const ElementFormat& format) : levels_(format.levels.data()) {}
  HWY_INLINE VF of(const uint8_t* codes) const { return levels_.of(load_codes(codes)); }

 private:
  Table16 levels_;
};
#endif

bool all_numbers_tile(const ElementFormat& format, const uint8_t* codes, size_t count) {
  if (format.numbers > format.number_mask) return true;
  const hn::CappedTag<uint8_t, 64> d;
  const auto mask = hn::Set(d, format.number_mask);
  auto most = hn::Zero(d);
  size_t i = 0;
  for (; i + hn::Lanes(d) <= count; i += hn::Lanes(d)) {
    most = hn::Max(most, hn::And(hn::LoadU(d, codes + i), mask));
  }
  for (; i < count; ++i) {
    most = hn::Max(most, hn::Set(d, static_cast<uint8_t>(codes[i] & format.number_mask)));
  }
  const auto least = hn::Set(d, static_cast<uint8_t>(format.numbers));
  return hn::AllFalse(d, hn::Eq(hn::Max(most, least), most));
}

// Where values go; saw_nan(): whether one was NaN, where somebody wants to know.
struct TileSink {
  float* tile;
  HWY_INLINE void put(VF value, size_t at) const { hn::StoreU(value, DF(), tile + at); }
  [[nodiscard]] HWY_INLINE bool saw_nan() const { return false; }
};
struct AddingSink {
  float* tile;
  HWY_INLINE void put(VF value, size_t at) const {
    hn::StoreU(hn::Add(hn::LoadU(DF(), tile + at), value), DF(), tile + at);
  }
  [[nodiscard]] HWY_INLINE bool saw_nan() const { return false; }
};
struct SumSink {
  const float* terms;
  float* to;
  NanWatch nan = {};
  HWY_INLINE void put(VF value, size_t at) {
    const auto sum = hn::Add(hn::LoadU(DF(), terms + at), value);
    hn::StoreU(sum, DF(), to + at);
    nan.watch(sum, sum);
    prefetch_ahead<1>(terms + at);
  }
  [[nodiscard]] HWY_INLINE bool saw_nan() const { return nan.seen(); }
};

// Returns whether the sink saw a NaN. Copies are worked with: a vector of an argument, or of what
// is returned, would be in memory throughout.
template <class Levels, class Sink>
HWY_NOINLINE bool dequantize_with(const Levels& all_levels, const uint8_t* HWY_RESTRICT codes,
                                  size_t count, size_t block, const BlockScale* HWY_RESTRICT scales,
                                  const Sink& first_sink) {
  const DF df;
  const Levels levels = all_levels;
  Sink sink = first_sink;
  for (size_t at = 0; at < count; ++scales) {
    const auto scale = hn::Set(df, scales->scale);
    for (const size_t end = std::min(at + block, count); at < end; at += kLanes) {
      sink.put(hn::Mul(levels.of(codes + at), scale), at);
    }
  }
  return sink.saw_nan();
}

template <class Sink>
HWY_INLINE bool dequantize_to(const ElementFormat& format, const uint8_t* codes, size_t count,
                              const BlockScale* scales, const Sink& sink) {
  const auto by = [=, &format](const auto& levels) {
    return dequantize_with(levels, codes, count, format.block, scales, sink);
  };
  if (format.family == ElementFamily::kInteger) return by(IntegerLevels(format));
#if TERSUM_HAS_TABLE16
  if (format.bits <= 4) return by(SmallLevels(format));
#endif
  if (format.family == ElementFamily::kMinifloat && all_numbers_tile(format, codes, count)) {
    return by(MinifloatLevels(format));
  }
  return by(TableLevels(format));
}

void dequantize_tile(const ElementFormat& format, const uint8_t* codes, size_t count,
                     const BlockScale* scales, float* tile) {
  dequantize_to(format, codes, count, scales, TileSink{tile});
}

void dequantize_add_tile(const ElementFormat& format, const uint8_t* codes, size_t count,
                         const BlockScale* scales, float* tile) {
  dequantize_to(format, codes, count, scales, AddingSink{tile});
}

void dequantize_sums(const ElementFormat& format, const uint8_t* codes, size_t count,
                     const BlockScale* scales, const float* terms, float* to) {
  if (dequantize_to(format, codes, count, scales, SumSink{terms, to})) clean_nans(to, count);
}

#if TERSUM_HAS_TABLE16
// A lookup takes four bits of a lane, whatever stands above them.
template <class Sink>
HWY_NOINLINE bool dequantize_nibbles_to(const ElementFormat& format,
                                        const std::byte* HWY_RESTRICT wire, size_t count,
                                        const BlockScale* HWY_RESTRICT scales,
                                        const Sink& first_sink) {
  const DF df;
  Sink sink = first_sink;
  const Table16 levels(format.levels.data());
  const auto* HWY_RESTRICT from = reinterpret_cast<const uint8_t*>(wire);
  const size_t step = std::max<size_t>(format.block, kNibbleGroup);
  const size_t second = format.block < kNibbleGroup ? 1 : 0;
  for (size_t at = 0; at < count; scales += 1 + second) {
    const auto low = hn::Set(df, scales[0].scale);
    const auto high = hn::Set(df, scales[second].scale);
    for (const size_t end = std::min(at + step, count); at < end; at += kNibbleGroup) {
      for (size_t i = 0; i < kNibbleGroupBytes; i += kLanes) {
        const auto codes = load_codes(from + i);
        sink.put(hn::Mul(levels.of(codes), low), at + i);
        sink.put(hn::Mul(levels.of(hn::ShiftRight<4>(codes)), high), at + kNibbleGroupBytes + i);
      }
      from += kNibbleGroupBytes;
    }
  }
  return sink.saw_nan();
}
#endif

template <class Sink>
HWY_INLINE bool dequantize_wire_to(const ElementFormat& format, const std::byte* wire, size_t count,
                                   const BlockScale* scales, const Sink& sink) {
#if TERSUM_HAS_TABLE16
  if (format.packing == Packing::kNibbles) {
    return dequantize_nibbles_to(format, wire, count, scales, sink);
  }
#endif
  alignas(64) uint8_t codes[kTileMemory];
  unpack_codes(format, wire, count / group_values(format.packing), codes);
  return dequantize_to(format, codes, count, scales, sink);
}

void dequantize_wire(const ElementFormat& format, const std::byte* wire, size_t count,
                     const BlockScale* scales, const float* terms, float* to) {
  if (terms == nullptr) {
    dequantize_wire_to(format, wire, count, scales, TileSink{to});
  } else if (dequantize_wire_to(format, wire, count, scales, SumSink{terms, to})) {
    clean_nans(to, count);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace tersum
HWY_AFTER_NAMESPACE();
#endif  // HWY_TARGET

#endif  // TERSUM_CODEC_KERNELS_ELEMENT_LEVELS_INL_H_
