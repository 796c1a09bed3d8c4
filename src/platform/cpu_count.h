// How many CPUs ranks may run on.
//
// Thread safety: any thread.
#pragma once

namespace tersum {

// Those that `ranks` of this machine have together, at least 1: what the calling thread is allowed,
// not what the machine has. A launcher that binds leaves each rank fewer than that; what the first
// process of the machine or container may use says how many there are then.
int cpus_of_ranks(int ranks);

}  // namespace tersum
