// Conversions between float32 and the 16-bit float formats, one value at a time, in integer
// arithmetic.
//
// Pure functions. Invariants: round to nearest, ties to even; every NaN becomes the positive quiet
// NaN with an empty payload; no conversion depends on the floating-point control word, so that
// denormals survive on threads that flush them.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace tersum {

inline constexpr uint32_t kFloatSignBit = 0x80000000u;
inline constexpr uint32_t kFloatInfinity = 0x7f800000u;
inline constexpr uint32_t kFloatNan = 0x7fc00000u;
inline constexpr uint16_t kBf16Nan = 0x7fc0;
inline constexpr uint16_t kHalfNan = 0x7e00;

// The magnitudes (float32 bits) from which a value is an infinity in the narrower type: halfway
// between the largest finite number and the next one that the exponent range lacks.
inline constexpr uint32_t kBf16Overflow = 0x7f7f8000u;
inline constexpr uint32_t kHalfOverflow = 0x477ff000u;  // 65520

inline uint32_t float_bits(float value) { return std::bit_cast<uint32_t>(value); }
inline float float_from_bits(uint32_t bits) { return std::bit_cast<float>(bits); }

// Unaligned access: slices start wherever the caller's array and the frame's header left them.
template <typename T>
inline T load_unaligned(const void* from) {
  T value;
  std::memcpy(&value, from, sizeof(T));
  return value;
}
template <typename T>
inline void store_unaligned(void* to, T value) {
  std::memcpy(to, &value, sizeof(T));
}

// value * 2^exponent by an addition to the exponent field: exact, and the product's bits, where
// both are normal numbers (or the value is 0).
inline float add_exponent(float value, int exponent) {
  const uint32_t bits = float_bits(value);
  if ((bits & ~kFloatSignBit) == 0) return value;
  return float_from_bits(bits + (static_cast<uint32_t>(exponent) << 23));
}

inline float canonical_nan(float value) {
  return value != value ? float_from_bits(kFloatNan) : value;
}

inline float bf16_to_float(uint16_t bits) { return float_from_bits(uint32_t{bits} << 16); }

inline uint16_t float_to_bf16(float value) {
  const uint32_t bits = float_bits(value);
  if ((bits & ~kFloatSignBit) > kFloatInfinity) return kBf16Nan;
  // 0x7fff rounds everything above a half up, the kept bit's parity decides the half itself.
  return static_cast<uint16_t>((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
}

inline float half_to_float(uint16_t half) {
  const uint32_t sign = uint32_t{half & 0x8000u} << 16;
  const uint32_t magnitude = half & 0x7fffu;
  if (magnitude > 0x7c00) return float_from_bits(kFloatNan);
  if (magnitude == 0x7c00) return float_from_bits(sign | kFloatInfinity);
  if (magnitude >= 0x0400) return float_from_bits(sign | ((magnitude << 13) + (112u << 23)));
  if (magnitude == 0) return float_from_bits(sign);
  // Denormal: magnitude * 2^-24, with its highest bit as the implicit one.
  const uint32_t shift = static_cast<uint32_t>(std::countl_zero(magnitude)) - 21;
  const uint32_t mantissa = (magnitude << shift) & 0x03ffu;
  return float_from_bits(sign | ((113 - shift) << 23) | (mantissa << 13));
}

inline uint16_t float_to_half(float value) {
  const uint32_t bits = float_bits(value);
  const uint32_t sign = (bits >> 16) & 0x8000u;
  const uint32_t magnitude = bits & ~kFloatSignBit;
  if (magnitude > kFloatInfinity) return kHalfNan;
  if (magnitude >= kHalfOverflow) return static_cast<uint16_t>(sign | 0x7c00);
  if (magnitude >= (113u << 23)) {  // normal: rebias the exponent, round 13 bits away
    const uint32_t rounded = magnitude + 0x0fff + ((magnitude >> 13) & 1);
    return static_cast<uint16_t>(sign | ((rounded >> 13) - (112u << 10)));
  }
  if (magnitude < (102u << 23)) return static_cast<uint16_t>(sign);  // below 2^-25, half the least
  // Denormal: multiples of 2^-24 of a 24-bit mantissa that is worth 2^(exponent - 150).
  const uint32_t shift = 126 - (magnitude >> 23);
  const uint32_t mantissa = (magnitude & 0x007fffffu) | 0x00800000u;
  const uint32_t kept = mantissa >> shift;
  const uint32_t rest = mantissa & ((1u << shift) - 1);
  const uint32_t half = 1u << (shift - 1);
  const uint32_t up = (rest > half || (rest == half && (kept & 1) != 0)) ? 1 : 0;
  return static_cast<uint16_t>(sign | (kept + up));
}

}  // namespace tersum
