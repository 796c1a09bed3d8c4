// stream_copy: a copy that does not first read the lines it is about to overwrite, and does not
// keep them in the cache.
//
// Thread safety: any thread. Layer: raw spans in, raw spans out.
#pragma once

#include <cstddef>

namespace tersum {

// Bytes may not overlap. A release store tells other threads and processes of them only after
// stream_fence().
void stream_copy(std::byte* to, const std::byte* from, size_t bytes);
void stream_fence();

}  // namespace tersum
