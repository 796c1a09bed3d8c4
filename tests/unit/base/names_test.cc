// Every enumerator of the public enums has a name that parses back to it.
#include <gtest/gtest.h>

#include <optional>
#include <set>
#include <string>
#include <string_view>

#include "tersum/data_type.h"
#include "tersum/options.h"

namespace tersum {
namespace {

template <typename Enum>
void expect_round_trip(int count, std::string_view (*name_of)(Enum),
                       std::optional<Enum> (*parse)(std::string_view)) {
  std::set<std::string> names;
  for (int number = 0; number < count; ++number) {
    const auto value = static_cast<Enum>(number);
    const std::string name(name_of(value));
    EXPECT_NE(name, "unknown") << number;
    EXPECT_TRUE(names.insert(name).second) << name;
    EXPECT_EQ(parse(name), value) << name;
  }
  EXPECT_EQ(name_of(static_cast<Enum>(count)), "unknown");
  for (const char* stranger : {"", "unknown", "Float32", " sum", "ring2"}) {
    EXPECT_EQ(parse(stranger), std::nullopt) << stranger;
  }
}

TEST(NamesTest, DataTypes) {
  expect_round_trip<DataType>(kDataTypeCount, data_type_name, parse_data_type);
}

TEST(NamesTest, ReduceOps) { expect_round_trip<ReduceOp>(4, reduce_op_name, parse_reduce_op); }

TEST(NamesTest, PlanKinds) {
  expect_round_trip<PlanKind>(kPlanKindCount, plan_kind_name, parse_plan_kind);
}

TEST(NamesTest, TransportKinds) {
  expect_round_trip<TransportKind>(3, transport_kind_name, parse_transport_kind);
}

TEST(NamesTest, Collectives) {
  expect_round_trip<Collective>(kCollectiveCount, collective_name, parse_collective);
}

TEST(DataTypeTest, ElementBytesMatchTheTypes) {
  EXPECT_EQ(element_bytes(DataType::kFloat32), sizeof(float));
  EXPECT_EQ(element_bytes(DataType::kFloat64), sizeof(double));
  EXPECT_EQ(element_bytes(DataType::kBFloat16), 2u);
  EXPECT_EQ(element_bytes(DataType::kFloat16), 2u);
  EXPECT_EQ(element_bytes(DataType::kInt32), 4u);
  EXPECT_EQ(element_bytes(DataType::kInt64), 8u);
  EXPECT_EQ(element_bytes(DataType::kUint8), 1u);
  EXPECT_EQ(element_bytes(static_cast<DataType>(77)), 0u);
}

TEST(DataTypeTest, FloatingTypesAreTheFourFloats) {
  int floating = 0;
  for (int number = 0; number < kDataTypeCount; ++number) {
    const auto type = static_cast<DataType>(number);
    const bool has_float_name = data_type_name(type).find("float") != std::string_view::npos;
    EXPECT_EQ(is_floating(type), has_float_name) << data_type_name(type);
    floating += is_floating(type) ? 1 : 0;
  }
  EXPECT_EQ(floating, 4);
}

}  // namespace
}  // namespace tersum
