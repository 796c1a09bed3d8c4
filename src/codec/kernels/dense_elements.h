// One element of each dense format: how it is loaded, stored and combined.
//
// Thread safety: pure functions. Floating types of 16 bits are computed in float32; integers wrap.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <type_traits>

#include "codec/kernels/combine_args.h"
#include "codec/kernels/dense_format.h"
#include "codec/kernels/numbers.h"

namespace tersum {

// kBytes per element, the type `Acc` in which it is computed, load and store by element number.
template <typename T>
struct PlainElement {
  using Acc = T;
  static constexpr size_t kBytes = sizeof(T);
  static T load(const std::byte* from, size_t index) {
    return load_unaligned<T>(from + index * sizeof(T));
  }
  static void store(T value, std::byte* to, size_t index) {
    if constexpr (std::is_floating_point_v<T>) {
      if (value != value) value = std::numeric_limits<T>::quiet_NaN();
    }
    store_unaligned(to + index * sizeof(T), value);
  }
};

template <float (*kLoad)(uint16_t), uint16_t (*kStore)(float)>
struct ShortFloatElement {
  using Acc = float;
  static constexpr size_t kBytes = 2;
  static float load(const std::byte* from, size_t index) {
    return kLoad(load_unaligned<uint16_t>(from + index * 2));
  }
  static void store(float value, std::byte* to, size_t index) {
    store_unaligned(to + index * 2, kStore(value));
  }
};

using BFloat16Element = ShortFloatElement<bf16_to_float, float_to_bf16>;
using Float16Element = ShortFloatElement<half_to_float, float_to_half>;
template <class Limits>
using Bf16WireElement = ShortFloatElement<bf16_to_float, float_to_bf16_wire<Limits>>;

// Bytewise operations on the bits of a float, for its zeros.
template <typename T>
T and_bits(T a, T b) {
  using Bits = std::conditional_t<sizeof(T) == 8, uint64_t, uint32_t>;
  return std::bit_cast<T>(static_cast<Bits>(std::bit_cast<Bits>(a) & std::bit_cast<Bits>(b)));
}
template <typename T>
T or_bits(T a, T b) {
  using Bits = std::conditional_t<sizeof(T) == 8, uint64_t, uint32_t>;
  return std::bit_cast<T>(static_cast<Bits>(std::bit_cast<Bits>(a) | std::bit_cast<Bits>(b)));
}

// NaN wins; of two zeros max takes the positive and min the negative one, so that the order of the
// contributions does not show.
template <typename T>
T larger(T a, T b) {
  if constexpr (std::is_floating_point_v<T>) {
    if (a != a || b != b) return std::numeric_limits<T>::quiet_NaN();
    if (a == b) return and_bits(a, b);
  }
  return a > b ? a : b;
}
template <typename T>
T smaller(T a, T b) {
  if constexpr (std::is_floating_point_v<T>) {
    if (a != a || b != b) return std::numeric_limits<T>::quiet_NaN();
    if (a == b) return or_bits(a, b);
  }
  return a < b ? a : b;
}

template <typename T>
T reduce_pair(ReduceOp op, T a, T b) {
  if (op == ReduceOp::kMax) return larger(a, b);
  if (op == ReduceOp::kMin) return smaller(a, b);
  if constexpr (std::is_integral_v<T>) {
    using Unsigned = std::make_unsigned_t<T>;  // wraps where signed overflow is undefined
    return static_cast<T>(
        static_cast<Unsigned>(static_cast<Unsigned>(a) + static_cast<Unsigned>(b)));
  } else {
    return a + b;
  }
}

// Integers truncate toward zero.
template <typename T>
T finish_value(const Finish& finish, T sum) {
  if (!finish.divides()) return sum;
  if constexpr (std::is_same_v<T, uint8_t>) {
    return static_cast<uint8_t>(uint32_t{sum} / finish.divisor);
  } else if constexpr (std::is_same_v<T, int32_t>) {
    // In 64 bits: a divisor above 2^31 - 1 would turn negative.
    return static_cast<int32_t>(int64_t{sum} / int64_t{finish.divisor});
  } else if constexpr (std::is_same_v<T, int64_t>) {
    return sum / int64_t{finish.divisor};
  } else {
    return sum / static_cast<T>(finish.divisor);
  }
}

// Calls f.template operator()<Wire, Value>() with the elements of `format`.
template <class F>
void with_elements(const DenseFormat& format, const F& f) {
  if (format.wire == DenseWire::kBFloat16) {
    if (format.type == DataType::kFloat16) {
      return f.template operator()<Bf16WireElement<Bf16WireOfFloat16>, Float16Element>();
    }
    return f.template operator()<Bf16WireElement<Bf16WireOfFloat32>, PlainElement<float>>();
  }
  switch (format.type) {
    case DataType::kFloat32:
      return f.template operator()<PlainElement<float>, PlainElement<float>>();
    case DataType::kBFloat16:
      return f.template operator()<BFloat16Element, BFloat16Element>();
    case DataType::kFloat16:
      return f.template operator()<Float16Element, Float16Element>();
    case DataType::kFloat64:
      return f.template operator()<PlainElement<double>, PlainElement<double>>();
    case DataType::kInt32:
      return f.template operator()<PlainElement<int32_t>, PlainElement<int32_t>>();
    case DataType::kInt64:
      return f.template operator()<PlainElement<int64_t>, PlainElement<int64_t>>();
    case DataType::kUint8:
      return f.template operator()<PlainElement<uint8_t>, PlainElement<uint8_t>>();
  }
}

}  // namespace tersum
