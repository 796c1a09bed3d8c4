// How far two CPUs are from each other: the time in which one sees what the other has written.
//
// Virtual machines are moved between cores that share a cache and cores that do not, and shared
// memory is several times faster on the former. So a measurement through shared memory means
// something only beside this number.
//
// Thread safety: any thread; costs a few milliseconds on two threads of its own.
#pragma once

#include "tersum/status.h"

namespace tersum {

// Nanoseconds, one way, for a cache line between two CPUs (numbers as in sched_setaffinity): the
// best of several batches. About 50 where they share a last-level cache, 250 across chiplets.
// kUnavailable when this process may not run on one of them, or one did not get to run.
Result<double> core_distance_ns(int first_cpu, int second_cpu);

}  // namespace tersum
