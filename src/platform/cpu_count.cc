#include "platform/cpu_count.h"

#include <sched.h>

#include <algorithm>

namespace tersum {

int usable_cpus() {
  cpu_set_t cpus;
  CPU_ZERO(&cpus);
  if (sched_getaffinity(0, sizeof cpus, &cpus) != 0) return 1;
  return std::max(CPU_COUNT(&cpus), 1);
}

}  // namespace tersum
