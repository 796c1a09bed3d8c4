// Whether trees add ranks up two by two, in their order: neighbours first, then pairs of
// neighbours, and so on, whoever does it.
//
// That is so where every partial sum holds a *block*: the contributions of 2^k ranks from a
// multiple of 2^k on. What a rank adds up, its own included, are then blocks side by side, which
// tell by their sizes alone how they pair.
//
// Thread safety: none needed; reuse one object for many trees.
#pragma once

#include <cstdint>
#include <vector>

#include "plan/plan_trees.h"
#include "plan/tree_order.h"

namespace tersum {

class RankBlocks {
 public:
  // Of the tree by which contributions come to its owner.
  void measure(const ChunkTree& tree);
  // Contributions in what `rank` sends on.
  [[nodiscard]] uint32_t held(int rank) const { return held_[static_cast<size_t>(rank)]; }
  // Whether what each rank holds is a block.
  [[nodiscard]] bool pair_up() const { return pair_up_; }

 private:
  TreeOrder order_;
  std::vector<uint32_t> held_;
  std::vector<int> first_;  // of the ranks whose contributions one holds
  std::vector<int> last_;
  bool pair_up_ = false;
};

// Whether a reduction by the plan, of trees and right but perhaps for its topology, does.
bool adds_in_pairs(const PlanRequest& request);

}  // namespace tersum
