// Trees to steps: every rank's list, in causal order.
//
// Each step gets a time. A partial sum leaves a rank when the longest chain of partial sums below
// it has come in, and arrives half a step later; a final value leaves a rank as many steps after
// the last sum as the rank is away from the owner. Lists sorted by time are causal: what a step
// waits for has an earlier time, on whichever rank. At one time, what has the longest way to go
// leaves first, and ranks serve their successors in turn, so that n senders aim at n different
// receivers.
//
// Thread safety: none needed. Invariant: for a given chunk, a rank's steps obey plan.h's grammar.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "plan/plan.h"
#include "plan/plan_trees.h"
#include "plan/tree_order.h"

namespace tersum {

class StepBuilder {
 public:
  // `only_rank` as in PlanRequest.
  StepBuilder(Collective collective, int size, size_t chunk_count, int only_rank);

  void add(uint32_t chunk, const ChunkTree& tree);
  std::vector<std::vector<Step>> take();
  // The most messages flows that any rank receives: one per chunk, phase and sender.
  [[nodiscard]] size_t incoming_flows_max() const;

 private:
  struct TimedStep {
    uint64_t when = 0;  // phase and time
    uint64_t turn = 0;  // among the steps of that time
    Step step;
  };

  void add_reduce(uint32_t chunk, const ChunkTree& tree);
  void add_gather(uint32_t chunk, const ChunkTree& tree);
  // Of each rank of a tree, the longest way from it to a leaf.
  void measure_heights(const std::vector<int>& parent);
  void push(int rank, uint64_t when, uint64_t turn, const Step& step);
  [[nodiscard]] uint64_t hops(int from, int to) const {
    return static_cast<uint64_t>((to - from + size_) % size_);
  }
  // Position of the chunk, counted from the rank's own place in the array.
  [[nodiscard]] uint64_t chunk_turn(int rank, uint32_t chunk) const;

  const Collective collective_;
  const int size_;
  const size_t chunk_count_;
  const int only_rank_;
  std::vector<std::vector<TimedStep>> lists_;
  std::vector<size_t> incoming_;
  std::vector<int> height_;
  TreeOrder order_;
};

}  // namespace tersum
