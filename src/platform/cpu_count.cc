#include "platform/cpu_count.h"

#include <sched.h>

#include <algorithm>

namespace tersum {

namespace {

constexpr pid_t kFirstProcess = 1;

int cpus_of_process(pid_t process) {
  cpu_set_t cpus;
  CPU_ZERO(&cpus);
  if (sched_getaffinity(process, sizeof cpus, &cpus) != 0) return 1;
  return std::max(CPU_COUNT(&cpus), 1);
}

}  // namespace

int cpus_of_ranks(int ranks) {
  const int own = cpus_of_process(0);
  return own >= ranks ? own : std::max(own, std::min(ranks, cpus_of_process(kFirstProcess)));
}

}  // namespace tersum
