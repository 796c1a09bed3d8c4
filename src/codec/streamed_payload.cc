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

void StreamedPayload::write(std::span<std::byte> payload) const {
  stream_payload(payload.data(), {room_, payload.size()});
}

void StreamedPayload::encode(const Codec& codec, const void* values, size_t count,
                             std::span<std::byte> payload, const SlicePlace& place) {
  // Values that travel as they are need no coding.
  if (codec.spec().base == "exact" && !place.added.is_any()) {
    stream_payload(payload.data(), {static_cast<const std::byte*>(values), payload.size()});
    return;
  }
  codec.encode(values, count, room(payload.size()), place);
  write(payload);
}

}  // namespace tersum
