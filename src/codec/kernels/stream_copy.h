// stream_copy: a copy that does not first read the lines it is about to overwrite, and does not
// keep them in the cache.
//
// Thread safety: any thread. Layer: raw spans in, raw spans out.
#pragma once

#include <cstddef>

namespace tersum {

// Bytes may not overlap. When it returns the bytes are visible to other threads and processes that
// are told of them by a release store.
void stream_copy(std::byte* to, const std::byte* from, size_t bytes);

}  // namespace tersum
