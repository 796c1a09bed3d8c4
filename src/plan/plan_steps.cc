#include "plan/plan_steps.h"

#include <algorithm>
#include <utility>

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

void StepBuilder::measure_heights(const std::vector<int>& parent) {
  order_.measure(parent);
  height_.assign(at(size_), 0);
  for (size_t i = order_.outwards().size(); i-- > 1;) {
    const int rank = order_.outwards()[i];
    int& above = height_[at(parent[at(rank)])];
    above = std::max(above, height_[at(rank)] + 1);
  }
}

void StepBuilder::add_reduce(uint32_t chunk, const ChunkTree& tree) {
  measure_heights(tree.parent);
  for (int rank = 0; rank < size_; ++rank) {
    const int parent = tree.parent[at(rank)];
    if (parent < 0) continue;
    const auto when = 2 * static_cast<uint64_t>(height_[at(rank)]);
    push(rank, when, hops(rank, parent) << 32 | chunk_turn(rank, chunk),
         {StepKind::kSendPartial, parent, chunk});
    // All adds of a chunk stand together, in rank order.
    const auto added = 2 * static_cast<uint64_t>(height_[at(parent)]) - 1;
    push(parent, added, chunk_turn(parent, chunk) << 32 | static_cast<uint32_t>(rank),
         {StepKind::kReceiveAdd, rank, chunk});
    ++incoming_[at(parent)];
  }
}

void StepBuilder::add_gather(uint32_t chunk, const ChunkTree& tree) {
  measure_heights(tree.source);
  for (const int rank : order_.outwards()) {
    const int source = tree.source[at(rank)];
    if (source < 0) continue;
    const auto sent = 2 * static_cast<uint64_t>(order_.depth(source));
    const auto lower = static_cast<uint64_t>(size_ - height_[at(rank)]);
    const uint64_t turn = lower << 48 | hops(source, rank) << 32;
    const StepKind kind = source == tree.owner ? StepKind::kSendFinal : StepKind::kForward;
    push(source, kGatherPhase + sent, turn | chunk_turn(source, chunk), {kind, rank, chunk});
    push(rank, kGatherPhase + sent + 1, turn | chunk_turn(rank, chunk),
         {StepKind::kReceiveStore, source, chunk});
    ++incoming_[at(rank)];
  }
}

void StepBuilder::add(uint32_t chunk, const ChunkTree& tree) {
  uint64_t finished = 0;
  if (reduces(collective_)) {
    add_reduce(chunk, tree);
    finished = 2 * static_cast<uint64_t>(height_[at(tree.owner)]);
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
