// What a store's client and server say to each other. Pure: layout, encode, decode, limits.
//
// A connection is: both send a greeting, then (request reply)*. All integers little-endian.
//   greeting  "TSTR", 'c' from the client or 's' from the server, 0, version u16;  8 bytes
//   request   operation u8, 0 u8, key_bytes u16, value_bytes u32, key, value
//   reply     result u8, 0 u24, value_bytes u32, value
// A wait is answered when its key is set; there is no deadline in the protocol: a client that no
// longer waits closes its connection.
//
// Thread safety: pure functions. Invariant: nothing is believed: a length above the limits, a
// reserved byte that is not 0 or an unknown operation makes the decoder say kBroken.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "tersum/status.h"

namespace tersum {

inline constexpr uint16_t kStoreVersion = 1;
inline constexpr size_t kStoreGreetingBytes = 8;
inline constexpr size_t kStoreHeaderBytes = 8;
inline constexpr size_t kStoreKeyBytesMax = 1024;
inline constexpr size_t kStoreValueBytesMax = 64 * 1024 - 1;

// kPeek is a wait that is answered at once, if need be with kAbsent.
enum class StoreOperation : uint8_t { kSet = 1, kWait = 2, kPeek = 3 };
enum class StoreResult : uint8_t {
  kOk = 0,
  kConflict = 1,  // the key holds other bytes
  kFull = 2,      // the server will not hold more
  kAbsent = 3,    // the key is not set
};

struct StoreRequest {
  StoreOperation operation = StoreOperation::kSet;
  std::string_view key;    // points into the decoded bytes
  std::string_view value;  // empty unless kSet
};

struct StoreReply {
  StoreResult result = StoreResult::kOk;
  std::string_view value;  // points into the decoded bytes; empty unless it was asked for
};

enum class StoreSide : char { kClient = 'c', kServer = 's' };
std::string encode_store_greeting(StoreSide side, uint16_t version = kStoreVersion);
// The version; 0 when the bytes are no greeting from `side`.
uint16_t decode_store_greeting(StoreSide side, std::string_view bytes);

std::string encode_store_request(const StoreRequest& request);
std::string encode_store_reply(const StoreReply& reply);

// Looks for one message at the start of `bytes`. kComplete: `*message` and the `*taken` bytes are
// set.
enum class StoreDecoded : uint8_t { kComplete, kNeedsMore, kBroken };
StoreDecoded decode_store_request(std::string_view bytes, StoreRequest* message, size_t* taken);
StoreDecoded decode_store_reply(std::string_view bytes, StoreReply* message, size_t* taken);

// kInvalidArgument when a key is empty or too long, or a value too long, for any kind of store.
Status check_store_key(std::string_view key);
Status check_store_entry(std::string_view key, std::string_view value);

// For messages: quoted, cut at 80 characters, with what is not printable escaped.
std::string printable_store_key(std::string_view key);

}  // namespace tersum
