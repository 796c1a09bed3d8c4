// Random numbers of +sr: a hash of a key and of a value's number, so that a value's rounding does
// not depend on which instruction set codes it, nor on what was coded before it.
//
// Thread safety: pure functions. The vector code of element_rounding-inl.h gives the same bits.
#pragma once

#include <cstddef>
#include <cstdint>

namespace tersum {

// Whose numbers, and which the first value of a run takes. `first` is the value's index in its
// array modulo 2^32: values further apart than that share a number, which biases neither.
struct RoundingPlace {
  uint32_t low = 0;  // halves of the key
  uint32_t high = 0;
  uint32_t first = 0;
};

inline RoundingPlace rounding_place(uint64_t key, size_t first) {
  return {static_cast<uint32_t>(key), static_cast<uint32_t>(key >> 32),
          static_cast<uint32_t>(first)};
}

// 32 evenly distributed bits for the value number first + i. The finalizer of MurmurHash3 around an
// odd step, with one half of the key before it and the other in its middle: keys that differ in one
// half only do not give the same numbers a few places on.
inline constexpr uint32_t kRoundingStep = 0x9e3779b9U;
inline constexpr uint32_t kRoundingMixes[2] = {0x85ebca6bU, 0xc2b2ae35U};
inline uint32_t rounding_bits(const RoundingPlace& place, size_t i) {
  uint32_t h = (place.first + static_cast<uint32_t>(i)) * kRoundingStep + place.low;
  h = (h ^ (h >> 16)) * kRoundingMixes[0];
  h = ((h ^ (h >> 13)) + place.high) * kRoundingMixes[1];
  h = (h ^ (h >> 16)) * kRoundingMixes[0];
  return h ^ (h >> 15);
}

// The upper 24 bits as a number in [0, 1): exact in float32.
inline float rounding_share(uint32_t bits) { return static_cast<float>(bits >> 8) * 0x1p-24F; }

}  // namespace tersum
