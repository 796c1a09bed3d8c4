#include "codec/kernels/exponent_codes.h"

#include <algorithm>

#include "codec/kernels/numbers.h"

namespace tersum {
namespace {

constexpr uint32_t kMantissaBits = 23;

// Adding 23 random bits to those of a float32 carries into its exponent as often as its mantissa is
// large: 2^E (1 + m) becomes 2^(E + 1) with probability m. Below the least power there is only that
// one and zero.
uint32_t exponent_of(float magnitude, uint32_t headroom, float to_least, uint32_t random) {
  const uint32_t bits = float_bits(magnitude);
  const uint32_t carried = (bits + (random >> (32 - kMantissaBits))) >> kMantissaBits;
  const uint32_t least = rounding_share(random) < magnitude * to_least ? 1 : 0;
  return bits >> kMantissaBits > headroom ? carried - headroom : least;
}

// Of powers that lie d apart, the larger one 1: 1 + 2^-d becomes 2 with probability 2^-d; 1 - 2^-d
// becomes 1/2 with probability 2^(1-d), and is zero for d = 0.
uint32_t add_codes(uint32_t a, uint32_t b, uint32_t random) {
  const uint32_t a_exponent = a & kExponentMax;
  const uint32_t b_exponent = b & kExponentMax;
  const bool a_leads = a_exponent >= b_exponent;
  const uint32_t lead = a_leads ? a_exponent : b_exponent;
  const uint32_t other = a_leads ? b_exponent : a_exponent;
  const uint32_t sign = (a_leads ? a : b) & kExponentSign;
  const bool same = ((a ^ b) & kExponentSign) == 0;
  if (other == 0) return lead == 0 ? 0 : lead | sign;
  const uint32_t apart = lead - other;
  if (!same && apart == 0) return 0;
  const uint32_t halvings = same ? apart : apart - 1;
  const bool moves = halvings <= 32 && (uint64_t{random} << halvings) >> 32 == 0;
  const uint32_t step = moves ? 1 : 0;
  const uint32_t exponent = same ? std::min(lead + step, kExponentMax) : lead - step;
  return exponent | sign;
}

}  // namespace

void encode_exponents(const float* values, size_t count, uint32_t headroom,
                      const RoundingPlace& place, uint8_t* codes) {
  // The least power is 2^(headroom + 1 - 127).
  const float to_least = float_from_bits((253 - headroom) << kMantissaBits);
  for (size_t i = 0; i < count; ++i) {
    const uint32_t bits = float_bits(values[i]);
    const float magnitude = float_from_bits(bits & 0x7fffffffU);
    const uint32_t exponent = exponent_of(magnitude, headroom, to_least, rounding_bits(place, i));
    const uint32_t sign = exponent == 0 ? 0 : bits >> 31;
    codes[i] = static_cast<uint8_t>(exponent | sign << 7);
  }
}

void add_exponents(uint8_t* a, const uint8_t* b, size_t count, const RoundingPlace& place) {
  for (size_t i = 0; i < count; ++i) {
    a[i] = static_cast<uint8_t>(add_codes(a[i], b[i], rounding_bits(place, i)));
  }
}

}  // namespace tersum
