// The part of Operation that moves slices: which is next, and what it waits for.
#include <algorithm>

#include "base/check.h"
#include "codec/shared_sums.h"
#include "runtime/member.h"
#include "runtime/node.h"
#include "runtime/operation.h"

namespace tersum {
namespace {

// Work of one advance(), so that links are served between: about 60 us of codec time. Slices of
// few bits have many values. Twice as many cost 16 MiB of exact values over loopback a quarter, and
// 64 MiB of bf16 or int8 at 5 Gbit/s 1 or 2 % (docs/performance.md).
constexpr int kStoresPerAdvance = 8;
constexpr int kCombinesPerAdvance = 4;
constexpr int kLeavesPerAdvance = 4;
constexpr int kJobsPerAdvance = 16;
constexpr size_t kValuesPerAdvance = 64 * 1024;
// Contributions are encoded only while the carrier takes them: further ahead they would leave L2.
constexpr size_t kBacklogBytesMax = 256 * 1024;
// Of what is sent over links that take much at once. They copy it soon, so that it need not stay in
// L2 for long: 1 MiB of exact values takes 268 us so, 351 with the numbers above.
constexpr int kGatheredPerAdvance = 16;
constexpr size_t kGatheredBacklogBytesMax = 512 * 1024;

}  // namespace

// Slices of one kind of work in one advance(), of at most `most`. Scales keep ahead of the codes
// that wait for them.
int Operation::slice_budget(const PlanRun& run, int most) const {
  const size_t each = run.of_scales ? values_per_scale(*sums_) : 1;
  const size_t values = run.of_scales ? 2 * kValuesPerAdvance : kValuesPerAdvance;
  const size_t slices = values / (run.plan->slice_values * each);
  return std::clamp(static_cast<int>(std::min<size_t>(slices, kJobsPerAdvance)), 1, most);
}

// Every destination must have room: for a rank that has entered the call, its window; before that,
// the few bytes that may travel unasked.
bool Operation::can_send(const Node& node, const PlanRun& run, const FlowRange& range,
                         uint32_t slice, size_t bytes) const {
  for (uint32_t i = 0; i < range.count; ++i) {
    const uint32_t index = range.first + i;
    const OutFlow& flow = run.plan->out_flows[index];
    const PeerState& peer = peers_[flow.peer];
    if (slice >= run.out[index].granted) return false;
    if (peer.ready) continue;
    if (peer.eager_bytes + bytes > kEagerBytesMax) return false;
    if (!node.eager_room(*member_, flow.peer, bytes)) return false;
  }
  return true;
}

bool Operation::backlogged(const Node& node, const PlanRun& run, const FlowRange& range) const {
  if (run.of_scales) return false;
  const size_t most = gathers_ ? kGatheredBacklogBytesMax : kBacklogBytesMax;
  for (uint32_t i = 0; i < range.count; ++i) {
    const OutFlow& flow = run.plan->out_flows[range.first + i];
    if (node.link_backlog_bytes(*member_, flow.peer) > most) return true;
  }
  return false;
}

void Operation::send_slice(Node& node, PlanRun& run, const FlowRange& range, uint32_t slice,
                           const SlotRef& slot, size_t bytes, SourcePieces lent) {
  for (uint32_t i = 0; i < range.count; ++i) {
    const uint32_t index = range.first + i;
    const OutFlow& flow = run.plan->out_flows[index];
    PeerState& peer = peers_[flow.peer];
    if (!peer.ready) {
      node.take_eager(*member_, flow.peer, bytes);
      peer.eager_bytes += static_cast<uint32_t>(bytes);
    }
    MessageHeader data = header(MessageKind::kData, flow.peer);
    data.phase = stage_phase(flow.phase, run.of_scales);
    data.chunk = run.plan->roles[flow.role].chunk;
    data.slice = slice;
    data.payload_bytes = static_cast<uint32_t>(bytes);
    node.send(*member_, data, slot, lent);
    ++run.out[index].sent;
    bytes_sent_ += bytes;
    ++slices_sent_;
  }
}

// Gives the payload's memory back and, when half a window has been freed, tells the sender.
void Operation::consume(Node& node, PlanRun& run, uint32_t in_flow, uint32_t slice) {
  const InFlow& flow = run.plan->in_flows[in_flow];
  const ChunkRole& role = run.plan->roles[flow.role];
  InState& state = run.in[in_flow];
  TERSUM_CHECK(state.consumed == slice);
  run.inbox(in_flow, slice) = {};
  ++state.consumed;
  const bool sender_knows_all = state.credited + run.plan->window >= role.slices;
  if (sender_knows_all || state.consumed - state.credited < (run.plan->window + 1) / 2) return;
  state.credited = state.consumed;
  MessageHeader credit = header(MessageKind::kCredit, flow.peer);
  credit.phase = stage_phase(flow.phase, run.of_scales);
  credit.chunk = role.chunk;
  credit.slice = state.consumed;
  node.send(*member_, credit, {});
}

bool Operation::advance_run(Node& node, PlanRun& run) {
  if (!run.plan->jobs.empty()) return advance_jobs(node, run);
  bool moved = advance_stores(node, run);
  moved |= advance_combines(node, run);
  moved |= advance_leaves(node, run);
  return moved;
}

bool Operation::advance_stores(Node& node, PlanRun& run) {
  int budget = slice_budget(run, kStoresPerAdvance);
  bool moved = false;
  for (uint32_t i = 0; i < run.roles.size() && budget > 0; ++i) {
    if (run.plan->roles[i].store.count == 0) continue;
    while (budget > 0 && !done() && store_slice(node, run, i)) {
      --budget;
      moved = true;
    }
  }
  return moved;
}

bool Operation::advance_combines(Node& node, PlanRun& run) {
  int budget = slice_budget(run, gathers_ ? kGatheredPerAdvance : kCombinesPerAdvance);
  bool moved = false;
  for (uint32_t i = 0; i < run.roles.size() && budget > 0; ++i) {
    const ChunkRole& role = run.plan->roles[i];
    if (!role.produces || role.adds.count == 0) continue;
    while (
        budget > 0 && !done() &&
        (run.plan->replicated ? combine_replicated(node, run, i) : produce_slice(node, run, i))) {
      --budget;
      moved = true;
    }
  }
  return moved;
}

// Contributions that need nobody else's: one slice of each chunk in turn, so that all owners can
// start.
bool Operation::advance_leaves(Node& node, PlanRun& run) {
  int budget = slice_budget(run, gathers_ ? kGatheredPerAdvance : kLeavesPerAdvance);
  bool moved = false;
  const auto count = static_cast<uint32_t>(run.roles.size());
  for (uint32_t idle = 0; idle < count && budget > 0 && !done();) {
    const uint32_t index = run.leaf_cursor % count;
    run.leaf_cursor = (run.leaf_cursor + 1) % count;
    const ChunkRole& role = run.plan->roles[index];
    bool sent = false;
    if (role.produces && (run.plan->replicated || role.adds.count == 0)) {
      sent = run.plan->replicated && role.adds.count > 0 ? encode_replicated(node, run, index)
                                                         : produce_slice(node, run, index);
    }
    idle = sent ? 0 : idle + 1;
    budget -= sent ? 1 : 0;
    moved |= sent;
  }
  return moved;
}

// Plans in which values pass through ranks: earlier steps first, and nothing is queued behind more
// than the carrier takes soon, so that the order of the plan is the order on the wire.
bool Operation::advance_jobs(Node& node, PlanRun& run) {
  int budget = slice_budget(run, kJobsPerAdvance);
  bool moved = false;
  for (const SliceJob& job : run.plan->jobs) {
    const ChunkRole& role = run.plan->roles[job.role];
    const FlowRange& outs =
        job.stores ? role.forwards : (role.finishes ? role.finals : role.partials);
    while (budget > 0 && !done() && !backlogged(node, run, outs) &&
           (job.stores ? store_slice(node, run, job.role) : produce_slice(node, run, job.role))) {
      --budget;
      moved = true;
    }
    if (budget == 0 || done()) break;
  }
  return moved;
}

bool Operation::produce_slice(Node& node, PlanRun& run, uint32_t role_index) {
  const ChunkRole& role = run.plan->roles[role_index];
  RoleState& state = run.roles[role_index];
  const uint32_t slice = state.produced;
  if (slice == role.slices || !run.have_slice(role.adds, slice)) return false;
  if (!has_scales(run, role, slice)) return false;
  const FlowRange& outs = role.finishes ? role.finals : role.partials;
  const FlowPhase phase = role.finishes ? FlowPhase::kGather : FlowPhase::kReduce;
  const size_t bytes = run.plan->codec_of(phase).wire_bytes(run.plan->slice_count(role, slice));
  if (!can_send(node, run, outs, slice, bytes)) return false;
  if (role.adds.count == 0 && backlogged(node, run, outs)) return false;
  SlotRef slot;
  if (outs.count > 0) {
    Result<SlotRef> reserved = node.reserve(bytes);
    if (!reserved.ok()) {
      fail(node, reserved.status());
      return false;
    }
    slot = std::move(reserved).value();
  }
  lent_.clear();
  if (slot) lend_payload(run, role, outs, slice, bytes);
  const auto payload = slot && lent_.empty() ? slot.bytes().first(bytes) : std::span<std::byte>();
  measure_own(run, role, slice);
  const bool encodes = role.adds.count == 0 && !role.finishes;
  const int64_t begin_ns = trace_start(node.trace());
  if (!encodes) {
    add_up(run, role, outs, slice, payload);
  } else if (lent_.empty()) {
    encode(run, role, outs, slice, payload);
  }
  if (TraceRecorder* trace = node.trace()) {
    trace_slice(*trace, encodes ? TraceKind::kEncode : TraceKind::kCombine, begin_ns, run, role,
                slice, bytes);
  }
  send_slice(node, run, outs, slice, slot, bytes, lent_);
  for (uint32_t i = 0; i < role.adds.count; ++i) consume(node, run, role.adds.first + i, slice);
  ++state.produced;
  run.refresh_role(role_index);
  return true;
}

bool Operation::encode_replicated(Node& node, PlanRun& run, uint32_t role_index) {
  const ChunkRole& role = run.plan->roles[role_index];
  RoleState& state = run.roles[role_index];
  const uint32_t slice = state.encoded;
  if (slice == role.slices || slice - state.produced >= run.plan->window) return false;
  if (!has_scales(run, role, slice)) return false;
  const size_t bytes = run.plan->codec->wire_bytes(run.plan->slice_count(role, slice));
  if (!can_send(node, run, role.partials, slice, bytes) || backlogged(node, run, role.partials))
    return false;
  Result<SlotRef> slot = node.reserve(bytes);
  if (!slot.ok()) {
    fail(node, slot.status());
    return false;
  }
  measure_own(run, role, slice);
  const int64_t begin_ns = trace_start(node.trace());
  encode(run, role, role.partials, slice, slot->bytes().first(bytes));
  if (TraceRecorder* trace = node.trace()) {
    trace_slice(*trace, TraceKind::kEncode, begin_ns, run, role, slice, bytes);
  }
  send_slice(node, run, role.partials, slice, *slot, bytes);
  run.own_wire(slice) = std::move(slot).value();
  ++state.encoded;
  return true;
}

// Every rank sums the same encoded contributions in the same order, its own among them.
bool Operation::combine_replicated(Node& node, PlanRun& run, uint32_t role_index) {
  const ChunkRole& role = run.plan->roles[role_index];
  RoleState& state = run.roles[role_index];
  const uint32_t slice = state.produced;
  if (slice == state.encoded || !run.have_slice(role.adds, slice)) return false;
  SlotRef& own = run.own_wire(slice);
  wires_.clear();
  for (uint32_t i = 0; i < role.adds.count; ++i) {
    if (i == role.own_index) wires_.push_back(own.bytes().data());
    wires_.push_back(run.inbox(role.adds.first + i, slice).payload.data());
  }
  if (role.own_index == role.adds.count) wires_.push_back(own.bytes().data());
  const bool divides = run.arrays.op == ReduceOp::kAverage;
  const CombineFinish end{run.arrays.op, divides ? ranks() : 1};
  const size_t count = run.plan->slice_count(role, slice);
  const int64_t begin_ns = trace_start(node.trace());
  read_replicated(run, count, end, place_of(run, role, slice));
  combine(run, role, slice, {false, 0, true}, end, nullptr);
  if (TraceRecorder* trace = node.trace()) {
    trace_slice(*trace, TraceKind::kCombine, begin_ns, run, role, slice,
                run.plan->codec->wire_bytes(count));
  }
  own = {};
  for (uint32_t i = 0; i < role.adds.count; ++i) consume(node, run, role.adds.first + i, slice);
  ++state.produced;
  run.refresh_role(role_index);
  return true;
}

bool Operation::store_slice(Node& node, PlanRun& run, uint32_t role_index) {
  const ChunkRole& role = run.plan->roles[role_index];
  RoleState& state = run.roles[role_index];
  const uint32_t slice = state.stored;
  if (slice == role.slices || !run.have_slice(role.store, slice)) return false;
  if (!has_scales(run, role, slice)) return false;
  const size_t count = run.plan->slice_count(role, slice);
  const Codec& codec = run.plan->codec_of(FlowPhase::kGather);
  const size_t bytes = codec.wire_bytes(count);
  if (!can_send(node, run, role.forwards, slice, bytes)) return false;
  const InMessage& message = run.inbox(role.store.first, slice);
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
      copy_payload(run, role.forwards, slot.bytes().data(), message.payload);
    }
    send_slice(node, run, role.forwards, slice, slot, bytes);
  }
  const std::byte* const wire = message.payload.data();
  if (keeps(run, role) && !message.landed) {
    const int64_t begin_ns = trace_start(node.trace());
    decode(run, role, slice, wire);
    if (TraceRecorder* trace = node.trace()) {
      trace_slice(*trace, TraceKind::kDecode, begin_ns, run, role, slice, bytes);
    }
  }
  read_gathered(run, wire, count, place_of(run, role, slice));
  consume(node, run, role.store.first, slice);
  ++state.stored;
  run.refresh_role(role_index);
  return true;
}

}  // namespace tersum
