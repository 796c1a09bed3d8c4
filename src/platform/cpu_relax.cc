#include "platform/cpu_relax.h"

#include <sched.h>

#include <cerrno>
#include <ctime>

namespace tersum {

void yield_thread() { sched_yield(); }

void sleep_thread_ns(int64_t duration_ns) {
  if (duration_ns <= 0) return;
  timespec left{static_cast<time_t>(duration_ns / 1'000'000'000),
                static_cast<long>(duration_ns % 1'000'000'000)};
  while (clock_nanosleep(CLOCK_MONOTONIC, 0, &left, &left) == EINTR) {
  }
}

}  // namespace tersum
