// The formats without blocks: the elements of `exact` (each type as it is in memory, little-endian)
// and of `bf16` (float32 or float16 values that travel as bfloat16).
//
// Thread safety: plain values, pure functions.
#pragma once

#include <cstddef>
#include <cstdint>

#include "codec/kernels/numbers.h"
#include "tersum/data_type.h"

namespace tersum {

// How a value travels.
enum class DenseWire : uint8_t {
  kExact,  // as it is
  // As a bfloat16. A number that is finite in the value type stays finite: what would round to an
  // infinity (or, for float16 values, to a bfloat16 that is one in float16) becomes the largest
  // bfloat16 that is finite there, which is still within half a step of bfloat16's precision.
  kBFloat16,
};

struct DenseFormat {
  DataType type = DataType::kFloat32;
  DenseWire wire = DenseWire::kExact;  // kBFloat16: type is kFloat32 or kFloat16
};

inline size_t dense_wire_bytes(const DenseFormat& format, size_t count) {
  return count * (format.wire == DenseWire::kBFloat16 ? 2 : element_bytes(format.type));
}

// Magnitudes (float32 bits) above kLast and below kOverflow are sent as kLast.
struct Bf16WireOfFloat32 {
  static constexpr uint32_t kLast = 0x7f7f0000u;
  static constexpr uint32_t kOverflow = kFloatInfinity;
};
struct Bf16WireOfFloat16 {
  static constexpr uint32_t kLast = 0x477f0000u;  // 65280
  static constexpr uint32_t kOverflow = kHalfOverflow;
};

template <class Limits>
inline uint16_t float_to_bf16_wire(float value) {
  const uint32_t bits = float_bits(value);
  const uint32_t magnitude = bits & ~kFloatSignBit;
  if (magnitude <= Limits::kLast || magnitude >= Limits::kOverflow) return float_to_bf16(value);
  return static_cast<uint16_t>(((bits & kFloatSignBit) | Limits::kLast) >> 16);
}

}  // namespace tersum
