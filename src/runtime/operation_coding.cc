// The part of Operation that moves values: slices through encode, combine and decode, piece by
// piece where they lie in several.
#include "base/copy_bytes.h"
#include "codec/decode_past_cache.h"
#include "codec/shared_sums.h"
#include "runtime/member.h"
#include "runtime/node.h"
#include "runtime/operation.h"

namespace tersum {
namespace {

// Fetching the few lines of less takes no longer than waiting for streamed ones.
constexpr size_t kStreamedBytesMin = 2048;

}  // namespace

// A payload is written once for all that read it: as suits the farthest.
bool Operation::streams(const PlanRun& run, const FlowRange& range, size_t bytes) const {
  if (bytes < kStreamedBytesMin) return false;
  for (uint32_t i = 0; i < range.count; ++i) {
    if (Node::far(*member_, run.plan->out_flows[range.first + i].peer)) return true;
  }
  return false;
}

bool Operation::keeps(const PlanRun& run, const ChunkRole& role) {
  return role.keeps && run.arrays.output != nullptr;
}

SlicePlace Operation::place_of(const PlanRun& run, const ChunkRole& role, uint32_t slice) const {
  if (run.of_scales) return {};
  // The state changes only with this call's end.
  const ChannelFactors* const factors = site_ == nullptr ? nullptr : site_->state.factors();
  const size_t first = run.plan->slice_begin(role, slice);
  const uint16_t* const scales = sums_ == nullptr ? nullptr : scales_.data() + scale_index(first);
  const uint32_t divisor = run.arrays.op == ReduceOp::kAverage ? ranks() : 1;
  const ClipFactors* const clips = clip_ == nullptr ? nullptr : &clips_;
  SlicePlace place{first,          factors, request_.rounding, owed_,
                   request_.added, scales,  divisor,           clips};
  if (!run.plan->held.empty()) place.held = run.plan->held.data() + role.adds.first;
  return place;
}

// Lists in lent_ where a slice's payload lies in the caller's arrays, so that the carriers may read
// it there and nothing needs to be written for them; leaves it empty where it must be coded.
void Operation::lend_payload(const PlanRun& run, const ChunkRole& role, const FlowRange& outs,
                             uint32_t slice, size_t bytes) {
  const Codec& codec = *run.plan->codec;
  if (!codec.wire_is_values() || run.of_scales || bytes < kInPlaceBytesMin) return;
  for (uint32_t i = 0; i < outs.count; ++i) {
    if (!Node::borrows(*member_, run.plan->out_flows[outs.first + i].peer)) return;
  }
  const bool is_own = role.adds.count == 0 && !role.finishes;
  if (is_own && request_.added.is_any()) return;
  // What is written past the caches would have to be fetched again. In place nothing is: its lines
  // have been read.
  const bool leaves_cache = run.past_cache() && run.arrays.input != run.arrays.output;
  if (!is_own && (leaves_cache || !role.finishes || !keeps(run, role))) return;
  run.list_parts(role, slice, parts_);
  if (parts_.size() > kPayloadPiecesMax) return;
  for (const SlicePart& part : parts_) {
    lent_.emplace_back(is_own ? part.input : part.output, codec.wire_bytes(part.count));
  }
}

// This rank's contribution to a slice, as the payload of a message to `outs`.
void Operation::encode(const PlanRun& run, const ChunkRole& role, const FlowRange& outs,
                       uint32_t slice, std::span<std::byte> payload) {
  const Codec& codec = *run.plan->codec;
  const SlicePlace place = place_of(run, role, slice);
  const bool past_caches = streams(run, outs, payload.size());
  const size_t count = run.plan->slice_count(role, slice);
  run.list_parts(role, slice, parts_);
  const bool whole = parts_.size() == 1;
  if (whole && past_caches) {
    streamed_.encode(codec, parts_.front().input, count, payload, place);
  } else if (whole) {
    codec.encode(parts_.front().input, count, payload.data(), place);
  } else {
    std::byte* const wire = past_caches ? streamed_.room(payload.size()) : payload.data();
    for (const SlicePart& part : parts_) {
      codec.encode_part(part.input, {count, part.first, part.count}, wire, place);
    }
    if (past_caches) streamed_.write(payload);
  }
  if (past_caches) bytes_streamed_ += payload.size();
}

// What has arrived of a slice and this rank's contribution: to the output where that is finished,
// and to the payload of a message to `outs`, which is empty if there is none.
void Operation::add_up(PlanRun& run, const ChunkRole& role, const FlowRange& outs, uint32_t slice,
                       std::span<std::byte> payload) {
  wires_.clear();
  for (uint32_t i = 0; i < role.adds.count; ++i) {
    wires_.push_back(run.inbox(role.adds.first + i, slice).payload.data());
  }
  const bool divides = role.finishes && run.arrays.op == ReduceOp::kAverage;
  const CombineFinish end{run.arrays.op, divides ? ranks() : 1,
                          role.finishes ? run.plan->gathered_ranks : 1U};
  const bool past_caches = streams(run, outs, payload.size());
  std::byte* const wire = past_caches ? streamed_.room(payload.size()) : payload.data();
  combine(run, role, slice, {true, role.own_index, role.finishes}, end, wire);
  if (role.finishes && wire != nullptr) {
    read_gathered(run, wire, run.plan->slice_count(role, slice), place_of(run, role, slice));
  }
  if (!past_caches) return;
  streamed_.write(payload);
  bytes_streamed_ += payload.size();
}

// Of what wires_ points to.
void Operation::combine(const PlanRun& run, const ChunkRole& role, uint32_t slice,
                        const CombineSides& sides, const CombineFinish& finish,
                        std::byte* wire_out) {
  const Codec& codec = *run.plan->codec;
  const SlicePlace place = place_of(run, role, slice);
  const size_t count = run.plan->slice_count(role, slice);
  run.list_parts(role, slice, parts_);
  for (const SlicePart& part : parts_) {
    const std::byte* const own = sides.reads_own ? part.input : nullptr;
    std::byte* const values_out = sides.stores ? part.output : nullptr;
    if (part.count < count) {  // of arrays that are far too small to be stored past the cache
      codec.combine_part(wires_, own, sides.own_index, {count, part.first, part.count}, finish,
                         wire_out, values_out, place);
    } else if (run.past_cache()) {
      combine_past_cache(codec, wires_, own, sides.own_index, count, finish, wire_out, values_out,
                         place, decoded_);
    } else {
      codec.combine(wires_, own, sides.own_index, count, finish, wire_out, values_out, place);
    }
  }
}

// A slice of the results, to the output.
void Operation::decode(const PlanRun& run, const ChunkRole& role, uint32_t slice,
                       const std::byte* wire) {
  const Codec& codec = run.plan->codec_of(FlowPhase::kGather);
  const SlicePlace place = place_of(run, role, slice);
  const size_t count = run.plan->slice_count(role, slice);
  run.list_parts(role, slice, parts_);
  for (const SlicePart& part : parts_) {
    if (part.count < count) {
      codec.decode_part(wire, {count, part.first, part.count}, part.output, place);
    } else if (run.past_cache()) {
      decode_past_cache(codec, wire, count, part.output, place, decoded_);
    } else {
      codec.decode(wire, count, part.output, place);
    }
  }
}

// What arrived in a peer's shared memory, for a message to `outs`.
void Operation::copy_payload(const PlanRun& run, const FlowRange& outs, std::byte* payload,
                             std::span<const std::byte> arrived) {
  if (!streams(run, outs, arrived.size())) {
    copy_bytes(payload, arrived.data(), arrived.size());
    return;
  }
  stream_payload(payload, arrived);
  bytes_streamed_ += arrived.size();
}

}  // namespace tersum
