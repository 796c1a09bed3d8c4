// PlanRun: one compiled plan in progress over arrays, slice by slice.
//
// What a call works on, and where it stands; Operation moves the slices. A sum whose ranks share
// scales has two of them, of which that of the scales is ahead.
//
// Thread safety: belongs to the holder of the progress role. Invariant: slices of a role are taken
// in order on either side, and what arrives lies in its window of `inbox` until it is consumed.
// Pooled: no allocation after the first call of a size.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "runtime/compiled_plan.h"
#include "tersum/options.h"
#include "transport/link.h"

namespace tersum {

// A piece of an array that lies in memory by itself, in input and output alike: whole blocks of the
// call's codec.
struct ArrayPart {
  const std::byte* input = nullptr;
  std::byte* output = nullptr;
  size_t begin = 0;  // its first value, as a number in the array
  size_t end = 0;
};

// A piece of one slice: `count` values from number `first` of it on.
struct SlicePart {
  const std::byte* input = nullptr;
  std::byte* output = nullptr;
  size_t first = 0;
  size_t count = 0;
};

// The arrays that a plan works on: the caller's, or those of the scales.
struct PlanArrays {
  const void* input = nullptr;
  void* output = nullptr;
  size_t count = 0;
  DataType type = DataType::kFloat32;
  ReduceOp op = ReduceOp::kSum;
  // Not empty: where input and output lie, all of it in order, instead of the above. Borrowed.
  std::span<const ArrayPart> parts = {};
};

struct InState {
  uint32_t consumed = 0;
  uint32_t credited = 0;
  uint32_t arrived = 0;
};

struct OutState {
  uint32_t sent = 0;
  uint32_t granted = 0;
};

struct RoleState {
  uint32_t produced = 0;  // slices through the reduce side
  uint32_t encoded = 0;   // replicated plans: slices sent, not yet combined
  uint32_t stored = 0;    // slices through the gather side
  bool complete = false;
};

class PlanRun {
 public:
  explicit PlanRun(bool of_scales) : of_scales(of_scales) {}

  // No plan, nothing to do.
  void clear();
  // From the start, by `plan` and over `arrays`.
  void restart();
  // Gives back what arrived and what was kept.
  void release();

  // Marks a role that has moved all its slices.
  void refresh_role(uint32_t role_index);
  // Every role of this rank has moved all its slices.
  [[nodiscard]] bool complete() const { return open_roles_ == 0; }
  // Values begin..end of the output are what they will be.
  [[nodiscard]] bool holds(size_t begin, size_t end) const;

  // The pieces in which a slice lies, in order, in place of what `pieces` held. Without an input
  // where this rank contributes nothing, without an output where it keeps nothing.
  void list_parts(const ChunkRole& role, uint32_t slice, std::vector<SlicePart>& pieces) const;
  // Every flow of `range` has brought it.
  [[nodiscard]] bool have_slice(const FlowRange& range, uint32_t slice) const;
  // What is stored does better not to take the cache's room.
  [[nodiscard]] bool past_cache() const;

  [[nodiscard]] InMessage& inbox(uint32_t in_flow, uint32_t slice) {
    return inbox_[inbox_index(in_flow, slice)];
  }
  [[nodiscard]] const InMessage& inbox(uint32_t in_flow, uint32_t slice) const {
    return inbox_[inbox_index(in_flow, slice)];
  }
  // Replicated plans: own encoded slices.
  [[nodiscard]] SlotRef& own_wire(uint32_t slice) { return own_wires_[slice % plan->window]; }

  // Whether anything is still to come from `rank`, or to go to it.
  [[nodiscard]] bool needs(int rank) const;

  const bool of_scales;
  std::shared_ptr<const CompiledPlan> plan;
  PlanArrays arrays;
  // Of a sum, how many ranks work on it on this host, this one among them.
  size_t ranks_of_host = 1;
  size_t cache_bytes = 0;  // of a sum, as Member::cache_bytes
  std::vector<InState> in;
  std::vector<OutState> out;
  std::vector<RoleState> roles;
  uint32_t leaf_cursor = 0;

 private:
  [[nodiscard]] uint32_t first_leaf() const;
  [[nodiscard]] size_t inbox_index(uint32_t in_flow, uint32_t slice) const {
    return static_cast<size_t>(in_flow) * plan->window + slice % plan->window;
  }

  std::vector<InMessage> inbox_;  // in_flows * window
  size_t places_used_ = 0;        // of it, since release()
  std::vector<SlotRef> own_wires_;
  size_t own_wires_used_ = 0;
  uint32_t open_roles_ = 0;
};

}  // namespace tersum
