#include "platform/system_clock.h"

#include <sys/random.h>

#include <cerrno>
#include <ctime>

#include "base/check.h"

namespace tersum {

namespace {

int64_t read_clock(clockid_t clock) {
  timespec now{};
  clock_gettime(clock, &now);
  return static_cast<int64_t>(now.tv_sec) * 1'000'000'000 + now.tv_nsec;
}

}  // namespace

int64_t SystemClock::now_ns() const { return read_clock(CLOCK_MONOTONIC); }

int64_t wall_clock_ns() { return read_clock(CLOCK_REALTIME); }

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
