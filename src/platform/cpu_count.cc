#include "platform/cpu_count.h"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <limits>

namespace tersum {
namespace {

int cpus_of_process(pid_t process) {
  cpu_set_t cpus;
  CPU_ZERO(&cpus);
  if (sched_getaffinity(process, sizeof cpus, &cpus) != 0) return 1;
  return std::max(CPU_COUNT(&cpus), 1);
}

}  // namespace

int cpus_of_ranks(int ranks) {
  const int own = cpus_of_process(0);
  return own >= ranks ? own : std::max(own, std::min(ranks, cpus_of_process(getppid())));
}

int cpus_of_host() { return cpus_of_ranks(std::numeric_limits<int>::max()); }

}  // namespace tersum
