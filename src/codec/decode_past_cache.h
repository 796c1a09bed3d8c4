// decode_past_cache: decoding into an array so large that nothing of it will be found in the cache
// again: each line is written without being read first.
//
// Thread safety: any thread, with a scratch of its own.
#pragma once

#include <cstddef>
#include <vector>

#include "codec/codec.h"

namespace tersum {

// Two cores write 256 MiB at 8 GB/s each by ordinary stores, at 21 by streaming ones; 16 MiB, which
// stay in the cache, at 17 and 20, but are then read back at half the speed.
inline constexpr size_t kPastCacheBytesMin = size_t{32} << 20;

// The same bits as codec.decode(). `scratch` grows to one slice of values and is kept by the
// caller.
void decode_past_cache(const Codec& codec, const std::byte* wire, size_t count, void* values,
                       std::vector<std::byte>& scratch);

}  // namespace tersum
