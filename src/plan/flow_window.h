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

inline constexpr size_t kFlowUnlimited = static_cast<size_t>(-1);

// In bytes on the wire, the same on all ranks: what covers the way there and back, and twice over.
// kFlowUnlimited where that cannot be told or gains nothing:
//
//   no switch, or fewer than three hosts; a rate or a latency that nobody described
//   ports so fast that this is above 512 KiB: not they but the ranks' cores are waited for
//   a ring: all that comes to a port comes from one rank
//   one_shot: its slices go to everybody, so that all would wait for the slowest at each (measured
//   1.2 to 1.8 times as long)
//   what adds nothing up
size_t flow_bytes_max(const Topology* topology, Collective collective, PlanKind plan);

}  // namespace tersum
