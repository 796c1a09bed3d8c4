// The real clock and the real source of randomness.
//
// Thread safety: any thread, concurrently.
#pragma once

#include <cstdint>

#include "base/clock.h"

namespace tersum {

class SystemClock final : public Clock {
 public:
  // CLOCK_MONOTONIC.
  [[nodiscard]] int64_t now_ns() const override;
};

// Nanoseconds since 1970, for lining up what several hosts recorded; may jump.
int64_t wall_clock_ns();

// Unpredictable 64-bit numbers from the kernel: good enough for tokens and ids.
class SystemRandom final : public Random {
 public:
  uint64_t next() override;
};

}  // namespace tersum
