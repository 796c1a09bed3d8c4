// The ranks of a tree in the order from its root outwards.
//
// Thread safety: none needed; reuse one object for many trees. Invariant: a rank comes after its
// parent.
#pragma once

#include <cstddef>
#include <vector>

namespace tersum {

class TreeOrder {
 public:
  // `parent` as in ChunkTree.
  void measure(const std::vector<int>& parent);
  [[nodiscard]] const std::vector<int>& outwards() const { return outwards_; }
  // Edges between a rank of the tree and the root.
  [[nodiscard]] int depth(int rank) const { return depth_[static_cast<size_t>(rank)]; }

 private:
  std::vector<int> depth_;
  std::vector<int> outwards_;
  std::vector<int> way_;
  std::vector<int> first_;
};

}  // namespace tersum
