#include "tersum/data_type.h"

#include "base/name_table.h"

namespace tersum {
namespace {

constexpr NamedValue<DataType> kNames[] = {
    {DataType::kFloat32, "float32"}, {DataType::kBFloat16, "bfloat16"},
    {DataType::kFloat16, "float16"}, {DataType::kFloat64, "float64"},
    {DataType::kInt32, "int32"},     {DataType::kInt64, "int64"},
    {DataType::kUint8, "uint8"},
};
static_assert(std::size(kNames) == kDataTypeCount);

}  // namespace

std::string_view data_type_name(DataType type) { return name_of<DataType>(kNames, type); }

std::optional<DataType> parse_data_type(std::string_view name) {
  return value_named<DataType>(kNames, name);
}

}  // namespace tersum
