#include "codec/decode_past_cache.h"

#include "codec/kernels/stream_copy.h"

namespace tersum {

void decode_past_cache(const Codec& codec, const std::byte* wire, size_t count, void* values,
                       std::vector<std::byte>& scratch) {
  const size_t bytes = count * element_bytes(codec.value_type());
  auto* const to = static_cast<std::byte*>(values);
  // Values that travel as they are need no decoding.
  if (codec.spec().base == "exact") {
    stream_copy(to, wire, bytes);
    return;
  }
  if (scratch.size() < bytes) scratch.resize(bytes);
  codec.decode(wire, count, scratch.data());
  stream_copy(to, scratch.data(), bytes);
}

}  // namespace tersum
