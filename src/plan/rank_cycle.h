// A way round all ranks on which each is adjacent to the next: what ring plans run on.
//
// Thread safety: pure functions. Invariant: the answer is the same on every rank.
#pragma once

#include <vector>

#include "plan/topology.h"

namespace tersum {

// All ranks, each adjacent to the next and the last to the first. Null topology: 0, 1, 2, …. In
// this order it is looked for: the ranks' own order, host by host, then as it is; the snake of a
// grid; a search that gives up after a bounded number of steps (any graph of up to some ten ranks
// is decided). Empty: none found.
std::vector<int> find_rank_cycle(const Topology* topology, int size);

// A cycle through all nodes of a grid whose dimensions are rings (a dimension of 2 is one link).
std::vector<int> grid_cycle(const std::vector<int>& extents);

}  // namespace tersum
