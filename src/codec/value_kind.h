// The value types that lossy codecs serve.
//
// Thread safety: pure functions.
#pragma once

#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "codec/kernels/block_format.h"
#include "tersum/data_type.h"

namespace tersum {

constexpr bool is_short_float(DataType type) {
  return type == DataType::kFloat32 || type == DataType::kBFloat16 || type == DataType::kFloat16;
}

inline ValueKind value_kind(DataType type) {
  TERSUM_CHECK(is_short_float(type));
  if (type == DataType::kBFloat16) return ValueKind::kBFloat16;
  return type == DataType::kFloat16 ? ValueKind::kFloat16 : ValueKind::kFloat32;
}

// Largest error of rounding a float32 of magnitude up to `magnitude` to the value type.
inline double rounding_error(ValueKind kind, double magnitude) {
  switch (kind) {
    case ValueKind::kFloat32:
      return 0;
    case ValueKind::kBFloat16:
      return std::max(std::ldexp(magnitude, -8), std::ldexp(1.0, -134));
    case ValueKind::kFloat16:
      return std::max(std::ldexp(magnitude, -11), std::ldexp(1.0, -25));
  }
  return 0;
}

}  // namespace tersum
