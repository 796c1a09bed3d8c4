// What a tuning says of a group's links, as quantities: from times of exact two_steps.
//
// Thread safety: pure function. Equal on all ranks that hold the same table.
#pragma once

#include <optional>

#include "runtime/tuning/tuning_table.h"
#include "tersum/communicator.h"

namespace tersum {

// An exact two_step of `ranks` sends 2 (n - 1) / n of its array from each rank, in two hops. So the
// rate is the slope between the two largest sizes, and the latency half of what the smallest size
// takes beyond its bytes. nullopt where that plan was not measured (on wires that not all ranks
// have to each other), or latency hides the rate: the largest size took hardly longer than the
// next.
std::optional<LinkSpeed> link_speed_of(const TuningTable& table, int ranks);

}  // namespace tersum
