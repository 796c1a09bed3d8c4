#include "plan/tree_order.h"

#include <algorithm>

#include "base/check.h"
#include "plan/plan_trees.h"

namespace tersum {
namespace {

size_t at(int index) { return static_cast<size_t>(index); }

}  // namespace

// Depths are found by walking up until a rank whose depth is known, then counting back down; ranks
// are then dealt out by depth.
void TreeOrder::measure(const std::vector<int>& parent) {
  const auto size = static_cast<int>(parent.size());
  depth_.assign(parent.size(), -1);
  int deepest = 0;
  int members = 0;
  for (int rank = 0; rank < size; ++rank) {
    if (parent[at(rank)] == kNotInTree) continue;
    ++members;
    way_.clear();
    for (int up = rank; up >= 0 && depth_[at(up)] < 0; up = parent[at(up)]) {
      TERSUM_CHECK(static_cast<int>(way_.size()) < size);  // else the tree is none
      way_.push_back(up);
    }
    for (; !way_.empty(); way_.pop_back()) {
      const int up = parent[at(way_.back())];
      depth_[at(way_.back())] = up < 0 ? 0 : depth_[at(up)] + 1;
    }
    deepest = std::max(deepest, depth_[at(rank)]);
  }
  first_.assign(at(deepest) + 2, 0);
  for (const int depth : depth_) first_[at(depth + 1)] += depth >= 0 ? 1 : 0;
  for (size_t i = 1; i < first_.size(); ++i) first_[i] += first_[i - 1];
  outwards_.resize(at(members));
  for (int rank = 0; rank < size; ++rank) {
    if (depth_[at(rank)] >= 0) outwards_[at(first_[at(depth_[at(rank)])]++)] = rank;
  }
}

}  // namespace tersum
