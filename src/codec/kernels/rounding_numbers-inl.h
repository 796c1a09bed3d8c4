// The random numbers of random_rounding.h, a vector of them at a time.
#if defined(TERSUM_CODEC_KERNELS_ROUNDING_NUMBERS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TERSUM_CODEC_KERNELS_ROUNDING_NUMBERS_INL_H_
#undef TERSUM_CODEC_KERNELS_ROUNDING_NUMBERS_INL_H_
#else
#define TERSUM_CODEC_KERNELS_ROUNDING_NUMBERS_INL_H_
#endif

#include "codec/kernels/hwy_compat-inl.h"
#include "codec/kernels/random_rounding.h"
#include "hwy/highway.h"

#if HWY_TARGET != HWY_SCALAR  // the reference serves there
HWY_BEFORE_NAMESPACE();
namespace tersum {
namespace HWY_NAMESPACE {

// rounding_bits() of kLanes neighbours, lane by lane. What the lanes differ by is made once:
// Highway builds Iota of a variable number lane by lane in memory, which took two thirds of an
// encoder's time. Modulo 2^32 (first + i + lane) * step is the sum of its parts.
class RoundingNumbers {
 public:
  explicit RoundingNumbers(const RoundingPlace& place)
      : lanes_(hn::Add(hn::Mul(hn::Iota(DU(), 0), hn::Set(DU(), kRoundingStep)),
                       hn::Set(DU(), place.first * kRoundingStep + place.low))),
        high_(place.high) {}

  HWY_INLINE VU bits(size_t i) const {
    const DU du;
    const auto mix = hn::Set(du, kRoundingMixes[0]);
    auto h = hn::Add(lanes_, hn::Set(du, static_cast<uint32_t>(i) * kRoundingStep));
    h = hn::Mul(hn::Xor(h, hn::ShiftRight<16>(h)), mix);
    h = hn::Add(hn::Xor(h, hn::ShiftRight<13>(h)), hn::Set(du, high_));
    h = hn::Mul(h, hn::Set(du, kRoundingMixes[1]));
    h = hn::Mul(hn::Xor(h, hn::ShiftRight<16>(h)), mix);
    return hn::Xor(h, hn::ShiftRight<15>(h));
  }
  // rounding_share().
  static HWY_INLINE VF share(VU bits) {
    const DI di;
    const auto whole = hn::ConvertTo(DF(), hn::BitCast(di, hn::ShiftRight<8>(bits)));
    return hn::Mul(whole, hn::Set(DF(), 0x1p-24F));
  }

 private:
  VU lanes_;
  uint32_t high_;
};

}  // namespace HWY_NAMESPACE
}  // namespace tersum
HWY_AFTER_NAMESPACE();
#endif  // HWY_TARGET != HWY_SCALAR

#endif  // include guard
