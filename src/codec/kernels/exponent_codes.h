// Codes of a sign and a power of two, from numbers and added, both at random without bias: a result
// between two powers is either, with the probabilities that make it the mean.
//
// A code is a sign in bit 7 and an exponent e in bits 0 to 6: ±2^(e - 127) times a unit; with e = 0
// it is zero, which has no sign.
//
// Thread safety: pure functions. Every instruction set gives the bits of the scalar reference.
#pragma once

#include <cstddef>
#include <cstdint>

#include "codec/kernels/random_rounding.h"

namespace tersum {

inline constexpr uint32_t kExponentMax = 127;
inline constexpr uint32_t kExponentSign = 128;

struct ExponentKernels {
  // As the functions below.
  void (*encode)(const float* values, size_t count, uint32_t headroom, const RoundingPlace& place,
                 uint8_t* codes);
  void (*add)(uint8_t* a, const uint8_t* b, size_t count, const RoundingPlace& place);
};
// `target`: one of available_targets().
const ExponentKernels& exponent_kernels_of(int64_t target);

// codes[i] of values[i], which are in [-1, 1]. The unit is 2^headroom, 1 to 126: codes that stand
// for 1 have the exponent 127 - headroom. Value i takes the number i of `place`.
void encode_exponents(const float* values, size_t count, uint32_t headroom,
                      const RoundingPlace& place, uint8_t* codes);

// a[i] = a[i] + b[i]. A sum beyond the largest code becomes that.
void add_exponents(uint8_t* a, const uint8_t* b, size_t count, const RoundingPlace& place);

}  // namespace tersum
