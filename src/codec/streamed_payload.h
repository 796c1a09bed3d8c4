// StreamedPayload: payloads written past the caches, for a reader whose cores are far.
//
// Such a reader has the lines of the payload that lay there before. Ordinary stores fetch each of
// them back first, one after the other; these do not.
//
// Thread safety: none; each has memory of its own, kept and grown as needed.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "codec/codec.h"

namespace tersum {

// Bytes that are a payload already. A release store afterwards tells the reader of them.
void stream_payload(std::byte* payload, std::span<const std::byte> bytes);

class StreamedPayload {
 public:
  // Where a payload of `bytes` is made that write() moves to its place: aligned to 64 bytes.
  std::byte* room(size_t bytes);
  void write(std::span<std::byte> payload) const;
  // The same bits as codec.encode(), to all of `payload`.
  void encode(const Codec& codec, const void* values, size_t count, std::span<std::byte> payload,
              const SlicePlace& place);

 private:
  std::vector<std::byte> memory_;
  std::byte* room_ = nullptr;
};

}  // namespace tersum
