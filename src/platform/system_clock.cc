#include "platform/system_clock.h"

#include <sys/random.h>

#include <cerrno>
#include <ctime>

#include "base/check.h"

namespace tersum {

int64_t SystemClock::now_ns() const {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<int64_t>(now.tv_sec) * 1'000'000'000 + now.tv_nsec;
}

uint64_t SystemRandom::next() {
  uint64_t value = 0;
  // 8 bytes are never cut short; only a signal before the pool is ready can interrupt.
  ssize_t got = 0;
  do {
    got = getrandom(&value, sizeof value, 0);
  } while (got < 0 && errno == EINTR);
  TERSUM_CHECK(got == static_cast<ssize_t>(sizeof value));
  return value;
}

}  // namespace tersum
