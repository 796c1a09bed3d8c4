#include "plan/binomial_trees.h"

#include "plan/plan_trees.h"

namespace tersum {

// Every chunk has a binomial tree from its owner. With a power of two ranks exchange in pairs in
// each step: first half of the array with the rank at distance 1, then a quarter at 2, …, and back,
// so that the most goes to the neighbour, who often shares the host. Other sizes rotate the tree
// instead. Either way a rank sends each chunk once, which is as few bytes as there can be, and in
// ceil(log2 n) steps.
Result<PlanTrees> binomial_trees(const PlanRequest& request) {
  PlanTrees trees = equal_trees(request, 1);
  trees.fill = [request](uint32_t chunk, ChunkTree& tree) {
    const int owner = owner_of(request, chunk);
    tree.reset(request.size, owner);
    for (int rank = 0; rank < request.size; ++rank) {
      if (rank == owner) continue;
      tree.parent[static_cast<size_t>(rank)] = binomial_parent(rank, owner, request.size);
    }
    tree.hand_out_by_the_same_way();
  };
  return trees;
}

}  // namespace tersum
