// decode_past_cache, combine_past_cache: results for an array so large that nothing of it will be
// found in the cache again: each line is written without being read first.
//
// Thread safety: any thread, with a scratch of its own.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "codec/codec.h"

namespace tersum {

// Bytes of one rank's input and output together from which it pays where two ranks share a cache.
// Two cores write 256 MiB at 8 GB/s each by ordinary stores, at 21 by streaming ones; 16 MiB, which
// stay in the cache, at 17 and 20, but are then read back at half the speed. So a sum of 16 MiB
// into another array gains 1.25 to 1.5 times, and loses nothing when its result is read at once; in
// place, where the next call reads what this one wrote, it would lose a tenth to a quarter, and one
// of 8 MiB would, too.
inline constexpr size_t kPastCacheBytesMin = size_t{32} << 20;

// The same bits as codec.decode(). `scratch` grows as needed and is kept by the caller.
void decode_past_cache(const Codec& codec, const std::byte* wire, size_t count, void* values,
                       const SlicePlace& place, std::vector<std::byte>& scratch);

// The same bits as codec.combine(), by way of the wire: what was just encoded is in the cache.
// Where `values_out` is `own` its lines have been read, and are written as usual.
void combine_past_cache(const Codec& codec, std::span<const std::byte* const> wires,
                        const void* own, size_t own_index, size_t count,
                        const CombineFinish& finish, std::byte* wire_out, void* values_out,
                        const SlicePlace& place, std::vector<std::byte>& scratch);

}  // namespace tersum
