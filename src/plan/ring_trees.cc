// Rings: around a cycle of adjacent ranks, one way or both ways at once.
#include <string>
#include <utility>

#include "plan/plan_trees.h"
#include "plan/rank_cycle.h"
#include "plan/topology_shape.h"

namespace tersum {
namespace {

size_t at(int index) { return static_cast<size_t>(index); }

struct Ring {
  std::vector<int> cycle;     // position -> rank
  std::vector<int> position;  // rank -> position

  explicit Ring(std::vector<int> order) : cycle(std::move(order)), position(cycle.size()) {
    for (size_t i = 0; i < cycle.size(); ++i) position[at(cycle[i])] = static_cast<int>(i);
  }
  [[nodiscard]] int size() const { return static_cast<int>(cycle.size()); }
  // The rank `hops` further than `rank`, backwards when negative.
  [[nodiscard]] int beyond(int rank, int hops) const {
    return cycle[at((position[at(rank)] + hops + size()) % size())];
  }
  // How far it is forwards.
  [[nodiscard]] int distance(int from, int to) const {
    return (position[at(to)] - position[at(from)] + size()) % size();
  }
};

// The chunk goes from the root once round, forwards or backwards.
void fill_chain(const Ring& ring, int root, int direction, ChunkTree& tree) {
  tree.reset(ring.size(), root);
  for (int rank = 0; rank < ring.size(); ++rank) {
    if (rank != root) tree.source[at(rank)] = ring.beyond(rank, -direction);
  }
}

// The chunk starts behind its owner, collects one contribution per hop until it is there, and then
// goes round once more.
void fill_ring(const Ring& ring, int owner, ChunkTree& tree) {
  fill_chain(ring, owner, 1, tree);
  for (int rank = 0; rank < ring.size(); ++rank) {
    if (rank != owner) tree.parent[at(rank)] = ring.beyond(rank, 1);
  }
}

// Contributions come to the owner from both sides, each by the shorter way. With an even number of
// ranks one is equally far both ways; `leans_back` says which way it takes, and half of the chunk
// takes each.
void fill_both_ways(const Ring& ring, int owner, bool leans_back, ChunkTree& tree) {
  tree.reset(ring.size(), owner);
  for (int rank = 0; rank < ring.size(); ++rank) {
    if (rank == owner) continue;
    const int twice = 2 * ring.distance(rank, owner);
    const bool forwards = twice < ring.size() || (twice == ring.size() && !leans_back);
    tree.parent[at(rank)] = ring.beyond(rank, forwards ? 1 : -1);
  }
  tree.hand_out_by_the_same_way();
}

}  // namespace

Result<PlanTrees> cycle_trees(const PlanRequest& request) {
  std::vector<int> cycle = find_rank_cycle(request.topology, request.size);
  if (cycle.empty()) {
    return invalid_argument(std::string(plan_kind_name(request.kind)) +
                            " needs a ring of links through all ranks; topology " +
                            request.topology->name + " " +
                            missing_torus_link(*request.topology, {request.size}) +
                            ", and no other order of them was found");
  }
  const Ring ring(std::move(cycle));
  const bool broadcasts = request.collective == Collective::kBroadcast;
  if (request.kind == PlanKind::kRing) {
    PlanTrees trees = equal_trees(request, 1);
    trees.fill = [ring, broadcasts, request](uint32_t chunk, ChunkTree& tree) {
      broadcasts ? fill_chain(ring, request.root, 1, tree)
                 : fill_ring(ring, owner_of(request, chunk), tree);
    };
    return trees;
  }
  // Both ways carry equal bytes with one chunk per owner where n - 1 is even, with two where it is
  // odd. A broadcast sends one half of the array each way round.
  const bool halves = request.size > 2 && (broadcasts || request.size % 2 == 0);
  const uint32_t splits = halves ? 2 : 1;
  PlanTrees trees = equal_trees(request, splits);
  trees.fill = [ring, broadcasts, splits, request](uint32_t chunk, ChunkTree& tree) {
    const bool second = chunk % splits == 1;
    broadcasts ? fill_chain(ring, request.root, second ? -1 : 1, tree)
               : fill_both_ways(ring, owner_of(request, chunk / splits), second, tree);
  };
  return trees;
}

}  // namespace tersum
