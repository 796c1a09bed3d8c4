#include "plan/plan_steps.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "plan/collective_rules.h"

namespace tersum {
namespace {

size_t at(int index) { return static_cast<size_t>(index); }

constexpr uint64_t kGatherPhase = uint64_t{1} << 32;

}  // namespace

StepBuilder::StepBuilder(Collective collective, int size, size_t chunk_count, int only_rank)
    : collective_(collective),
      size_(size),
      chunk_count_(chunk_count),
      only_rank_(only_rank),
      lists_(at(size)),
      incoming_(at(size), 0) {}

void StepBuilder::push(int rank, uint64_t when, uint64_t turn, const Step& step) {
  if (only_rank_ >= 0 && rank != only_rank_) return;
  lists_[at(rank)].push_back({when, turn, step});
}

uint64_t StepBuilder::chunk_turn(int rank, uint32_t chunk) const {
  const size_t own = chunk_count_ * at(rank) / at(size_);
  return (chunk + chunk_count_ - own) % chunk_count_;
}

// Depths are found by walking up until a rank whose depth is known, then counting back down.
void StepBuilder::measure(const std::vector<int>& parent) {
  depth_.assign(at(size_), -1);
  std::vector<int> way;
  int deepest = 0;
  int members = 0;
  for (int rank = 0; rank < size_; ++rank) {
    if (parent[at(rank)] == kNotInTree) continue;
    ++members;
    way.clear();
    for (int up = rank; up >= 0 && depth_[at(up)] < 0; up = parent[at(up)]) {
      TERSUM_CHECK(static_cast<int>(way.size()) < size_);  // else the tree is none
      way.push_back(up);
    }
    for (; !way.empty(); way.pop_back()) {
      const int up = parent[at(way.back())];
      depth_[at(way.back())] = up < 0 ? 0 : depth_[at(up)] + 1;
    }
    deepest = std::max(deepest, depth_[at(rank)]);
  }
  std::vector<int> first(at(deepest) + 2, 0);
  for (const int depth : depth_) first[at(depth + 1)] += depth >= 0 ? 1 : 0;
  for (size_t i = 1; i < first.size(); ++i) first[i] += first[i - 1];
  outwards_.resize(at(members));
  for (int rank = 0; rank < size_; ++rank) {
    if (depth_[at(rank)] >= 0) outwards_[at(first[at(depth_[at(rank)])]++)] = rank;
  }
}

void StepBuilder::add_reduce(uint32_t chunk, const ChunkTree& tree) {
  measure(tree.parent);
  height_.assign(at(size_), 0);
  for (size_t i = outwards_.size(); i-- > 1;) {
    const int rank = outwards_[i];
    int& above = height_[at(tree.parent[at(rank)])];
    above = std::max(above, height_[at(rank)] + 1);
  }
  for (int rank = 0; rank < size_; ++rank) {
    const int parent = tree.parent[at(rank)];
    if (parent < 0) continue;
    const auto when = static_cast<uint64_t>(2 * height_[at(rank)]);
    push(rank, when, hops(rank, parent) << 32 | chunk_turn(rank, chunk),
         {StepKind::kSendPartial, parent, chunk});
    // All adds of a chunk stand together, in rank order.
    const auto added = static_cast<uint64_t>(2 * height_[at(parent)] - 1);
    push(parent, added, chunk_turn(parent, chunk) << 32 | static_cast<uint32_t>(rank),
         {StepKind::kReceiveAdd, rank, chunk});
    ++incoming_[at(parent)];
  }
}

void StepBuilder::add_gather(uint32_t chunk, const ChunkTree& tree) {
  measure(tree.source);
  for (const int rank : outwards_) {
    const int source = tree.source[at(rank)];
    if (source < 0) continue;
    const auto sent = static_cast<uint64_t>(2 * depth_[at(source)]);
    const StepKind kind = source == tree.owner ? StepKind::kSendFinal : StepKind::kForward;
    push(source, kGatherPhase + sent, hops(source, rank) << 32 | chunk_turn(source, chunk),
         {kind, rank, chunk});
    push(rank, kGatherPhase + sent + 1, hops(source, rank) << 32 | chunk_turn(rank, chunk),
         {StepKind::kReceiveStore, source, chunk});
    ++incoming_[at(rank)];
  }
}

void StepBuilder::add(uint32_t chunk, const ChunkTree& tree) {
  uint64_t finished = 0;
  if (reduces(collective_)) {
    add_reduce(chunk, tree);
    finished = static_cast<uint64_t>(2 * height_[at(tree.owner)]);
  }
  push(tree.owner, finished, chunk_turn(tree.owner, chunk), {StepKind::kFinish, -1, chunk});
  if (collective_ != Collective::kReduceScatter) add_gather(chunk, tree);
}

std::vector<std::vector<Step>> StepBuilder::take() {
  std::vector<std::vector<Step>> steps(lists_.size());
  for (size_t rank = 0; rank < lists_.size(); ++rank) {
    std::vector<TimedStep> list = std::move(lists_[rank]);
    std::sort(list.begin(), list.end(), [](const TimedStep& a, const TimedStep& b) {
      return std::pair(a.when, a.turn) < std::pair(b.when, b.turn);
    });
    steps[rank].reserve(list.size());
    for (const TimedStep& timed : list) steps[rank].push_back(timed.step);
  }
  return steps;
}

size_t StepBuilder::incoming_flows_max() const {
  return *std::max_element(incoming_.begin(), incoming_.end());
}

}  // namespace tersum
