// CompiledPlan: one rank's part of a plan, cut into flows and slices, ready to run.
//
// A *flow* is the messages of one chunk in one phase between two ranks: slices 0, 1, 2, … in order.
// Flow control is per flow, and flows of one chunk form a tree, so a full window can only wait for
// messages nearer to the tree's end: no cycle, no deadlock.
//
// Thread safety: immutable once made. Invariant: geometry (slice length, window) depends only on
// what all ranks agree on.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "codec/codec.h"
#include "plan/plan.h"
#include "tersum/status.h"
#include "wire/message.h"

namespace tersum {

struct InFlow {
  uint16_t peer = 0;
  FlowPhase phase = FlowPhase::kReduce;
  uint32_t role = 0;  // index into CompiledPlan::roles
};

struct OutFlow {
  uint16_t peer = 0;
  FlowPhase phase = FlowPhase::kReduce;
  uint32_t role = 0;
};

// A run of indices into in_flows or out_flows.
struct FlowRange {
  uint32_t first = 0;
  uint32_t count = 0;
};

// What this rank does with one chunk.
struct ChunkRole {
  uint32_t chunk = 0;
  ChunkRange range;         // in the whole array
  size_t input_begin = 0;   // where the chunk begins in this rank's input, if it is there
  size_t output_begin = 0;  // and in its output, if this rank keeps it
  bool keeps = true;        // this rank ends with the chunk
  uint32_t slices = 0;
  // Reduce side: contributions to add (rank order), own one among them; then exactly one of
  // partials (send on) and finishes (own the value); none for ranks that only store.
  FlowRange adds;
  uint32_t own_index = 0;
  FlowRange partials;
  bool produces = false;  // has a reduce side at all
  bool finishes = false;
  FlowRange finals;
  // Gather side.
  FlowRange store;  // 0 or 1 flow
  FlowRange forwards;
};

// One side of a role that has slices to move.
struct SliceJob {
  uint32_t role = 0;
  bool stores = false;  // the gather side; else the reduce side
};

// What short slices cost is CPU time per message; what they gain is that the wire starts sooner.
// Where there is no wire only the former counts: on loopback two ranks reduce 64 KiB in 27 us with
// slices of 32 KiB, in 47 with 8 KiB; in shared memory 1 MiB in 104 us with 64 KiB, 134 with 32.
inline constexpr size_t kLeastSliceBytesOnWires = 8 * 1024;
inline constexpr size_t kSliceBytesInMemory = 64 * 1024;
// With its header, 64 KiB would be more than one segment of a loopback connection (65,483 bytes):
// four ranks there reduce 1 MiB of int8 in 0.7 ms with slices of 63 KiB, in 0.9 with 64.
inline constexpr size_t kSliceBytesOverTcp = 63 * 1024;
// Two ranks of one host have a core each, which reads more of one array at once the faster. Zen 4,
// int8 over loopback, 16 and 64 MiB: 2.4 and 11.5 ms with slices of 63 KiB, 2.2 and 10.0 with
// these, 11.5 with twice as much, which no longer fits L2; exact 16 MiB 4.3 and 3.8 ms, in shared
// memory 1.9 and 1.7. More ranks share cores, and gain nothing. No more values than those of int8,
// so that links are served as often with fewer bits.
inline constexpr size_t kSliceBytesOfPair = 4 * kSliceBytesOverTcp;
inline constexpr size_t kSliceValuesOfPair = kSliceBytesOfPair;
// On wires a rank must not code for long without serving its links. Two ranks, 64 MiB of int4 at
// 5 Gbit/s: 1.03 times the wire's time with this, 1.13 with slices of 64 KiB, twice as many values.
// No more than a section of +sparse, which would leave a short one with a budget of its own.
inline constexpr size_t kSliceValuesOnWires = 63 * 1024;

// Ranks of one host keep in flight what a cache holds of all of them together: those that share a
// core take turns, and each fills its window before it gives way. Four and eight ranks on two cores
// and 32 MiB of cache reduce 16 MiB in shared memory in 4.7 and 12 ms with 1.5 MiB each, in 6.1 and
// 17 with 8 MiB; four over loopback in 12.5 and 14.6. A second slice of each flow must have room
// beside the first. Two ranks take as long with either.
inline constexpr size_t kWindowBytesWithinHost = 1536 * 1024;
inline constexpr size_t kWindowBytesOfRank = 192 * 1024;  // 4 slices of 48 KiB

// Where more ranks share cores than reach each other's arrays, exact values go by messages, and
// fewer of them are better, as long as the last cache holds several times what all have in flight:
// eight ranks on two cores and 260 MiB of cache reduce 16 MiB in 0.95 to 0.98 of the time. Codecs
// whose slices hold more values lose a tenth.
inline constexpr size_t kSliceBytesOfCrowd = 128 * 1024;
inline constexpr size_t kWindowBytesOfCrowd = 4 * 1024 * 1024;
inline constexpr size_t kCrowdCacheShare = 8;

struct SliceLimits {
  size_t slice_bytes = kSliceBytesOverTcp;
  size_t window_bytes = 8 * 1024 * 1024;
  // Short chunks are not cut into slices below this.
  size_t least_slice_bytes = kLeastSliceBytesOnWires;
  size_t slice_values = kSliceValuesOnWires;
  // Slices above this are whole multiples of it; 0: of anything.
  size_t segment_bytes = 0;
  // Of an all_reduce of values that travel as they are, by two_step, in place of the first two; 0:
  // the same.
  size_t plain_slice_bytes = 0;
  size_t plain_window_bytes = 0;

  bool operator==(const SliceLimits&) const = default;
};

struct CompiledPlan {
  PlanRequest request;
  const Codec* asked = nullptr;  // what the plan was compiled for
  const Codec* codec = nullptr;  // what travels towards a sum: `asked`, but with shared scales
  // Of finished sums on their way to everybody: `codec` for as many contributions as they hold.
  const Codec* gathered = nullptr;
  uint32_t gathered_ranks = 1;
  // Of 16-bit values with +flatten: the same two for float32, which tell what payloads hold before
  // it is rounded; else null.
  const Codec* wide = nullptr;
  const Codec* wide_gathered = nullptr;
  SliceLimits limits;  // and under which
  bool replicated = false;
  size_t slice_values = 1;
  uint32_t window = 2;  // slices of one flow that may be under way
  std::vector<ChunkRole> roles;
  // For plans in which values pass through ranks on their way: all sides of all roles in the order
  // of the plan's steps. Served in this order, what has the longest way to go leaves first, and no
  // wire runs dry before the end. Empty for plans without such ranks, where what has come the
  // furthest is served first, because it is still in the cache.
  std::vector<SliceJob> jobs;
  std::vector<InFlow> in_flows;
  // Of a codec that takes pairs, how many contributions each of them brings; empty: one.
  std::vector<uint16_t> held;
  std::vector<OutFlow> out_flows;
  // (flow key, flow index), sorted: finds the flow that a message's header names.
  std::vector<std::pair<uint64_t, uint32_t>> in_lookup;
  std::vector<std::pair<uint64_t, uint32_t>> out_lookup;

  [[nodiscard]] const Codec& codec_of(FlowPhase phase) const {
    return phase == FlowPhase::kGather ? *gathered : *codec;
  }
  [[nodiscard]] size_t slice_begin(const ChunkRole& role, uint32_t slice) const {
    return role.range.begin + slice * slice_values;
  }
  [[nodiscard]] size_t slice_count(const ChunkRole& role, uint32_t slice) const {
    const size_t begin = slice_begin(role, slice);
    return begin + slice_values <= role.range.end ? slice_values : role.range.end - begin;
  }
};

// Index of the flow with that peer, or -1 when the plan has none: a peer's claim is only compared.
int find_flow(const std::vector<std::pair<uint64_t, uint32_t>>& lookup, uint32_t chunk,
              FlowPhase phase, int peer);

// Of a plan that the codec takes (plan_needed.h).
Result<std::shared_ptr<const CompiledPlan>> compile_plan(const PlanRequest& request,
                                                         const Codec& codec, int rank,
                                                         const SliceLimits& limits);

}  // namespace tersum
