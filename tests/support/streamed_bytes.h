// What this process has written past the caches for peers whose cores are far, and straight into
// peers' arrays.
#pragma once

#include <cstdint>

#include "tersum/metrics.h"

namespace tersum::testing {

inline uint64_t streamed_bytes() {
  uint64_t bytes = 0;
  for (const CallMetrics& call : metrics().calls) bytes += call.wire_bytes_streamed;
  return bytes;
}

inline uint64_t placed_bytes() {
  uint64_t bytes = 0;
  for (const CallMetrics& call : metrics().calls) bytes += call.wire_bytes_placed;
  return bytes;
}

}  // namespace tersum::testing
