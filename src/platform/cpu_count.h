// How many CPUs this process may run on.
//
// Thread safety: any thread.
#pragma once

namespace tersum {

// At least 1; what the calling thread is allowed, not what the machine has.
int usable_cpus();

}  // namespace tersum
