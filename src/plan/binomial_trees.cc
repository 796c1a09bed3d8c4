#include "plan/binomial_trees.h"

#include <bit>

#include "plan/plan_trees.h"

namespace tersum {

// Every chunk has a binomial tree from its owner. With a power of two they are related by exclusive
// or, so that in each step ranks exchange in pairs: first half of the array with the rank at
// distance n/2, then a quarter at n/4, …, and back. Other sizes rotate the tree instead. Either way
// a rank sends each chunk once, which is as few bytes as there can be, and in ceil(log2 n) steps.
Result<PlanTrees> binomial_trees(const PlanRequest& request) {
  PlanTrees trees = equal_trees(request, 1);
  const bool in_pairs = std::has_single_bit(static_cast<uint32_t>(request.size));
  trees.fill = [in_pairs, request](uint32_t chunk, ChunkTree& tree) {
    const int size = request.size;
    const int owner = owner_of(request, chunk);
    tree.reset(size, owner);
    for (int index = 1; index < size; ++index) {
      const int above = binomial_parent(index);
      const int rank = in_pairs ? index ^ owner : (index + owner) % size;
      tree.parent[static_cast<size_t>(rank)] = in_pairs ? above ^ owner : (above + owner) % size;
    }
    tree.hand_out_by_the_same_way();
  };
  return trees;
}

}  // namespace tersum
