// The handshake frame: layout, round trip, refusals, and the comparison of tokens.
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <cstring>

#include "tersum/version.h"
#include "wire/handshake.h"

namespace tersum {
namespace {

using FrameBytes = std::array<std::byte, kHandshakeBytes>;

HandshakeFrame sample() {
  HandshakeFrame frame;
  frame.version = kWireVersion;
  frame.kind = HandshakeKind::kHello;
  frame.carrier = Carrier::kSharedMemory;
  frame.stream_index = 2;
  frame.stream_count = 3;
  frame.attempt = 0x1122334455667788;
  frame.from = {1, 2};
  frame.to = {3, 4};
  frame.group = 5;
  for (size_t i = 0; i < frame.token.size(); ++i) frame.token[i] = static_cast<std::byte>(i);
  frame.arena_bytes = 6;
  frame.mailbox_bytes = 7;
  return frame;
}

FrameBytes encoded(const HandshakeFrame& frame) {
  FrameBytes bytes;
  encode_handshake(frame, bytes);
  return bytes;
}

TEST(HandshakeFrame, StartsAsTheDocumentSays) {
  const FrameBytes bytes = encoded(sample());
  EXPECT_EQ(std::memcmp(bytes.data(), "TERSUM\r\n", 8), 0);
  EXPECT_EQ(bytes[8], static_cast<std::byte>(kWireVersion & 0xFF));
  EXPECT_EQ(bytes[10], std::byte{1});  // HELLO
  EXPECT_EQ(bytes[11], std::byte{0});  // token
  EXPECT_EQ(bytes[12], std::byte{128});
  EXPECT_EQ(bytes[14], std::byte{1});  // shared memory
  EXPECT_EQ(bytes[16], std::byte{2});
  EXPECT_EQ(bytes[18], std::byte{3});
  EXPECT_EQ(bytes[24], std::byte{0x88});
  EXPECT_EQ(bytes[32], std::byte{1});
  EXPECT_EQ(bytes[40], std::byte{2});
  EXPECT_EQ(bytes[48], std::byte{3});
  EXPECT_EQ(bytes[56], std::byte{4});
  EXPECT_EQ(bytes[64], std::byte{5});
  EXPECT_EQ(bytes[72 + 15], std::byte{15});
  EXPECT_EQ(bytes[88], std::byte{6});
  EXPECT_EQ(bytes[96], std::byte{7});
}

TEST(HandshakeFrame, RoundTrips) {
  const HandshakeFrame frame = sample();
  const std::optional<HandshakeFrame> decoded = decode_handshake(encoded(frame));
  ASSERT_TRUE(decoded.has_value());
  EXPECT_EQ(encoded(*decoded), encoded(frame));
  EXPECT_EQ(decoded->token, frame.token);
  EXPECT_EQ(decoded->stream_index, 2);
}

TEST(HandshakeFrame, RefusesEveryFieldThatIsWrong) {
  for (const size_t at : {0u, 5u, 7u, 8u, 9u, 11u, 12u, 13u, 15u, 20u, 23u, 104u, 127u}) {
    FrameBytes bytes = encoded(sample());
    bytes[at] ^= std::byte{0x20};
    EXPECT_FALSE(decode_handshake(bytes).has_value()) << "byte " << at;
  }
  FrameBytes bytes = encoded(sample());
  bytes[10] = std::byte{5};
  EXPECT_FALSE(decode_handshake(bytes).has_value()) << "kind";
  HandshakeFrame frame = sample();
  frame.stream_index = 3;
  EXPECT_FALSE(decode_handshake(encoded(frame)).has_value()) << "index beyond count";
  frame.stream_index = 0;
  frame.stream_count = kStreamsMax + 1;
  EXPECT_FALSE(decode_handshake(encoded(frame)).has_value()) << "too many streams";
  frame.stream_count = 0;
  EXPECT_FALSE(decode_handshake(encoded(frame)).has_value()) << "no stream";
}

RC_GTEST_PROP(HandshakeProperty, RandomBytesNeverDecode,
              (const std::array<uint8_t, kHandshakeBytes>& raw)) {
  FrameBytes bytes;
  std::memcpy(bytes.data(), raw.data(), raw.size());
  RC_ASSERT(!decode_handshake(bytes).has_value());
}

TEST(HandshakePrefix, TellsAsSoonAsPossible) {
  const FrameBytes bytes = encoded(sample());
  for (size_t count = 0; count < kHandshakeBytes; ++count) {
    const HandshakePrefix prefix = decode_handshake_prefix(std::span(bytes).first(count));
    EXPECT_TRUE(prefix.is_tersum);
    EXPECT_EQ(prefix.complete, count >= kHandshakePrefixBytes);
  }
  EXPECT_EQ(decode_handshake_prefix(bytes).version, kWireVersion);
  FrameBytes stranger = bytes;
  stranger[0] = std::byte{'G'};
  EXPECT_FALSE(decode_handshake_prefix(std::span(stranger).first(1)).is_tersum);
}

TEST(Tokens, AreEqualOnlyWhenAllBytesAre) {
  const HandshakeFrame frame = sample();
  EXPECT_TRUE(tokens_equal(frame.token, frame.token));
  for (size_t i = 0; i < frame.token.size(); ++i) {
    auto other = frame.token;
    other[i] ^= std::byte{0x80};
    EXPECT_FALSE(tokens_equal(frame.token, other)) << i;
  }
}

}  // namespace
}  // namespace tersum
