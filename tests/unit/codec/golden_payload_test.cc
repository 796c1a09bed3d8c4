// The golden payloads, written by an independent encoder: every instruction set produces their
// bytes and decodes them to the values beside them.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "codec/channel_state.h"
#include "codec/codec.h"
#include "codec/force_isa.h"
#include "golden_tables.h"
#include "golden_transforms.h"
#include "hex_bytes.h"
#include "tersum/codec_info.h"

namespace tersum {
namespace {

using Bytes = std::vector<std::byte>;

TEST(GoldenTables, AreNamedByTheDigestOfTheirLevels) {
  size_t tables = 0;
  for (const auto& file : std::filesystem::directory_iterator(TERSUM_GOLDEN_TABLES)) {
    const auto spec = normalize_codec("table:" + file.path().string());
    ASSERT_TRUE(spec.ok()) << spec.status().message();
    EXPECT_EQ(spec.value(), "table:" + file.path().stem().string() + "/64");
    ++tables;
  }
  EXPECT_GE(tables, 4u);
}

TEST(GoldenPayloads, AreWrittenAndReadByEveryInstructionSet) {
  std::ifstream file(TERSUM_GOLDEN_PAYLOADS);
  ASSERT_TRUE(file.is_open()) << TERSUM_GOLDEN_PAYLOADS;
  ASSERT_GE(golden_tables().size(), 4u);
  ASSERT_GE(golden_transforms(0).size(), 5u);
  size_t cases = 0;
  for (std::string line; std::getline(file, line); ++cases) {
    std::istringstream fields(line);
    std::string name, spec, dtype, values_hex, payload_hex, decoded_hex;
    size_t count = 0;
    ASSERT_TRUE(fields >> name >> spec >> dtype >> count >> values_hex >> payload_hex >>
                decoded_hex);
    SCOPED_TRACE(name + " " + spec + " " + dtype);
    const auto found = find_codec(spec, parse_data_type(dtype).value(), ReduceOp::kSum);
    ASSERT_TRUE(found.ok());
    const Codec& codec = *found.value();
    const Bytes values = read_hex(values_hex);
    const Bytes payload = read_hex(payload_hex);
    ASSERT_EQ(codec.wire_bytes(count), payload.size());
    for (const std::string& isa : available_isas()) {
      ASSERT_TRUE(force_isa(isa).ok());
      Bytes encoded(payload.size());
      codec.encode(values.data(), count, encoded.data());
      EXPECT_EQ(encoded, payload) << isa;
      Bytes decoded(values.size());
      codec.decode(payload.data(), count, decoded.data());
      EXPECT_EQ(decoded, read_hex(decoded_hex)) << isa;
    }
  }
  EXPECT_GE(cases, 50u);
  ASSERT_TRUE(force_isa("").ok());
}

// The same of +flatten, where a call's state has factors.
TEST(GoldenPayloads, AreThoseOfTheChannels) {
  std::ifstream file(TERSUM_GOLDEN_FLATTENED);
  ASSERT_TRUE(file.is_open()) << TERSUM_GOLDEN_FLATTENED;
  size_t cases = 0;
  for (std::string line; std::getline(file, line); ++cases) {
    std::istringstream fields(line);
    std::string name, spec, dtype, state_hex, values_hex, payload_hex, decoded_hex;
    size_t count = 0, first = 0;
    ASSERT_TRUE(fields >> name >> spec >> dtype >> count >> first >> state_hex >> values_hex >>
                payload_hex >> decoded_hex);
    SCOPED_TRACE(name + " " + spec + " " + dtype);
    const Bytes saved = read_hex(state_hex);
    ChannelState state((saved.size() - 16) / 8);
    ASSERT_TRUE(state.load(saved));
    const Codec& codec = *find_codec(spec, parse_data_type(dtype).value(), ReduceOp::kSum).value();
    ASSERT_TRUE(codec.flattens());
    const SlicePlace place{first, state.factors()};
    const Bytes values = read_hex(values_hex);
    const Bytes payload = read_hex(payload_hex);
    ASSERT_EQ(codec.wire_bytes(count), payload.size());
    for (const std::string& isa : available_isas()) {
      ASSERT_TRUE(force_isa(isa).ok());
      Bytes encoded(payload.size());
      codec.encode(values.data(), count, encoded.data(), place);
      EXPECT_EQ(encoded, payload) << isa;
      Bytes decoded(values.size());
      codec.decode(payload.data(), count, decoded.data(), place);
      EXPECT_EQ(decoded, read_hex(decoded_hex)) << isa;
    }
  }
  EXPECT_GE(cases, 15u);
  ASSERT_TRUE(force_isa("").ok());
}

}  // namespace
}  // namespace tersum
