#include "codec/decode_past_cache.h"

#include <algorithm>

#include "codec/kernels/stream_copy.h"

namespace tersum {

// A codec whose blocks are longer than its parts (rows) is decoded block by block.
void decode_past_cache(const Codec& codec, const std::byte* wire, size_t count, void* values,
                       const SlicePlace& place, std::vector<std::byte>& scratch) {
  if (codec.stream(wire, count, values)) {
    stream_fence();
    return;
  }
  auto* const to = static_cast<std::byte*>(values);
  const size_t value_bytes = element_bytes(codec.value_type());
  const size_t whole = std::max<size_t>(codec.part_values() / codec.block(), 1) * codec.block();
  if (scratch.size() < whole * value_bytes) scratch.resize(whole * value_bytes);
  for (size_t at = 0; at < count; at += whole) {
    const size_t part = std::min(whole, count - at);
    codec.decode_part(wire, {count, at, part}, scratch.data(), place);
    stream_copy(to + at * value_bytes, scratch.data(), part * value_bytes);
  }
  stream_fence();
}

void combine_past_cache(const Codec& codec, std::span<const std::byte* const> wires,
                        const void* own, size_t own_index, size_t count,
                        const CombineFinish& finish, std::byte* wire_out, void* values_out,
                        const SlicePlace& place, std::vector<std::byte>& scratch) {
  if (values_out == nullptr || values_out == own) {
    codec.combine(wires, own, own_index, count, finish, wire_out, values_out, place);
  } else if (wire_out != nullptr) {
    codec.combine(wires, own, own_index, count, finish, wire_out, nullptr, place);
    decode_past_cache(codec.gathered(finish.gathered_ranks), wire_out, count, values_out, place,
                      scratch);
  } else {
    const size_t bytes = count * element_bytes(codec.value_type());
    if (scratch.size() < bytes) scratch.resize(bytes);
    codec.combine(wires, own, own_index, count, finish, nullptr, scratch.data(), place);
    stream_copy(static_cast<std::byte*>(values_out), scratch.data(), bytes);
    stream_fence();
  }
}

}  // namespace tersum
