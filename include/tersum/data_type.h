// Element types of the arrays that collectives work on.
//
// Thread safety: pure functions. Invariant: the enumerators' numbers travel on the wire (call
// descriptors) and never change meaning.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace tersum {

enum class DataType : uint8_t {
  kFloat32 = 0,
  kBFloat16 = 1,
  kFloat16 = 2,
  kFloat64 = 3,
  kInt32 = 4,
  kInt64 = 5,
  kUint8 = 6,
};
inline constexpr int kDataTypeCount = 7;

// Bytes of one element.
constexpr size_t element_bytes(DataType type) {
  switch (type) {
    case DataType::kFloat64:
    case DataType::kInt64:
      return 8;
    case DataType::kFloat32:
    case DataType::kInt32:
      return 4;
    case DataType::kBFloat16:
    case DataType::kFloat16:
      return 2;
    case DataType::kUint8:
      return 1;
  }
  return 0;
}

constexpr bool is_floating(DataType type) {
  return type == DataType::kFloat32 || type == DataType::kBFloat16 || type == DataType::kFloat16 ||
         type == DataType::kFloat64;
}

// "float32", "bfloat16", "float16", "float64", "int32", "int64", "uint8" (NumPy's names).
std::string_view data_type_name(DataType type);
std::optional<DataType> parse_data_type(std::string_view name);

}  // namespace tersum
