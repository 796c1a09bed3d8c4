#include "plan/rank_blocks.h"

#include <algorithm>
#include <bit>
#include <numeric>

namespace tersum {
namespace {

size_t at(int index) { return static_cast<size_t>(index); }

bool is_block(int first, int last, uint32_t ranks) {
  return static_cast<uint32_t>(last - first) + 1 == ranks && std::has_single_bit(ranks) &&
         static_cast<uint32_t>(first) % ranks == 0;
}

}  // namespace

void RankBlocks::measure(const ChunkTree& tree) {
  order_.measure(tree.parent);
  held_.assign(tree.parent.size(), 1);
  first_.resize(tree.parent.size());
  std::iota(first_.begin(), first_.end(), 0);
  last_ = first_;
  pair_up_ = true;
  for (size_t i = order_.outwards().size(); i-- > 0;) {
    const int rank = order_.outwards()[i];
    pair_up_ = pair_up_ && is_block(first_[at(rank)], last_[at(rank)], held(rank));
    const int parent = tree.parent[at(rank)];
    if (parent < 0) continue;
    held_[at(parent)] += held(rank);
    first_[at(parent)] = std::min(first_[at(parent)], first_[at(rank)]);
    last_[at(parent)] = std::max(last_[at(parent)], last_[at(rank)]);
  }
}

bool adds_in_pairs(const PlanRequest& request) {
  Result<PlanTrees> trees = make_trees(request);
  if (!trees.ok()) return false;
  ChunkTree tree;
  RankBlocks blocks;
  for (uint32_t chunk = 0; chunk < trees->weights.size(); ++chunk) {
    trees->fill(chunk, tree);
    blocks.measure(tree);
    if (!blocks.pair_up()) return false;
  }
  return true;
}

}  // namespace tersum
