#include "codec/streamed_payload.h"

#include <cstdint>

#include "codec/kernels/stream_copy.h"

namespace tersum {

void stream_payload(std::byte* payload, std::span<const std::byte> bytes) {
  stream_copy(payload, bytes.data(), bytes.size());
  stream_fence();
}

std::byte* StreamedPayload::room(size_t bytes) {
  constexpr size_t kLine = 64;
  if (memory_.size() < bytes + kLine) {
    memory_.resize(bytes + kLine);
    const size_t past_line = reinterpret_cast<uintptr_t>(memory_.data()) % kLine;
    room_ = memory_.data() + (kLine - past_line) % kLine;
  }
  return room_;
}

void StreamedPayload::write(std::byte* payload, size_t bytes) const {
  stream_payload(payload, {room_, bytes});
}

void StreamedPayload::encode(const Codec& codec, const void* values, size_t count,
                             std::byte* payload, const SlicePlace& place) {
  const size_t bytes = codec.wire_bytes(count);
  // Values that travel as they are need no coding.
  if (codec.spec().base == "exact" && !place.added.is_any()) {
    stream_payload(payload, {static_cast<const std::byte*>(values), bytes});
    return;
  }
  codec.encode(values, count, room(bytes), place);
  write(payload, bytes);
}

}  // namespace tersum
