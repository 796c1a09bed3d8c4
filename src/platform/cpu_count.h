// How many CPUs ranks may run on.
//
// Thread safety: any thread.
#pragma once

namespace tersum {

// Those that `ranks` of this machine have together, at least 1: what the calling thread is allowed,
// not what the machine has. A launcher that binds leaves each rank fewer than its own process may
// use, which is this one's parent.
int cpus_of_ranks(int ranks);

// The same of any number of them.
int cpus_of_host();

}  // namespace tersum
