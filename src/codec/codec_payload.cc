#include "tersum/codec_payload.h"

#include <string>

#include "codec/codec.h"

namespace tersum {
namespace {

// The codec of payloads of `spec`.
Result<const Codec*> find_payload_codec(std::string_view spec, DataType type) {
  Result<const Codec*> found = find_codec(spec, type, ReduceOp::kSum);
  if (!found.ok() || found.value()->lesson() == nullptr) return found;
  return invalid_argument("codec " + found.value()->spec().to_string() +
                          " has no levels but those that calls learn, and so no payloads without "
                          "a call; pass the \"table:…\" of levels that were learned");
}

}  // namespace

Result<std::vector<std::byte>> encode_payload(std::string_view spec, DataType type,
                                              const void* values, size_t count, uint64_t rounding) {
  const Result<const Codec*> found = find_payload_codec(spec, type);
  if (!found.ok()) return found.status();
  std::vector<std::byte> payload(found.value()->wire_bytes(count));
  SlicePlace place;
  place.rounding = rounding;
  if (count > 0) found.value()->encode(values, count, payload.data(), place);
  return payload;
}

Status decode_payload(std::string_view spec, DataType type, std::span<const std::byte> payload,
                      size_t count, void* values) {
  const Result<const Codec*> found = find_payload_codec(spec, type);
  if (!found.ok()) return found.status();
  const Codec& codec = *found.value();
  const size_t wanted = codec.wire_bytes(count);
  if (payload.size() != wanted) {
    return invalid_argument("a payload of " + std::to_string(count) + " values with codec " +
                            codec.spec().to_string() + " has " + std::to_string(wanted) +
                            " bytes; this one has " + std::to_string(payload.size()));
  }
  if (count == 0) return {};
  TERSUM_RETURN_IF_ERROR(codec.check_wire(payload.data(), count));
  codec.decode(payload.data(), count, values);
  return {};
}

}  // namespace tersum
