// Random numbers of +sr: a hash of a key and of a value's number, so that a value's rounding does
// not depend on which instruction set codes it, nor on what was coded before it.
//
// Thread safety: pure functions. The vector code of element_rounding-inl.h gives the same bits.
#pragma once

#include <cstddef>
#include <cstdint>

namespace tersum {

// Whose numbers, and which the first value of a run takes: `first` is the value's index in its
// array.
struct RoundingPlace {
  uint32_t low = 0;  // halves of the key
  uint32_t high = 0;
  uint64_t first = 0;
};

inline RoundingPlace rounding_place(uint64_t key, size_t first) {
  return {static_cast<uint32_t>(key), static_cast<uint32_t>(key >> 32), first};
}

// 32 evenly distributed bits for the value number first + i, counted modulo 2^32: values further
// apart than that share a number, which biases neither. The finalizer of MurmurHash3 around an
// odd step, with one half of the key before it and the other in its middle: keys that differ in one
// half only do not give the same numbers a few places on.
inline constexpr uint32_t kRoundingStep = 0x9e3779b9U;
inline constexpr uint32_t kRoundingMixes[2] = {0x85ebca6bU, 0xc2b2ae35U};
inline uint32_t rounding_bits(const RoundingPlace& place, size_t i) {
  uint32_t h = static_cast<uint32_t>(place.first + i) * kRoundingStep + place.low;
  h = (h ^ (h >> 16)) * kRoundingMixes[0];
  h = ((h ^ (h >> 13)) + place.high) * kRoundingMixes[1];
  h = (h ^ (h >> 16)) * kRoundingMixes[0];
  return h ^ (h >> 15);
}

// 16 of them, for rounding: value number n takes one half of the bits of number n / 2, the lower
// one if n is even. That places a value to 2^-17 of a step, as well as its product with the scale's
// inverse is known where codes of 8 bits are large, and costs half of what 32 bits do.
inline constexpr int kRoundingHalf = 16;
inline uint32_t rounding_half(const RoundingPlace& place, size_t i) {
  const uint64_t n = place.first + i;
  const uint32_t both = rounding_bits({place.low, place.high, n / 2}, 0);
  return n % 2 == 0 ? both & 0xffffU : both >> kRoundingHalf;
}

// The upper 24 bits as a number in [0, 1): exact in float32.
inline float rounding_share(uint32_t bits) { return static_cast<float>(bits >> 8) * 0x1p-24F; }

}  // namespace tersum
