// How much of one flow may be under way where flows share a port of a switch.
//
// A rank adds up what comes from several others slice by slice, in step. What runs ahead of the
// rest only queues at the port. On eight hosts at 250 Mbit/s behind a switch, with nothing but the
// memory of a call as a limit, a tree's leaves filled the root's port before its inner ranks had
// anything to send, and a call took up to 1.46 times as long as its busiest port; two_step 1.10.
//
// Thread safety: pure function.
#pragma once

#include <cstddef>

#include "plan/topology.h"
#include "tersum/options.h"

namespace tersum {

// In bytes on the wire, the same on all ranks: what covers the way there and back, and twice over.
// The largest size_t on links whose rates nobody described; where no switch is; for a ring, in
// which all that comes to a port comes from one rank; and for one_shot, whose slices go to
// everybody, so that all would wait for the slowest at each (1.2 to 1.8 times as long, measured).
size_t flow_bytes_max(const Topology* topology, PlanKind plan);

}  // namespace tersum
