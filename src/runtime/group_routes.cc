#include "runtime/group_routes.h"

#include "base/check.h"

namespace tersum {

GroupRoutes make_routes(const Topology& topology, int rank) {
  GroupRoutes routes;
  if (topology.all_adjacent) return routes;
  const auto size = static_cast<size_t>(topology.ranks());
  std::vector<std::vector<int>> next_hops;
  next_hops.reserve(size);
  for (int from = 0; from < topology.ranks(); ++from) next_hops.push_back(topology.next_hops(from));
  routes.next = next_hops[static_cast<size_t>(rank)];
  routes.last.assign(size, -1);
  for (int from = 0; from < topology.ranks(); ++from) {
    for (int to = 0; to < topology.ranks(); ++to) {
      if (from == to) continue;
      int before = from;
      for (int at = from; at != to;) {
        const int next = next_hops[static_cast<size_t>(at)][static_cast<size_t>(to)];
        TERSUM_CHECK(next >= 0 && next != at);
        if (at == rank && from != rank) ++routes.transits;
        before = at;
        at = next;
      }
      if (to == rank) routes.last[static_cast<size_t>(from)] = before;
    }
  }
  return routes;
}

}  // namespace tersum
