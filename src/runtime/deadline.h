// Deadlines that do not wrap, however long a caller is willing to wait. Pure.
#pragma once

#include <algorithm>
#include <cstdint>

namespace tersum {

// `timeout_ms` after `now_ns`, at most some 30 years away.
constexpr int64_t deadline_after_ms(int64_t now_ns, int64_t timeout_ms) {
  constexpr int64_t kNsPerMs = 1'000'000;
  constexpr int64_t kTimeoutMsMax = 1'000'000'000'000;
  return now_ns + std::min(timeout_ms, kTimeoutMsMax) * kNsPerMs;
}

}  // namespace tersum
