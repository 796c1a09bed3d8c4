// The key under which a group's tuning is kept: everything that the numbers depend on.
//
// Thread safety: pure function.
#pragma once

#include <string>
#include <vector>

#include "tersum/options.h"

namespace tersum {

// One line: versions, instruction set, transport, wires, and each rank's host and network, in rank
// order; of two ranks, the pair; the CPUs that they share (Member::host_cpus). Equal for every
// group of the same hosts in the same arrangement, met or split off. Equal on all ranks that pass
// equal arguments on machines of one instruction set; of several, nothing is kept. Another host,
// boot or version gives another key.
std::string make_tuning_key(const std::vector<std::string>& addresses,
                            const CommunicatorOptions& options, int host_cpus = 0);

}  // namespace tersum
