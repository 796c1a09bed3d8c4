// Editing: everything that is not replaced keeps its bytes, however it was encoded.

#include <gtest/gtest.h>

#include <string>

#include "hlo_test_module.h"
#include "xla/hlo_edit.h"
#include "xla/hlo_proto.h"

namespace tersum::hlo_test {
namespace {

std::string field(uint32_t number, const std::string& value) {
  std::string out;
  for (uint32_t tag = number << 3 | 2; tag != 0; tag >>= 7) {
    out += static_cast<char>((tag & 127) | (tag > 127 ? 128 : 0));
  }
  out += static_cast<char>(value.size());
  return out + value;
}

TEST(HloEdit, NoReplacementsGiveTheSameBytes) {
  for (const std::string& name : golden_names(kJaxFolder)) {
    const std::string module = golden(kJaxFolder, name);
    const auto edited = replace_hlo_instructions(module, {});
    ASSERT_TRUE(edited.ok());
    EXPECT_EQ(edited.value(), module) << name;
  }
}

// Unknown fields of every wire type, a name that comes after the computations, and tags and lengths
// in more bytes than they need: all valid protobuf that a writer of ours would not produce.
TEST(HloEdit, OddEncodingsStayAsTheyAre) {
  const std::string old_instruction = field(1, "sum") + field(2, "all-reduce");
  const std::string other_instruction = field(1, "other") + std::string("\x98\x02\x85\x80\x00", 5);
  const std::string computation = field(2, other_instruction) + field(2, old_instruction) +
                                  std::string("\x2d\x01\x02\x03\x04", 5);
  const std::string long_length = std::string("\x1a") +
                                  static_cast<char>(0x80 | computation.size()) +
                                  std::string("\x80\x00", 2) + computation;
  const std::string before = std::string("\xc1\x3e\x01\x02\x03\x04\x05\x06\x07\x08", 10);
  const std::string after = field(1, "module") + std::string("\xc0\x3e\x07", 3);
  const std::string new_instruction = field(1, "sum") + field(2, "custom-call");

  const auto edited =
      replace_hlo_instructions(before + long_length + after, {{0, 1, new_instruction}});
  ASSERT_TRUE(edited.ok()) << edited.status().to_string();
  const std::string new_computation = field(2, other_instruction) + field(2, new_instruction) +
                                      std::string("\x2d\x01\x02\x03\x04", 5);
  EXPECT_EQ(edited.value(), before + field(3, new_computation) + after);

  // The computation that is not edited keeps even its long length.
  const auto second = replace_hlo_instructions(long_length + field(3, computation) + after,
                                               {{1, 1, new_instruction}});
  ASSERT_TRUE(second.ok());
  EXPECT_EQ(second.value(), long_length + field(3, new_computation) + after);
}

TEST(HloEdit, ReplacingWhatIsNotThereFails) {
  const std::string module = golden(kJaxFolder, "psum_f32");
  EXPECT_FALSE(replace_hlo_instructions(module, {{0, 99, "x"}}).ok());
  EXPECT_FALSE(replace_hlo_instructions(module, {{99, 0, "x"}}).ok());
  EXPECT_FALSE(replace_hlo_instructions("\xff\xff", {}).ok());
  EXPECT_FALSE(make_ffi_custom_call("\x0a\x7f", "target", "{}").ok());
}

// Operand ids one by one instead of packed, which protobuf readers must accept alike.
TEST(HloEdit, UnpackedIntegersAreRead) {
  const std::string instruction = field(2, "add") + std::string("\xa0\x02\x07\xa0\x02\x08", 6);
  const auto module = parse_hlo_module(field(3, field(2, instruction)));
  ASSERT_TRUE(module.ok());
  EXPECT_EQ(module.value().computations.at(0).instructions.at(0).operand_ids,
            (std::vector<int64_t>{7, 8}));
}

TEST(HloEdit, DeeplyNestedShapesAreRefused) {
  std::string shape;
  for (int i = 0; i < 40; ++i) shape = field(4, shape);
  EXPECT_FALSE(parse_hlo_shape(shape).ok());
}

}  // namespace
}  // namespace tersum::hlo_test
