#include "plan/plan_trees.h"

#include <string>
#include <utility>

#include "base/check.h"
#include "plan/collective_rules.h"

namespace tersum {
namespace {

void hand_out_directly(int receiver, ChunkTree& tree) {
  for (int rank = 0; rank < static_cast<int>(tree.source.size()); ++rank) {
    if (rank == tree.owner) continue;
    if (receiver == kEveryRank || receiver == rank)
      tree.source[static_cast<size_t>(rank)] = tree.owner;
  }
}

// The root deals n - 1 chunks out, one to each other rank, which forwards it to the n - 2 remaining
// ones. The root sends the array once instead of n - 1 times, nobody sends more than that.
PlanTrees scatter_broadcast(const PlanRequest& request) {
  PlanTrees trees;
  trees.weights.assign(static_cast<size_t>(request.size) - 1, 1);
  trees.fill = [size = request.size, root = request.root](uint32_t chunk, ChunkTree& tree) {
    tree.reset(size, root);
    const int relay = (root + 1 + static_cast<int>(chunk)) % size;
    for (int rank = 0; rank < size; ++rank) {
      if (rank != root) tree.source[static_cast<size_t>(rank)] = rank == relay ? root : relay;
    }
  };
  return trees;
}

}  // namespace

void ChunkTree::reset(int size, int new_owner) {
  owner = new_owner;
  parent.assign(static_cast<size_t>(size), kNotInTree);
  source.assign(static_cast<size_t>(size), kNotInTree);
  parent[static_cast<size_t>(owner)] = source[static_cast<size_t>(owner)] = kTreeRoot;
}

uint32_t owner_count(const PlanRequest& request) {
  const size_t parts = part_count(request.collective, request.size);
  if (parts > 1) return static_cast<uint32_t>(parts);
  return has_root(request.collective) ? 1 : static_cast<uint32_t>(request.size);
}

int owner_of(const PlanRequest& request, uint32_t index) {
  const int owner = part_rule(request.collective, request.size, request.root, index).owner;
  return owner == kAnyRank ? static_cast<int>(index) : owner;
}

PlanTrees equal_trees(const PlanRequest& request, uint32_t splits) {
  PlanTrees trees;
  trees.splits = splits;
  trees.weights.assign(size_t{owner_count(request)} * splits, 1);
  return trees;
}

// Every contribution goes straight to the chunk's owner, and the sum straight to everybody.
Result<PlanTrees> direct_trees(const PlanRequest& request) {
  const bool scatters = request.collective == Collective::kBroadcast && request.size > 2 &&
                        request.count > kStarCountMax;
  if (scatters) return scatter_broadcast(request);
  PlanTrees trees = equal_trees(request, 1);
  trees.fill = [request](uint32_t chunk, ChunkTree& tree) {
    tree.reset(request.size, owner_of(request, chunk));
    for (int rank = 0; rank < request.size; ++rank) {
      if (rank != tree.owner) tree.parent[static_cast<size_t>(rank)] = tree.owner;
    }
    const PartRule rule = part_rule(request.collective, request.size, request.root, chunk);
    hand_out_directly(rule.receiver, tree);
  };
  return trees;
}

Result<PlanTrees> make_trees(const PlanRequest& request) {
  switch (request.kind) {
    case PlanKind::kTwoStep:
      return direct_trees(request);
    case PlanKind::kRing:
    case PlanKind::kBidirectionalRing:
      return cycle_trees(request);
    case PlanKind::kHalvingDoubling:
      return binomial_trees(request);
    case PlanKind::kTorus:
      return torus_trees(request);
    case PlanKind::kTree:
    case PlanKind::kHierarchical:
      return host_trees(request);
    case PlanKind::kAuto:
    case PlanKind::kOneShot:
      break;
  }
  return invalid_argument("plan " + std::string(plan_kind_name(request.kind)) + " has no trees");
}

}  // namespace tersum
