#include "hlo_test_module.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <regex>

namespace tersum::hlo_test {
namespace {

constexpr uint32_t kName = 1;
constexpr uint32_t kOpcode = 2;
constexpr uint32_t kComputations = 3;
constexpr uint32_t kInstructions = 2;
constexpr uint32_t kTarget = 28;
constexpr uint32_t kBackendConfig = 43;
constexpr uint32_t kApiVersion = 77;

// What only collectives have, and what the call brings itself.
const std::set<uint32_t> kDropped = {14, 26, 28, 38, 43, 45, 49, 71, 77, 87, 92, 93, 99};

std::filesystem::path folder_path(const std::string& folder) {
  return std::filesystem::path(TERSUM_GOLDEN_HLO_DIR) / folder;
}

uint64_t read_varint(std::string_view bytes, size_t& at) {
  uint64_t value = 0;
  for (int shift = 0; shift < 64 && at < bytes.size(); shift += 7) {
    const auto byte = static_cast<unsigned char>(bytes[at++]);
    value |= static_cast<uint64_t>(byte & 127) << shift;
    if (byte < 128) return value;
  }
  ADD_FAILURE() << "a varint is cut off";
  return value;
}

size_t payload_bytes(uint32_t wire_type, std::string_view bytes, size_t& at) {
  switch (wire_type) {
    case 0: {
      size_t end = at;
      read_varint(bytes, end);
      return end - at;
    }
    case 1:
      return 8;
    case 2:
      return read_varint(bytes, at);
    case 5:
      return 4;
    default:
      ADD_FAILURE() << "wire type " << wire_type;
      return 0;
  }
}

void expect_custom_call(std::string_view before, std::string_view after) {
  std::vector<Field> expected;
  for (Field& field : split(before)) {
    if (field.number == kOpcode) {
      field.value = "custom-call";
      field.raw = std::string("\x12\x0b") + field.value;
    }
    if (!kDropped.contains(field.number)) expected.push_back(std::move(field));
  }
  std::vector<Field> actual = split(after);
  ASSERT_EQ(actual.size(), expected.size() + 3);
  EXPECT_TRUE(std::equal(expected.begin(), expected.end(), actual.begin()));
  const Field* added = &actual[expected.size()];
  EXPECT_EQ(added[0].number, kTarget);
  EXPECT_EQ(added[1].number, kBackendConfig);
  EXPECT_EQ(added[2].number, kApiVersion);
  EXPECT_EQ(number_of(added[2].value), 4);
}

void expect_computation(std::string_view before, std::string_view after,
                        const std::set<std::string>& rewritten, size_t& found) {
  const std::vector<Field> old_fields = split(before);
  const std::vector<Field> new_fields = split(after);
  ASSERT_EQ(old_fields.size(), new_fields.size());
  for (size_t i = 0; i < old_fields.size(); ++i) {
    const std::string name = old_fields[i].number == kInstructions
                                 ? value_of(old_fields[i].value, kName)
                                 : std::string();
    if (old_fields[i].number == kInstructions && rewritten.contains(name)) {
      SCOPED_TRACE(name);
      ++found;
      expect_custom_call(old_fields[i].value, new_fields[i].value);
    } else {
      EXPECT_EQ(old_fields[i].raw, new_fields[i].raw);
    }
  }
}

}  // namespace

std::vector<Field> split(std::string_view message) {
  std::vector<Field> out;
  size_t at = 0;
  while (at < message.size()) {
    Field field;
    const size_t start = at;
    const uint64_t tag = read_varint(message, at);
    field.number = static_cast<uint32_t>(tag >> 3);
    field.wire_type = static_cast<uint32_t>(tag & 7);
    const size_t size = payload_bytes(field.wire_type, message, at);
    if (size > message.size() - at) {
      ADD_FAILURE() << "field " << field.number << " runs past its message";
      return out;
    }
    field.value = message.substr(at, size);
    at += size;
    field.raw = message.substr(start, at - start);
    out.push_back(std::move(field));
  }
  return out;
}

std::string value_of(std::string_view message, uint32_t number) {
  for (const Field& field : split(message)) {
    if (field.number == number) return field.value;
  }
  return "";
}

int64_t number_of(std::string_view value) {
  size_t at = 0;
  return static_cast<int64_t>(read_varint(value, at));
}

std::vector<std::vector<std::string>> instructions_of(std::string_view module) {
  std::vector<std::vector<std::string>> out;
  for (const Field& computation : split(module)) {
    if (computation.number != kComputations) continue;
    auto& instructions = out.emplace_back();
    for (const Field& field : split(computation.value)) {
      if (field.number == kInstructions) instructions.push_back(field.value);
    }
  }
  return out;
}

std::string golden(const std::string& folder, const std::string& name) {
  std::ifstream file(folder_path(folder) / (name + ".pb"), std::ios::binary);
  EXPECT_TRUE(file.good()) << "no golden module " << folder << "/" << name;
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

std::vector<std::string> golden_names(const std::string& folder) {
  std::vector<std::string> out;
  for (const auto& entry : std::filesystem::directory_iterator(folder_path(folder))) {
    if (entry.path().extension() == ".pb") out.push_back(entry.path().stem().string());
  }
  std::sort(out.begin(), out.end());
  return out;
}

HloPassOptions all_options() {
  HloPassOptions options;
  options.min_bytes = 0;
  options.canonical_codec = [](std::string_view spec) -> Result<std::string> {
    if (spec == "int8" || spec == "int4") return std::string(spec) + "/128";
    if (spec == "int8/128" || spec == "int4/32" || spec == "exact") return std::string(spec);
    return invalid_argument("no codec '" + std::string(spec) + "'");
  };
  return options;
}

Call call_of(std::string_view module, const std::string& name) {
  Call call;
  for (const auto& computation : instructions_of(module)) {
    for (const std::string& instruction : computation) {
      if (value_of(instruction, kName) != name) continue;
      EXPECT_EQ(value_of(instruction, kOpcode), "custom-call");
      call.target = value_of(instruction, kTarget);
      const std::string text = value_of(instruction, kBackendConfig);
      const std::regex entry(R"re((\w+) = (array<i64: [^>]*>|"[^"]*"|[^,}]+))re");
      for (std::sregex_iterator it(text.begin(), text.end(), entry), end; it != end; ++it) {
        call.attributes[(*it)[1]] = (*it)[2];
      }
      const std::string groups = call.attributes["groups"];
      const std::regex number("-?[0-9]+");
      const auto colon = groups.begin() + static_cast<std::ptrdiff_t>(groups.find(':') + 1);
      for (std::sregex_iterator it(colon, groups.end(), number), end; it != end; ++it) {
        call.groups.push_back(std::stoll(it->str()));
      }
      return call;
    }
  }
  ADD_FAILURE() << "no instruction " << name;
  return call;
}

void expect_only_rewritten(std::string_view before, std::string_view after,
                           const std::set<std::string>& rewritten) {
  const std::vector<Field> old_fields = split(before);
  const std::vector<Field> new_fields = split(after);
  ASSERT_EQ(old_fields.size(), new_fields.size());
  size_t found = 0;
  for (size_t i = 0; i < old_fields.size(); ++i) {
    if (old_fields[i].number == kComputations) {
      expect_computation(old_fields[i].value, new_fields[i].value, rewritten, found);
    } else {
      EXPECT_EQ(old_fields[i].raw, new_fields[i].raw);
    }
  }
  EXPECT_EQ(found, rewritten.size());
}

HloPassOutput run_checked(const std::string& module, const HloPassOptions& options) {
  auto result = run_hlo_pass(module, options);
  EXPECT_TRUE(result.ok()) << result.status().to_string();
  if (!result.ok()) return {};
  HloPassOutput output = std::move(result).value();
  std::set<std::string> rewritten;
  for (const HloReportRow& row : output.rows) {
    EXPECT_FALSE(row.reason.empty());
    EXPECT_TRUE(row.reason.ends_with('.')) << row.reason;
    EXPECT_EQ(row.codec.empty(), row.outcome != HloOutcome::kRewritten);
    if (row.outcome == HloOutcome::kRewritten) rewritten.insert(row.instruction);
  }
  EXPECT_EQ(output.changed, !rewritten.empty());
  if (!output.changed) {
    EXPECT_TRUE(output.module.empty());
    return output;
  }
  expect_only_rewritten(module, output.module, rewritten);
  const auto again = run_hlo_pass(output.module, options);
  EXPECT_TRUE(again.ok() && !again.value().changed);
  return output;
}

}  // namespace tersum::hlo_test
