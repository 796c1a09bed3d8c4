// The random numbers of random_rounding.h, a vector of them at a time.
#if defined(TERSUM_CODEC_KERNELS_ROUNDING_NUMBERS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TERSUM_CODEC_KERNELS_ROUNDING_NUMBERS_INL_H_
#undef TERSUM_CODEC_KERNELS_ROUNDING_NUMBERS_INL_H_
#else
#define TERSUM_CODEC_KERNELS_ROUNDING_NUMBERS_INL_H_
#endif

#include "codec/kernels/element_kernels.h"
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
      : lanes_(
            hn::Add(hn::Mul(hn::Iota(DU(), 0), hn::Set(DU(), kRoundingStep)),
                    hn::Set(DU(), static_cast<uint32_t>(place.first) * kRoundingStep + place.low))),
        high_(place.high) {}

  HWY_INLINE VU bits(size_t i) const {
    VU h[1];
    bits(i, h);
    return h[0];
  }
  // Of vectors in a row, side by side: each is a chain of a dozen steps that wait for one another,
  // of which a core that looks ahead sees too few where they come one after the other.
  template <size_t kCount>
  HWY_INLINE void bits(size_t i, VU (&h)[kCount]) const {
    const DU du;
    const auto mix = hn::Set(du, kRoundingMixes[0]);
    const auto next = hn::Set(du, static_cast<uint32_t>(kLanes) * kRoundingStep);
    h[0] = hn::Add(lanes_, hn::Set(du, static_cast<uint32_t>(i) * kRoundingStep));
    for (size_t k = 1; k < kCount; ++k) h[k] = hn::Add(h[k - 1], next);
    for (auto& v : h) v = hn::Mul(hn::Xor(v, hn::ShiftRight<16>(v)), mix);
    for (auto& v : h) v = hn::Add(hn::Xor(v, hn::ShiftRight<13>(v)), hn::Set(du, high_));
    for (auto& v : h) v = hn::Mul(v, hn::Set(du, kRoundingMixes[1]));
    for (auto& v : h) v = hn::Mul(hn::Xor(v, hn::ShiftRight<16>(v)), mix);
    for (auto& v : h) v = hn::Xor(v, hn::ShiftRight<15>(v));
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

// rounding_half() of the values of a tile. Each vector of numbers holds those of two vectors of
// values, in the order of the values once it lies in memory.
class RoundingHalves {
 public:
  // Of `count` values and those behind them up to the next multiple of kTilePad.
  RoundingHalves(const RoundingPlace& place, size_t count) : odd_(place.first % 2) {
    const hn::Repartition<uint16_t, DU> dh;
    const RoundingNumbers numbers({place.low, place.high, place.first / 2});
    const size_t end = round_up(count, kTilePad) + odd_;
    for (size_t at = 0; at < end; at += 8 * kLanes) {
      VU pairs[4];
      numbers.bits(at / 2, pairs);
      for (size_t v = 0; v < 4; ++v) {
        hn::StoreU(hn::BitCast(dh, pairs[v]), dh, halves_ + at + 2 * v * kLanes);
      }
    }
  }
  HWY_INLINE VI at(size_t i) const { return hn::BitCast(DI(), load_words(halves_ + odd_ + i)); }

 private:
  size_t odd_;
  alignas(64) uint16_t halves_[kTileMemory + 8 * kLanes];
};

}  // namespace HWY_NAMESPACE
}  // namespace tersum
HWY_AFTER_NAMESPACE();
#endif  // HWY_TARGET != HWY_SCALAR

#endif  // include guard
