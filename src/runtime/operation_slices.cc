// The part of Operation that moves values: slices through encode, combine, decode.
#include <algorithm>
#include <cstring>

#include "base/check.h"
#include "codec/decode_past_cache.h"
#include "runtime/member.h"
#include "runtime/node.h"
#include "runtime/operation.h"

namespace tersum {
namespace {

// Work of one advance(), so that links are served between: about 100 us of codec time.
constexpr int kStoresPerAdvance = 8;
constexpr int kCombinesPerAdvance = 4;
constexpr int kLeavesPerAdvance = 4;
constexpr int kJobsPerAdvance = 16;
// Contributions are encoded only while the carrier takes them: further ahead they would leave L2.
constexpr size_t kBacklogBytesMax = 256 * 1024;

}  // namespace

void Operation::refresh_role(uint32_t role_index) {
  const ChunkRole& role = plan_->roles[role_index];
  RoleState& state = roles_[role_index];
  const bool produced = !role.produces || state.produced == role.slices;
  const bool stored = role.store.count == 0 || state.stored == role.slices;
  if (state.complete || !produced || !stored) return;
  state.complete = true;
  --open_roles_;
}

const std::byte* Operation::own_slice(const ChunkRole& role, uint32_t slice) const {
  const size_t begin = role.input_begin + slice * plan_->slice_values;
  return static_cast<const std::byte*>(stage_.input) + begin * element_bytes(stage_.type);
}

// Null for a chunk that is only passed on, and for a sender that keeps what it has.
std::byte* Operation::output_slice(const ChunkRole& role, uint32_t slice) const {
  if (!role.keeps || stage_.output == nullptr) return nullptr;
  const size_t begin = role.output_begin + slice * plan_->slice_values;
  return static_cast<std::byte*>(stage_.output) + begin * element_bytes(stage_.type);
}

bool Operation::have_slice(const FlowRange& range, uint32_t slice) const {
  for (uint32_t i = 0; i < range.count; ++i) {
    const InMessage& message = inbox(range.first + i, slice);
    if (message.payload.data() == nullptr || message.header.slice != slice) return false;
  }
  return true;
}

// Every destination must have room: for a rank that has entered the call, its window; before that,
// the few bytes that may travel unasked.
bool Operation::can_send(const Node& node, const FlowRange& range, uint32_t slice,
                         size_t bytes) const {
  for (uint32_t i = 0; i < range.count; ++i) {
    const uint32_t index = range.first + i;
    const OutFlow& flow = plan_->out_flows[index];
    const PeerState& peer = peers_[flow.peer];
    if (slice >= out_[index].granted) return false;
    if (peer.ready) continue;
    if (peer.eager_bytes + bytes > kEagerBytesMax) return false;
    if (!node.eager_room(*member_, flow.peer, bytes)) return false;
  }
  return true;
}

bool Operation::backlogged(const Node& node, const FlowRange& range) const {
  for (uint32_t i = 0; i < range.count; ++i) {
    const OutFlow& flow = plan_->out_flows[range.first + i];
    if (node.link_backlog_bytes(*member_, flow.peer) > kBacklogBytesMax) return true;
  }
  return false;
}

void Operation::send_slice(Node& node, const FlowRange& range, uint32_t slice, const SlotRef& slot,
                           size_t bytes) {
  for (uint32_t i = 0; i < range.count; ++i) {
    const uint32_t index = range.first + i;
    const OutFlow& flow = plan_->out_flows[index];
    PeerState& peer = peers_[flow.peer];
    if (!peer.ready) {
      node.take_eager(*member_, flow.peer, bytes);
      peer.eager_bytes += static_cast<uint32_t>(bytes);
    }
    MessageHeader data = header(MessageKind::kData, flow.peer);
    data.phase = stage_phase(flow.phase, agreeing_);
    data.chunk = plan_->roles[flow.role].chunk;
    data.slice = slice;
    data.payload_bytes = static_cast<uint32_t>(bytes);
    node.send(*member_, data, slot);
    ++out_[index].sent;
    bytes_sent_ += bytes;
    ++slices_sent_;
  }
}

// Gives the payload's memory back and, when half a window has been freed, tells the sender.
void Operation::consume(Node& node, uint32_t in_flow, uint32_t slice) {
  const InFlow& flow = plan_->in_flows[in_flow];
  const ChunkRole& role = plan_->roles[flow.role];
  InState& state = in_[in_flow];
  TERSUM_CHECK(state.consumed == slice);
  inbox(in_flow, slice) = {};
  ++state.consumed;
  const bool sender_knows_all = state.credited + plan_->window >= role.slices;
  if (sender_knows_all || state.consumed - state.credited < (plan_->window + 1) / 2) return;
  state.credited = state.consumed;
  MessageHeader credit = header(MessageKind::kCredit, flow.peer);
  credit.phase = stage_phase(flow.phase, agreeing_);
  credit.chunk = role.chunk;
  credit.slice = state.consumed;
  node.send(*member_, credit, {});
}

bool Operation::advance_stores(Node& node) {
  int budget = kStoresPerAdvance;
  bool moved = false;
  for (uint32_t i = 0; i < roles_.size() && budget > 0; ++i) {
    if (plan_->roles[i].store.count == 0) continue;
    while (budget > 0 && !done() && store_slice(node, i)) {
      --budget;
      moved = true;
    }
  }
  return moved;
}

bool Operation::advance_combines(Node& node) {
  int budget = kCombinesPerAdvance;
  bool moved = false;
  for (uint32_t i = 0; i < roles_.size() && budget > 0; ++i) {
    const ChunkRole& role = plan_->roles[i];
    if (!role.produces || role.adds.count == 0) continue;
    while (budget > 0 && !done() &&
           (plan_->replicated ? combine_replicated(node, i) : produce_slice(node, i))) {
      --budget;
      moved = true;
    }
  }
  return moved;
}

// Contributions that need nobody else's: one slice of each chunk in turn, so that all owners can
// start.
bool Operation::advance_leaves(Node& node) {
  int budget = kLeavesPerAdvance;
  bool moved = false;
  const auto count = static_cast<uint32_t>(roles_.size());
  for (uint32_t idle = 0; idle < count && budget > 0 && !done();) {
    const uint32_t index = leaf_cursor_ % count;
    leaf_cursor_ = (leaf_cursor_ + 1) % count;
    const ChunkRole& role = plan_->roles[index];
    bool sent = false;
    if (role.produces && (plan_->replicated || role.adds.count == 0)) {
      sent = plan_->replicated && role.adds.count > 0 ? encode_replicated(node, index)
                                                      : produce_slice(node, index);
    }
    idle = sent ? 0 : idle + 1;
    budget -= sent ? 1 : 0;
    moved |= sent;
  }
  return moved;
}

// Plans in which values pass through ranks: earlier steps first, and nothing is queued behind more
// than the carrier takes soon, so that the order of the plan is the order on the wire.
bool Operation::advance_jobs(Node& node) {
  int budget = kJobsPerAdvance;
  bool moved = false;
  for (const SliceJob& job : plan_->jobs) {
    const ChunkRole& role = plan_->roles[job.role];
    const FlowRange& outs =
        job.stores ? role.forwards : (role.finishes ? role.finals : role.partials);
    while (budget > 0 && !done() && !backlogged(node, outs) &&
           (job.stores ? store_slice(node, job.role) : produce_slice(node, job.role))) {
      --budget;
      moved = true;
    }
    if (budget == 0 || done()) break;
  }
  return moved;
}

bool Operation::past_cache() const {
  const size_t arrays = stage_.input == stage_.output ? 1 : 2;
  return arrays * stage_.count * element_bytes(stage_.type) >= kPastCacheBytesMin;
}

SlicePlace Operation::place_of(const ChunkRole& role, uint32_t slice) const {
  // The state changes only with this call's end.
  const ChannelFactors* const factors = site_ == nullptr ? nullptr : site_->state.factors();
  const size_t first = plan_->slice_begin(role, slice);
  if (agreeing_) return {};
  const uint32_t divisor = stage_.op == ReduceOp::kAverage ? ranks() : 1;
  const ClipFactors* const clips = clip_ == nullptr ? nullptr : &clips_;
  return {first,          factors,          request_.rounding, owed_,
          request_.added, scales_at(first), divisor,           clips};
}

// Of what wires_ points to.
void Operation::combine(const std::byte* own, size_t own_index, size_t count,
                        const CombineFinish& finish, std::byte* wire_out, std::byte* values_out,
                        const SlicePlace& place) {
  const Codec& codec = *plan_->codec;
  if (past_cache()) {
    combine_past_cache(codec, wires_, own, own_index, count, finish, wire_out, values_out, place,
                       decoded_);
  } else {
    codec.combine(wires_, own, own_index, count, finish, wire_out, values_out, place);
  }
}

bool Operation::produce_slice(Node& node, uint32_t role_index) {
  const ChunkRole& role = plan_->roles[role_index];
  RoleState& state = roles_[role_index];
  const uint32_t slice = state.produced;
  if (slice == role.slices || !have_slice(role.adds, slice)) return false;
  const FlowRange& outs = role.finishes ? role.finals : role.partials;
  const size_t count = plan_->slice_count(role, slice);
  const Codec& codec = *plan_->codec;
  const FlowPhase phase = role.finishes ? FlowPhase::kGather : FlowPhase::kReduce;
  const size_t bytes = plan_->codec_of(phase).wire_bytes(count);
  if (!can_send(node, outs, slice, bytes)) return false;
  if (role.adds.count == 0 && backlogged(node, outs)) return false;
  SlotRef slot;
  if (outs.count > 0) {
    Result<SlotRef> reserved = node.reserve(bytes);
    if (!reserved.ok()) {
      fail(node, reserved.status());
      return false;
    }
    slot = std::move(reserved).value();
  }
  std::byte* const wire = slot ? slot.bytes().data() : nullptr;
  const std::byte* const own = own_slice(role, slice);
  const bool encodes = role.adds.count == 0 && !role.finishes;
  const int64_t begin_ns = trace_start(node.trace());
  if (encodes) {
    codec.encode(own, count, wire, place_of(role, slice));
  } else {
    wires_.clear();
    for (uint32_t i = 0; i < role.adds.count; ++i) {
      wires_.push_back(inbox(role.adds.first + i, slice).payload.data());
    }
    const bool divides = role.finishes && stage_.op == ReduceOp::kAverage;
    const CombineFinish end{stage_.op, divides ? ranks() : 1,
                            role.finishes ? plan_->gathered_ranks : 1U};
    combine(own, role.own_index, count, end, wire,
            role.finishes ? output_slice(role, slice) : nullptr, place_of(role, slice));
  }
  if (TraceRecorder* trace = node.trace()) {
    trace_slice(*trace, encodes ? TraceKind::kEncode : TraceKind::kCombine, begin_ns, role, slice,
                bytes);
  }
  if (role.finishes && wire != nullptr) read_report(wire, bytes);
  send_slice(node, outs, slice, slot, bytes);
  for (uint32_t i = 0; i < role.adds.count; ++i) consume(node, role.adds.first + i, slice);
  ++state.produced;
  refresh_role(role_index);
  return true;
}

bool Operation::encode_replicated(Node& node, uint32_t role_index) {
  const ChunkRole& role = plan_->roles[role_index];
  RoleState& state = roles_[role_index];
  const uint32_t slice = state.encoded;
  if (slice == role.slices || slice - state.produced >= plan_->window) return false;
  const size_t count = plan_->slice_count(role, slice);
  const size_t bytes = plan_->codec->wire_bytes(count);
  if (!can_send(node, role.partials, slice, bytes) || backlogged(node, role.partials)) return false;
  Result<SlotRef> slot = node.reserve(bytes);
  if (!slot.ok()) {
    fail(node, slot.status());
    return false;
  }
  const int64_t begin_ns = trace_start(node.trace());
  plan_->codec->encode(own_slice(role, slice), count, slot->bytes().data(), place_of(role, slice));
  if (TraceRecorder* trace = node.trace()) {
    trace_slice(*trace, TraceKind::kEncode, begin_ns, role, slice, bytes);
  }
  send_slice(node, role.partials, slice, *slot, bytes);
  own_wires_[slice % plan_->window] = std::move(slot).value();
  ++state.encoded;
  return true;
}

// Every rank sums the same encoded contributions in the same order, its own among them.
bool Operation::combine_replicated(Node& node, uint32_t role_index) {
  const ChunkRole& role = plan_->roles[role_index];
  RoleState& state = roles_[role_index];
  const uint32_t slice = state.produced;
  if (slice == state.encoded || !have_slice(role.adds, slice)) return false;
  SlotRef& own = own_wires_[slice % plan_->window];
  wires_.clear();
  for (uint32_t i = 0; i < role.adds.count; ++i) {
    if (i == role.own_index) wires_.push_back(own.bytes().data());
    wires_.push_back(inbox(role.adds.first + i, slice).payload.data());
  }
  if (role.own_index == role.adds.count) wires_.push_back(own.bytes().data());
  const bool divides = stage_.op == ReduceOp::kAverage;
  const CombineFinish end{stage_.op, divides ? ranks() : 1};
  const size_t count = plan_->slice_count(role, slice);
  const int64_t begin_ns = trace_start(node.trace());
  for (const std::byte* wire : wires_) read_report(wire, plan_->codec->wire_bytes(count));
  combine(nullptr, 0, count, end, nullptr, output_slice(role, slice), place_of(role, slice));
  if (TraceRecorder* trace = node.trace()) {
    trace_slice(*trace, TraceKind::kCombine, begin_ns, role, slice,
                plan_->codec->wire_bytes(count));
  }
  own = {};
  for (uint32_t i = 0; i < role.adds.count; ++i) consume(node, role.adds.first + i, slice);
  ++state.produced;
  refresh_role(role_index);
  return true;
}

bool Operation::store_slice(Node& node, uint32_t role_index) {
  const ChunkRole& role = plan_->roles[role_index];
  RoleState& state = roles_[role_index];
  const uint32_t slice = state.stored;
  if (slice == role.slices || !have_slice(role.store, slice)) return false;
  const size_t count = plan_->slice_count(role, slice);
  const Codec& codec = plan_->codec_of(FlowPhase::kGather);
  const size_t bytes = codec.wire_bytes(count);
  if (!can_send(node, role.forwards, slice, bytes)) return false;
  const InMessage& message = inbox(role.store.first, slice);
  if (role.forwards.count > 0) {
    // Bytes in this process's arena travel on as they lie; a peer's shared memory must be copied.
    SlotRef slot = message.hold.slot();
    if (!slot || slot.bytes().data() != message.payload.data()) {
      Result<SlotRef> copy = node.reserve(bytes);
      if (!copy.ok()) {
        fail(node, copy.status());
        return false;
      }
      slot = std::move(copy).value();
      std::memcpy(slot.bytes().data(), message.payload.data(), bytes);
    }
    send_slice(node, role.forwards, slice, slot, bytes);
  }
  const std::byte* const wire = message.payload.data();
  if (std::byte* const out = output_slice(role, slice)) {
    const int64_t begin_ns = trace_start(node.trace());
    if (past_cache()) {
      decode_past_cache(codec, wire, count, out, place_of(role, slice), decoded_);
    } else {
      codec.decode(wire, count, out, place_of(role, slice));
    }
    if (TraceRecorder* trace = node.trace()) {
      trace_slice(*trace, TraceKind::kDecode, begin_ns, role, slice, bytes);
    }
  }
  read_report(wire, bytes);
  consume(node, role.store.first, slice);
  ++state.stored;
  refresh_role(role_index);
  return true;
}

}  // namespace tersum
