#include "wire/handshake.h"

#include <algorithm>
#include <cstring>

#include "base/bytes.h"
#include "tersum/version.h"

namespace tersum {
namespace {

// The line ends show a transfer that mangles text, the letters show a person what port this is.
constexpr std::array<uint8_t, 8> kMagic = {'T', 'E', 'R', 'S', 'U', 'M', '\r', '\n'};

constexpr size_t kVersionAt = 8;
constexpr size_t kKindAt = 10;
constexpr size_t kAuthAt = 11;
constexpr size_t kFrameBytesAt = 12;
constexpr size_t kCarrierAt = 14;
constexpr size_t kZeroByteAt = 15;
constexpr size_t kStreamIndexAt = 16;
constexpr size_t kStreamCountAt = 18;
constexpr size_t kZeroWordAt = 20;
constexpr size_t kAttemptAt = 24;
constexpr size_t kFromAt = 32;
constexpr size_t kToAt = 48;
constexpr size_t kGroupAt = 64;
constexpr size_t kTokenAt = 72;
constexpr size_t kArenaBytesAt = 88;
constexpr size_t kMailboxBytesAt = 96;
constexpr size_t kZeroTailAt = 104;
static_assert(kZeroTailAt + 24 == kHandshakeBytes);
static_assert(kAuthAt + 1 == kHandshakePrefixBytes);

bool all_zero(const std::byte* from, size_t count) {
  return std::all_of(from, from + count, [](std::byte byte) { return byte == std::byte{0}; });
}

}  // namespace

void encode_handshake(const HandshakeFrame& frame, std::span<std::byte, kHandshakeBytes> out) {
  std::byte* at = out.data();
  std::fill(out.begin(), out.end(), std::byte{0});
  std::memcpy(at, kMagic.data(), kMagic.size());
  store_le(at + kVersionAt, frame.version);
  store_le(at + kKindAt, static_cast<uint8_t>(frame.kind));
  store_le(at + kAuthAt, static_cast<uint8_t>(frame.auth));
  store_le(at + kFrameBytesAt, static_cast<uint16_t>(kHandshakeBytes));
  store_le(at + kCarrierAt, static_cast<uint8_t>(frame.carrier));
  store_le(at + kStreamIndexAt, frame.stream_index);
  store_le(at + kStreamCountAt, frame.stream_count);
  store_le(at + kAttemptAt, frame.attempt);
  store_le(at + kFromAt, frame.from[0]);
  store_le(at + kFromAt + 8, frame.from[1]);
  store_le(at + kToAt, frame.to[0]);
  store_le(at + kToAt + 8, frame.to[1]);
  store_le(at + kGroupAt, frame.group);
  std::memcpy(at + kTokenAt, frame.token.data(), frame.token.size());
  store_le(at + kArenaBytesAt, frame.arena_bytes);
  store_le(at + kMailboxBytesAt, frame.mailbox_bytes);
}

std::optional<HandshakeFrame> decode_handshake(std::span<const std::byte, kHandshakeBytes> in) {
  const std::byte* at = in.data();
  const HandshakePrefix prefix = decode_handshake_prefix(in);
  const auto carrier = load_le<uint8_t>(at + kCarrierAt);
  HandshakeFrame frame;
  frame.version = prefix.version;
  frame.stream_index = load_le<uint16_t>(at + kStreamIndexAt);
  frame.stream_count = load_le<uint16_t>(at + kStreamCountAt);
  frame.attempt = load_le<uint64_t>(at + kAttemptAt);
  frame.from = {load_le<uint64_t>(at + kFromAt), load_le<uint64_t>(at + kFromAt + 8)};
  frame.to = {load_le<uint64_t>(at + kToAt), load_le<uint64_t>(at + kToAt + 8)};
  frame.group = load_le<uint64_t>(at + kGroupAt);
  std::memcpy(frame.token.data(), at + kTokenAt, frame.token.size());
  frame.arena_bytes = load_le<uint64_t>(at + kArenaBytesAt);
  frame.mailbox_bytes = load_le<uint64_t>(at + kMailboxBytesAt);
  const bool known = prefix.is_tersum && prefix.version == kWireVersion && prefix.kind >= 1 &&
                     prefix.kind <= static_cast<uint8_t>(HandshakeKind::kConfirm) &&
                     load_le<uint8_t>(at + kAuthAt) == static_cast<uint8_t>(AuthMethod::kToken) &&
                     load_le<uint16_t>(at + kFrameBytesAt) == kHandshakeBytes &&
                     carrier <= static_cast<uint8_t>(Carrier::kSharedMemory);
  const bool streams_fit =
      frame.stream_count <= kStreamsMax && frame.stream_index < frame.stream_count;
  const bool rest_zero = all_zero(at + kZeroByteAt, 1) && all_zero(at + kZeroWordAt, 4) &&
                         all_zero(at + kZeroTailAt, kHandshakeBytes - kZeroTailAt);
  if (!known || !streams_fit || !rest_zero) return std::nullopt;
  frame.kind = static_cast<HandshakeKind>(prefix.kind);
  frame.carrier = static_cast<Carrier>(carrier);
  return frame;
}

HandshakePrefix decode_handshake_prefix(std::span<const std::byte> in) {
  HandshakePrefix prefix;
  prefix.is_tersum = std::memcmp(in.data(), kMagic.data(), std::min(in.size(), kMagic.size())) == 0;
  prefix.complete = in.size() >= kHandshakePrefixBytes;
  if (prefix.complete) {
    prefix.version = load_le<uint16_t>(in.data() + kVersionAt);
    prefix.kind = load_le<uint8_t>(in.data() + kKindAt);
  }
  return prefix;
}

bool tokens_equal(const std::array<std::byte, 16>& a, const std::array<std::byte, 16>& b) {
  std::byte difference{0};
  for (size_t i = 0; i < a.size(); ++i) difference |= a[i] ^ b[i];
  // The volatile read keeps the loop from being turned into an early exit.
  volatile std::byte result = difference;
  return result == std::byte{0};
}

}  // namespace tersum
