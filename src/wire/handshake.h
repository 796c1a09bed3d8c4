// The frames that open a connection between two processes, before its first message.
//
//   connector                        acceptor
//   HELLO (proves the token)   ->                    on every stream of the link
//                              <-    WELCOME         on every stream, once all have said HELLO
//   CONFIRM                    ->                    on stream 0: from here on the link exists
//
// A HELLO of another wire version is answered by REJECT, whose first 12 bytes (magic, version,
// kind) are the same in every version; anything else that is wrong is answered by closing the
// connection.
//
// Pure: layout, encode, decode. All integers little-endian.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

namespace tersum {

enum class HandshakeKind : uint8_t { kHello = 1, kWelcome = 2, kReject = 3, kConfirm = 4 };

// How the connector proves that it belongs to the group. Secure channels will be further methods.
enum class AuthMethod : uint8_t { kToken = 0 };

enum class Carrier : uint8_t { kTcp = 0, kSharedMemory = 1 };

// Offsets on the wire: magic 0, version 8, kind 10, auth 11, frame_bytes 12, carrier 14, zero 15,
// stream_index 16, stream_count 18, zero 20, attempt 24, from 32, to 48, group 64, token 72,
// arena_bytes 88, mailbox_bytes 96, zero 104; 128 bytes in all.
struct HandshakeFrame {
  uint16_t version = 0;
  HandshakeKind kind = HandshakeKind::kHello;
  AuthMethod auth = AuthMethod::kToken;
  Carrier carrier = Carrier::kTcp;
  uint16_t stream_index = 0;
  uint16_t stream_count = 0;
  uint64_t attempt = 0;            // names one attempt to link, equal on its streams
  std::array<uint64_t, 2> from{};  // process ids, high and low
  std::array<uint64_t, 2> to{};
  uint64_t group = 0;
  std::array<std::byte, 16> token{};  // HELLO only
  uint64_t arena_bytes = 0;           // shared memory, WELCOME and CONFIRM: sizes of what is passed
  uint64_t mailbox_bytes = 0;
};
inline constexpr size_t kHandshakeBytes = 128;
inline constexpr size_t kHandshakePrefixBytes = 12;
inline constexpr uint16_t kStreamsMax = 16;

void encode_handshake(const HandshakeFrame& frame, std::span<std::byte, kHandshakeBytes> out);

// Empty unless every field is what this version allows. Group, token and ids are the caller's to
// compare.
std::optional<HandshakeFrame> decode_handshake(std::span<const std::byte, kHandshakeBytes> in);

// What the first bytes of a connection say, as far as they have come.
struct HandshakePrefix {
  bool is_tersum = false;  // the magic so far is right
  bool complete = false;   // version and kind have arrived
  uint16_t version = 0;
  uint8_t kind = 0;
};
HandshakePrefix decode_handshake_prefix(std::span<const std::byte> in);

// Whether two tokens are equal, in a time that does not depend on where they differ.
bool tokens_equal(const std::array<std::byte, 16>& a, const std::array<std::byte, 16>& b);

}  // namespace tersum
