// The frames that tests/reference/read_frames.py reads and refuses: what tersum writes for the same
// fields, and what it refuses. The descriptor of a call is held in call_descriptor_test.cc.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "support/golden_frames.h"
#include "wire/handshake.h"
#include "wire/message.h"

namespace tersum {
namespace {

using HeaderBytes = std::array<std::byte, kMessageHeaderBytes>;
using FrameBytes = std::array<std::byte, kHandshakeBytes>;

template <class Bytes>
Bytes bytes_of(const GoldenFrame& frame) {
  Bytes bytes{};
  EXPECT_EQ(frame.bytes.size(), bytes.size()) << frame.name;
  std::copy_n(frame.bytes.begin(), std::min(bytes.size(), frame.bytes.size()), bytes.begin());
  return bytes;
}

MessageHeader message_of(const GoldenFrame& frame) {
  MessageHeader header;
  header.kind = frame.number<MessageKind>("kind");
  header.phase = frame.number<FlowPhase>("phase");
  header.via = frame.number<uint16_t>("via");
  header.from_rank = frame.number<uint16_t>("from_rank");
  header.to_rank = frame.number<uint16_t>("to_rank");
  header.group = frame.number<uint64_t>("group");
  header.call = frame.number<uint64_t>("call");
  header.chunk = frame.number<uint32_t>("chunk");
  header.slice = frame.number<uint32_t>("slice");
  header.payload_bytes = frame.number<uint32_t>("payload_bytes");
  return header;
}

HandshakeFrame handshake_of(const GoldenFrame& frame) {
  HandshakeFrame handshake;
  handshake.version = frame.number<uint16_t>("version");
  handshake.kind = frame.number<HandshakeKind>("kind");
  handshake.carrier = frame.number<Carrier>("carrier");
  handshake.stream_index = frame.number<uint16_t>("stream_index");
  handshake.stream_count = frame.number<uint16_t>("stream_count");
  handshake.attempt = frame.number<uint64_t>("attempt");
  handshake.from = {frame.number<uint64_t>("from_high"), frame.number<uint64_t>("from_low")};
  handshake.to = {frame.number<uint64_t>("to_high"), frame.number<uint64_t>("to_low")};
  handshake.group = frame.number<uint64_t>("group");
  const std::vector<std::byte> token = golden_frame_bytes(frame.text("token"));
  std::copy_n(token.begin(), std::min(token.size(), handshake.token.size()),
              handshake.token.begin());
  handshake.arena_bytes = frame.number<uint64_t>("arena_bytes");
  handshake.mailbox_bytes = frame.number<uint64_t>("mailbox_bytes");
  return handshake;
}

// `read` of the bytes, `fields_of` a frame's line, `write` of either.
template <class Bytes>
void expect_documented(const char* what, const auto& read, const auto& fields_of,
                       const auto& write) {
  const std::vector<GoldenFrame> frames = golden_frames(TERSUM_GOLDEN_FRAMES, what);
  ASSERT_GE(frames.size(), 10u);
  for (const GoldenFrame& frame : frames) {
    const auto bytes = bytes_of<Bytes>(frame);
    const auto decoded = read(bytes);
    ASSERT_EQ(decoded.has_value(), !frame.is_refused) << frame.name;
    if (frame.is_refused) continue;
    Bytes written{}, again{};
    write(fields_of(frame), written);
    write(*decoded, again);
    EXPECT_EQ(written, bytes) << frame.name;
    EXPECT_EQ(again, bytes) << frame.name;
  }
}

TEST(GoldenFrames, MessagesAreTheDocumentedBytes) {
  expect_documented<HeaderBytes>("message", decode_header, message_of, encode_header);
}

TEST(GoldenFrames, HandshakesAreTheDocumentedBytes) {
  expect_documented<FrameBytes>("handshake", decode_handshake, handshake_of, encode_handshake);
}

}  // namespace
}  // namespace tersum
