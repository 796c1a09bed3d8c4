// Payloads that must fail: the golden ones, and those of every spec cut short or extended at every
// byte. Every error says what and where, and the caller's array stays as it was.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "codec/codec.h"
#include "codec/format_registry.h"
#include "golden_tables.h"
#include "golden_transforms.h"
#include "hex_bytes.h"
#include "tersum/codec_payload.h"

namespace tersum {
namespace {

using Bytes = std::vector<std::byte>;
using testing::HasSubstr;

// A block, a group and a tile, one less and one more, and nothing at all.
constexpr size_t kCounts[] = {0, 1, 2, 7, 31, 32, 33, 95, 97, 129, 300};

// Every format in its smallest and its largest blocks, plain and with a modifier.
std::vector<std::string> all_specs() {
  std::vector<std::string> specs;
  for (const FormatRow& row : format_rows()) {
    const std::string name(row.name);
    if (!row.has_blocks()) {
      specs.push_back(name);
      continue;
    }
    for (const uint32_t block : {row.block_min, row.block_max}) {
      const std::string spec = name + "/" + std::to_string(block);
      specs.push_back(spec);
      if (row.rotates) specs.push_back(spec + "+hadamard");
      if (row.rotates) specs.push_back(spec + "+sparse:3%");
      if (row.rotates) specs.push_back(spec + "+rows:37");
      if (row.rotates) {
        for (const std::string& transform : golden_transforms(block)) {
          specs.push_back(spec + transform);
        }
      }
      for (const char* modifier : {"+mixed", "+clip:learned"}) {
        if (parse_codec_spec(spec + modifier).ok()) specs.push_back(spec + modifier);
      }
      if (row.block_min == row.block_max) break;
    }
    if (parse_codec_spec(name + "/64+adaptive").ok()) specs.push_back(name + "/64+adaptive");
  }
  for (const std::string& table : golden_tables()) {
    specs.push_back(table + "/32");
    specs.push_back(table + "/256+sparse:3%");
  }
  return specs;
}

// The message of a refusal; fails the test where there is none, or the array was written to.
std::string refusal(const std::string& spec, DataType type, std::span<const std::byte> payload,
                    size_t count) {
  const Bytes untouched(count * element_bytes(type), std::byte{0xa5});
  Bytes values = untouched;
  const Status status = decode_payload(spec, type, payload, count, values.data());
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(values, untouched);
  return std::string(status.message());
}

void expect_wrong_length(const std::string& spec, const Bytes& payload, size_t size, size_t count) {
  const std::string wanted = "has " + std::to_string(payload.size()) + " bytes";
  Bytes cut = payload;
  cut.resize(size);
  const std::string text = refusal(spec, DataType::kFloat32, cut, count);
  EXPECT_THAT(text, HasSubstr(wanted));
  EXPECT_THAT(text, HasSubstr("this one has " + std::to_string(size)));
}

TEST(RefusedPayloads, CutShortOrExtendedAtEveryByte) {
  const std::vector<std::string> specs = all_specs();
  ASSERT_GE(specs.size(), 60u);
  for (const std::string& spec : specs) {
    for (const size_t count : kCounts) {
      SCOPED_TRACE(spec + ", " + std::to_string(count) + " values");
      const std::vector<float> values(count, 1.5F);
      const Bytes payload = encode_payload(spec, DataType::kFloat32, values.data(), count).value();
      for (size_t size = 0; size < payload.size(); ++size) {
        expect_wrong_length(spec, payload, size, count);
      }
      for (size_t more = 1; more <= 17; ++more) {
        expect_wrong_length(spec, payload, payload.size() + more, count);
      }
      expect_wrong_length(spec, payload, 2 * payload.size() + 1, count);
      if (HasFailure()) return;
    }
  }
}

// "block:1", as the golden file says it, as a message does.
std::string phrase(const std::string& where) {
  const size_t colon = where.find(':');
  if (colon == std::string::npos) return "the slice's tensor scale";
  const std::string number = where.substr(colon + 1);
  if (where.starts_with("bytes")) return "has " + number + " bytes";
  if (where.starts_with("report")) return "report of " + number + " ";
  return where.substr(0, colon) + " " + number + " ";
}

TEST(RefusedPayloads, GoldenOnes) {
  std::ifstream file(TERSUM_REFUSED_PAYLOADS);
  ASSERT_TRUE(file.is_open()) << TERSUM_REFUSED_PAYLOADS;
  size_t cases = 0;
  for (std::string line; std::getline(file, line); ++cases) {
    std::istringstream fields(line);
    std::string name, spec, dtype, payload_hex, where;
    size_t count = 0;
    ASSERT_TRUE(fields >> name >> spec >> dtype >> count >> payload_hex >> where);
    SCOPED_TRACE(name + " " + spec + " " + dtype);
    const DataType type = parse_data_type(dtype).value();
    EXPECT_THAT(refusal(spec, type, read_hex(payload_hex), count), HasSubstr(phrase(where)));
  }
  EXPECT_GE(cases, 300u);
}

}  // namespace
}  // namespace tersum
