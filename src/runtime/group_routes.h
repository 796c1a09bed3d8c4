// GroupRoutes: how the ranks of a group reach each other where not every pair has a link.
//
// Payloads only travel between neighbours, because plans use only links that the topology has.
// What every rank says to every other (descriptors, notices, goodbyes) is handed on from rank to
// rank along shortest paths that all ranks compute alike.
//
// Thread safety: immutable once made. Invariant: empty vectors mean that all ranks are neighbours.
#pragma once

#include <cstdint>
#include <vector>

#include "plan/topology.h"

namespace tersum {

struct GroupRoutes {
  std::vector<int> next;  // next[to]: the neighbour that takes what is for `to`
  std::vector<int> last;  // last[from]: the neighbour that hands over what `from` sent here
  // Ordered pairs of other ranks whose messages pass through this one. A rank ends a call only
  // when it has handed on that many descriptors, so that leaving early cuts nobody off.
  uint32_t transits = 0;

  [[nodiscard]] bool direct() const { return next.empty(); }
  [[nodiscard]] int next_to(int rank) const {
    return direct() ? rank : next[static_cast<size_t>(rank)];
  }
  [[nodiscard]] int last_from(int rank) const {
    return direct() ? rank : last[static_cast<size_t>(rank)];
  }
};

// O(size^2 * diameter). A topology where all ranks are adjacent gives direct routes.
GroupRoutes make_routes(const Topology& topology, int rank);

}  // namespace tersum
