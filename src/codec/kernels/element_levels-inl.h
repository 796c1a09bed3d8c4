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
        to_place_(10 - mantissa_bits),
        magnitude_(static_cast<uint16_t>(((1 << (bits - 1)) - 1) << to_place_)),
        rebias_(std::ldexp(1.0F, 14 + least_exponent)) {}

  HWY_INLINE VF of(const uint8_t* codes) const {
    const hn::Rebind<uint16_t, DF> dh;
    const auto bits = hn::PromoteTo(dh, hn::LoadU(hn::Rebind<uint8_t, DF>(), codes));
    const auto sign = hn::And(hn::ShiftLeftSame(bits, sign_to_place_), hn::Set(dh, 0x8000));
    const auto magnitude = hn::And(hn::ShiftLeftSame(bits, to_place_), hn::Set(dh, magnitude_));
    const hn::Rebind<hwy::float16_t, DF> half;
    const auto value = hn::PromoteTo(DF(), hn::BitCast(half, hn::Or(sign, magnitude)));
    return hn::Mul(value, hn::Set(DF(), rebias_));
  }

 private:
  int sign_to_place_;
  int to_place_;
  uint16_t magnitude_;
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

#if TERSUM_HAS_LOOKUP16
class SmallLevels {
 public:
  explicit SmallLevels(const ElementFormat& format)
      : levels_(hn::LoadU(DF(), format.levels.data())) {}
  HWY_INLINE VF of(const uint8_t* codes) const { return lookup16(levels_, load_codes(codes)); }

 private:
  VF levels_;
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

// Where values go.
struct TileSink {
  float* tile;
  HWY_INLINE void put(VF value, size_t at) const { hn::StoreU(value, DF(), tile + at); }
};
struct AddingSink {
  float* tile;
  HWY_INLINE void put(VF value, size_t at) const {
    hn::StoreU(hn::Add(hn::LoadU(DF(), tile + at), value), DF(), tile + at);
  }
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
};

// Returns the sink as it is then.
template <class Levels, class Sink>
HWY_NOINLINE Sink dequantize_with(const Levels& levels, const uint8_t* HWY_RESTRICT codes,
                                  size_t count, size_t block, const BlockScale* HWY_RESTRICT scales,
                                  Sink sink) {
  const DF df;
  for (size_t at = 0; at < count; ++scales) {
    const auto scale = hn::Set(df, scales->scale);
    for (const size_t end = std::min(at + block, count); at < end; at += kLanes) {
      sink.put(hn::Mul(levels.of(codes + at), scale), at);
    }
  }
  return sink;
}

template <class Sink>
HWY_INLINE Sink dequantize_to(const ElementFormat& format, const uint8_t* codes, size_t count,
                              const BlockScale* scales, const Sink& sink) {
  const auto by = [=, &format](const auto& levels) {
    return dequantize_with(levels, codes, count, format.block, scales, sink);
  };
  if (format.family == ElementFamily::kInteger) return by(IntegerLevels(format));
#if TERSUM_HAS_LOOKUP16
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
  if (dequantize_to(format, codes, count, scales, SumSink{terms, to}).nan.seen()) {
    clean_nans(to, count);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace tersum
HWY_AFTER_NAMESPACE();
#endif  // HWY_TARGET

#endif  // TERSUM_CODEC_KERNELS_ELEMENT_LEVELS_INL_H_
