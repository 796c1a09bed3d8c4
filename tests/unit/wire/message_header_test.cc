// The message header: its layout byte by byte, its round trip, and what it refuses.
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <array>

#include "wire/message.h"

namespace tersum {
namespace {

using HeaderBytes = std::array<std::byte, kMessageHeaderBytes>;

bool same(const MessageHeader& a, const MessageHeader& b) {
  return a.kind == b.kind && a.phase == b.phase && a.via == b.via && a.from_rank == b.from_rank &&
         a.to_rank == b.to_rank && a.group == b.group && a.call == b.call && a.chunk == b.chunk &&
         a.slice == b.slice && a.payload_bytes == b.payload_bytes;
}

HeaderBytes valid_bytes() {
  HeaderBytes bytes;
  encode_header(MessageHeader{}, bytes);
  return bytes;
}

TEST(MessageHeader, EveryByteIsWhereTheDocumentSays) {
  MessageHeader header;
  header.kind = MessageKind::kData;
  header.phase = FlowPhase::kGather;
  header.via = 0x0302;
  header.from_rank = 0x0504;
  header.to_rank = 0x0706;
  header.group = 0x0F0E0D0C0B0A0908;
  header.call = 0x1716151413121110;
  header.chunk = 0x1B1A1918;
  header.slice = 0x1F1E1D1C;
  header.payload_bytes = 0x00032120;
  HeaderBytes bytes;
  encode_header(header, bytes);
  EXPECT_EQ(bytes[0], std::byte{2});
  EXPECT_EQ(bytes[1], std::byte{1});
  for (size_t i = 2; i < 32; ++i) EXPECT_EQ(bytes[i], static_cast<std::byte>(i)) << i;
  const std::array<int, 8> tail = {0x20, 0x21, 0x03, 0, 0, 0, 0, 0};
  for (size_t i = 0; i < tail.size(); ++i) {
    EXPECT_EQ(bytes[32 + i], static_cast<std::byte>(tail[i])) << 32 + i;
  }
}

RC_GTEST_PROP(MessageHeaderProperty, RoundTrips, ()) {
  MessageHeader header;
  header.kind = static_cast<MessageKind>(*rc::gen::inRange(1, 9));
  header.phase = static_cast<FlowPhase>(*rc::gen::inRange(0, 4));
  header.via = *rc::gen::arbitrary<uint16_t>();
  header.from_rank = *rc::gen::arbitrary<uint16_t>();
  header.to_rank = *rc::gen::arbitrary<uint16_t>();
  header.group = *rc::gen::arbitrary<uint64_t>();
  header.call = *rc::gen::arbitrary<uint64_t>();
  header.chunk = *rc::gen::arbitrary<uint32_t>();
  header.slice = *rc::gen::arbitrary<uint32_t>();
  header.payload_bytes = *rc::gen::inRange<uint32_t>(0, kPayloadBytesMax + 1);
  HeaderBytes bytes;
  encode_header(header, bytes);
  const std::optional<MessageHeader> decoded = decode_header(bytes);
  RC_ASSERT(decoded.has_value());
  RC_ASSERT(same(*decoded, header));
}

RC_GTEST_PROP(MessageHeaderProperty, WhatDecodesEncodesToTheSameBytes,
              (const std::array<uint8_t, kMessageHeaderBytes>& raw)) {
  HeaderBytes bytes;
  for (size_t i = 0; i < raw.size(); ++i) bytes[i] = static_cast<std::byte>(raw[i]);
  bytes[0] = static_cast<std::byte>(raw[0] % 9);
  bytes[1] = static_cast<std::byte>(raw[1] % 5);
  bytes[34] = static_cast<std::byte>(raw[34] % 65);
  bytes[35] = std::byte{0};
  for (size_t i = 36; i < 40; ++i) bytes[i] = std::byte{0};
  const std::optional<MessageHeader> decoded = decode_header(bytes);
  if (!decoded) return;
  HeaderBytes again;
  encode_header(*decoded, again);
  RC_ASSERT(again == bytes);
}

TEST(MessageHeader, RefusesWhatNoVersionWrites) {
  struct Case {
    size_t at;
    uint8_t value;
    const char* why;
  };
  for (const Case& bad :
       {Case{0, 0, "kind 0"}, Case{0, 9, "unknown kind"}, Case{0, 255, "unknown kind"},
        Case{1, 4, "unknown phase"}, Case{36, 1, "reserved"}, Case{39, 1, "reserved"},
        Case{34, 0x41, "4.25 MiB of payload"}, Case{35, 1, "16 MiB"},
        Case{35, 255, "a length of 4 GiB"}}) {
    HeaderBytes bytes = valid_bytes();
    ASSERT_TRUE(decode_header(bytes).has_value());
    bytes[bad.at] = static_cast<std::byte>(bad.value);
    EXPECT_FALSE(decode_header(bytes).has_value()) << bad.why;
  }
}

TEST(MessageHeader, AcceptsTheLargestPayload) {
  HeaderBytes bytes = valid_bytes();
  bytes[34] = std::byte{0x40};
  ASSERT_TRUE(decode_header(bytes).has_value());
  EXPECT_EQ(decode_header(bytes)->payload_bytes, kPayloadBytesMax);
  bytes[32] = std::byte{1};
  EXPECT_FALSE(decode_header(bytes).has_value());
}

}  // namespace
}  // namespace tersum
