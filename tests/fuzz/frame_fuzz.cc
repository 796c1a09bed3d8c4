// Any bytes as each of the frames that a peer sends: header, handshake, call descriptor, cancel
// notice, the store's messages. What is accepted is written back as the same bytes, so there is no
// second way to say anything; more bytes never undo what fewer said.
#include <algorithm>
#include <array>
#include <span>
#include <string>

#include "base/check.h"
#include "fuzz_input.h"
#include "runtime/call_descriptor.h"
#include "runtime/stores/store_protocol.h"
#include "transport/peer_address.h"
#include "wire/handshake.h"
#include "wire/message.h"

namespace tersum {
namespace {

// Prefixes up to here are all tried.
constexpr size_t kPrefixMax = 256;

template <size_t kBytes>
std::array<std::byte, kBytes> frame_of(const FuzzInput& input) {
  std::array<std::byte, kBytes> frame{};
  std::copy_n(input.rest().begin(), std::min(input.rest().size(), kBytes), frame.begin());
  return frame;
}

void fuzz_header(const FuzzInput& input) {
  const auto frame = frame_of<kMessageHeaderBytes>(input);
  const auto header = decode_header(frame);
  if (!header.has_value()) return;
  TERSUM_CHECK(header->payload_bytes <= kPayloadBytesMax);
  std::array<std::byte, kMessageHeaderBytes> written{};
  encode_header(*header, written);
  TERSUM_CHECK(written == frame);
}

void fuzz_handshake(const FuzzInput& input) {
  const auto frame = frame_of<kHandshakeBytes>(input);
  const auto handshake = decode_handshake(frame);
  if (!handshake.has_value()) return;
  TERSUM_CHECK(handshake->stream_index < handshake->stream_count);
  TERSUM_CHECK(handshake->stream_count <= kStreamsMax);
  std::array<std::byte, kHandshakeBytes> written{};
  encode_handshake(*handshake, written);
  TERSUM_CHECK(written == frame);
}

void fuzz_prefix(const FuzzInput& input) {
  bool is_tersum = true;
  for (size_t size = 1; size <= std::min(input.rest().size(), kHandshakeBytes); ++size) {
    const HandshakePrefix prefix = decode_handshake_prefix(input.rest().first(size));
    TERSUM_CHECK(is_tersum || !prefix.is_tersum);
    TERSUM_CHECK(prefix.complete == (size >= kHandshakePrefixBytes));
    is_tersum = prefix.is_tersum;
  }
}

void fuzz_descriptor(const FuzzInput& input) {
  const auto filled = frame_of<kOpenDescriptorBytes>(input);
  const size_t size = input.rest().size();
  const bool opens = size >= kOpenDescriptorBytes;
  const auto frame = std::span(filled).first(opens ? kOpenDescriptorBytes : kDescriptorBytes);
  TERSUM_CHECK(size == kDescriptorBytes || size == kOpenDescriptorBytes ||
               !decode_descriptor(input.rest()));
  const auto descriptor = decode_descriptor(frame);
  if (!descriptor.has_value()) return;
  std::array<std::byte, kOpenDescriptorBytes> written{};
  TERSUM_CHECK(encode_descriptor(*descriptor, written) == frame.size());
  TERSUM_CHECK(std::ranges::equal(std::span(written).first(frame.size()), frame));
  TERSUM_CHECK(compare_descriptors(*descriptor, 0, *descriptor, 1).ok());
  const Status differs = compare_descriptors({}, 0, *descriptor, 1);
  TERSUM_CHECK(differs.ok() || differs.code() == StatusCode::kDisagreement);
}

void fuzz_cancel(const FuzzInput& input) {
  const auto notice = decode_cancel(input.rest());
  if (!notice.has_value()) return;
  TERSUM_CHECK(status_code_name(notice->code) != "unknown" && notice->code != StatusCode::kOk);
  std::array<std::byte, 8 + kCancelTextBytesMax> written{};
  const size_t bytes = encode_cancel(*notice, written);
  TERSUM_CHECK(std::ranges::equal(std::span(written).first(bytes), input.rest()));
}

// `decode` is one of the store's, `encode` its inverse.
template <class Message>
void fuzz_store(std::string_view bytes, StoreDecoded (*decode)(std::string_view, Message*, size_t*),
                std::string (*encode)(const Message&)) {
  Message message;
  size_t taken = 0;
  const StoreDecoded whole = decode(bytes, &message, &taken);
  if (whole == StoreDecoded::kComplete) {
    TERSUM_CHECK(taken >= kStoreHeaderBytes && taken <= bytes.size());
    TERSUM_CHECK(encode(message) == bytes.substr(0, taken));
  }
  for (size_t size = 0; size < std::min(bytes.size(), kPrefixMax); ++size) {
    Message shorter;
    size_t used = 0;
    const StoreDecoded said = decode(bytes.substr(0, size), &shorter, &used);
    if (said == StoreDecoded::kBroken) TERSUM_CHECK(whole == StoreDecoded::kBroken);
    const bool complete = whole == StoreDecoded::kComplete && size >= taken;
    if (said == StoreDecoded::kComplete) TERSUM_CHECK(complete && used == taken);
    if (complete) TERSUM_CHECK(said == StoreDecoded::kComplete);
  }
}

void fuzz_greeting(std::string_view bytes) {
  if (bytes.size() < kStoreGreetingBytes) return;
  bytes = bytes.substr(0, kStoreGreetingBytes);
  for (const StoreSide side : {StoreSide::kClient, StoreSide::kServer}) {
    const uint16_t version = decode_store_greeting(side, bytes);
    if (version != 0) TERSUM_CHECK(encode_store_greeting(side, version) == bytes);
  }
}

void fuzz_address(std::string_view text) {
  const Result<PeerAddress> address = parse_peer_address(text);
  if (!address.ok()) {
    TERSUM_CHECK(address.status().code() == StatusCode::kProtocol);
    return;
  }
  // Unknown fields are gone, all else stays.
  const std::string written = address.value().to_string();
  const Result<PeerAddress> again = parse_peer_address(written);
  TERSUM_CHECK(again.ok() && again.value().to_string() == written);
  TERSUM_CHECK(again.value().id == address.value().id);
}

}  // namespace
}  // namespace tersum

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const tersum::FuzzInput input(data, size);
  tersum::fuzz_header(input);
  tersum::fuzz_handshake(input);
  tersum::fuzz_prefix(input);
  tersum::fuzz_descriptor(input);
  tersum::fuzz_cancel(input);
  tersum::fuzz_store(input.text(), tersum::decode_store_request, tersum::encode_store_request);
  tersum::fuzz_store(input.text(), tersum::decode_store_reply, tersum::encode_store_reply);
  tersum::fuzz_greeting(input.text());
  tersum::fuzz_address(input.text());
  return 0;
}
