#include "runtime/stores/store_protocol.h"

#include "base/bytes.h"
#include "base/check.h"

namespace tersum {
namespace {

constexpr std::string_view kMagic = "TSTR";
constexpr size_t kPrintableKeyMax = 80;

}  // namespace

std::string encode_store_greeting(StoreSide side, uint16_t version) {
  std::string bytes(kMagic);
  bytes.push_back(static_cast<char>(side));
  bytes.resize(kStoreGreetingBytes, '\0');
  store_le<uint16_t>(bytes.data() + 6, version);
  return bytes;
}

uint16_t decode_store_greeting(StoreSide side, std::string_view bytes) {
  TERSUM_CHECK(bytes.size() >= kStoreGreetingBytes);
  if (bytes.substr(0, 4) != kMagic || bytes[4] != static_cast<char>(side) || bytes[5] != '\0') {
    return 0;
  }
  return load_le<uint16_t>(bytes.data() + 6);
}

std::string encode_store_request(const StoreRequest& request) {
  TERSUM_CHECK(request.key.size() <= kStoreKeyBytesMax);
  TERSUM_CHECK(request.value.size() <= kStoreValueBytesMax);
  std::string bytes(kStoreHeaderBytes, '\0');
  bytes[0] = static_cast<char>(request.operation);
  store_le(bytes.data() + 2, static_cast<uint16_t>(request.key.size()));
  store_le(bytes.data() + 4, static_cast<uint32_t>(request.value.size()));
  bytes.append(request.key).append(request.value);
  return bytes;
}

std::string encode_store_reply(const StoreReply& reply) {
  TERSUM_CHECK(reply.value.size() <= kStoreValueBytesMax);
  std::string bytes(kStoreHeaderBytes, '\0');
  bytes[0] = static_cast<char>(reply.result);
  store_le(bytes.data() + 4, static_cast<uint32_t>(reply.value.size()));
  bytes.append(reply.value);
  return bytes;
}

StoreDecoded decode_store_request(std::string_view bytes, StoreRequest* message, size_t* taken) {
  if (bytes.size() < kStoreHeaderBytes) return StoreDecoded::kNeedsMore;
  const auto operation = static_cast<StoreOperation>(bytes[0]);
  const size_t key_bytes = load_le<uint16_t>(bytes.data() + 2);
  const size_t value_bytes = load_le<uint32_t>(bytes.data() + 4);
  const bool is_set = operation == StoreOperation::kSet;
  const bool known = operation >= StoreOperation::kSet && operation <= StoreOperation::kPeek;
  if (!known || bytes[1] != '\0' || key_bytes == 0 || key_bytes > kStoreKeyBytesMax ||
      value_bytes > kStoreValueBytesMax || (!is_set && value_bytes != 0)) {
    return StoreDecoded::kBroken;
  }
  if (bytes.size() - kStoreHeaderBytes < key_bytes + value_bytes) return StoreDecoded::kNeedsMore;
  message->operation = operation;
  message->key = bytes.substr(kStoreHeaderBytes, key_bytes);
  message->value = bytes.substr(kStoreHeaderBytes + key_bytes, value_bytes);
  *taken = kStoreHeaderBytes + key_bytes + value_bytes;
  return StoreDecoded::kComplete;
}

StoreDecoded decode_store_reply(std::string_view bytes, StoreReply* message, size_t* taken) {
  if (bytes.size() < kStoreHeaderBytes) return StoreDecoded::kNeedsMore;
  const auto result = static_cast<StoreResult>(bytes[0]);
  const size_t value_bytes = load_le<uint32_t>(bytes.data() + 4);
  if (result > StoreResult::kAbsent || bytes[1] != '\0' || bytes[2] != '\0' || bytes[3] != '\0' ||
      value_bytes > kStoreValueBytesMax || (result != StoreResult::kOk && value_bytes != 0)) {
    return StoreDecoded::kBroken;
  }
  if (bytes.size() - kStoreHeaderBytes < value_bytes) return StoreDecoded::kNeedsMore;
  message->result = result;
  message->value = bytes.substr(kStoreHeaderBytes, value_bytes);
  *taken = kStoreHeaderBytes + value_bytes;
  return StoreDecoded::kComplete;
}

Status check_store_key(std::string_view key) {
  if (!key.empty() && key.size() <= kStoreKeyBytesMax) return ok_status();
  return invalid_argument("store: a key of " + std::to_string(key.size()) +
                          " bytes; keys have 1 to " + std::to_string(kStoreKeyBytesMax) + " bytes");
}

Status check_store_entry(std::string_view key, std::string_view value) {
  TERSUM_RETURN_IF_ERROR(check_store_key(key));
  if (value.size() <= kStoreValueBytesMax) return ok_status();
  return invalid_argument("store: the value of key " + printable_store_key(key) + " has " +
                          std::to_string(value.size()) + " bytes; at most " +
                          std::to_string(kStoreValueBytesMax) + " are allowed");
}

std::string printable_store_key(std::string_view key) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string text = "\"";
  for (const char c : key.substr(0, kPrintableKeyMax)) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte >= 0x20 && byte < 0x7f && c != '"' && c != '\\') {
      text.push_back(c);
    } else {
      text.append("\\x").append({kDigits[byte >> 4], kDigits[byte & 15]});
    }
  }
  if (key.size() > kPrintableKeyMax) text += "...";
  return text + "\"";
}

}  // namespace tersum
