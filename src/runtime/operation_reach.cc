// The part of Operation that reads peers' arrays and writes sums into them, where all ranks are on
// one host and the system lets them: a sum's values are then copied once from where they are and
// once to where they belong, and a call has two messages between any two ranks.
//
// Every rank says with its descriptor whether it can reach everybody, and where its arrays lie. If
// all of them do, each owner reads its chunk of all inputs, piece by piece, adds it up as it would
// have added what arrived, writes it to all outputs, and says so when it is through. Who has heard
// that of everybody is done: its input has been read, and nobody touches its arrays any more. If
// one rank cannot, the call goes on as all others do.
#include <algorithm>

#include "base/check.h"
#include "runtime/member.h"
#include "runtime/node.h"
#include "runtime/operation.h"

namespace tersum {
namespace {

// A chunk of less is copied twice in the time of two system calls a peer. With this two ranks take
// 0.79 to 0.86 of the time of messages, 0.96 to 1.04 with half as much, and four 0.83 to 1.08, 0.91
// to 1.15 with half as much.
constexpr size_t kChunkBytesMinOfTwo = size_t{128} * 1024;
constexpr size_t kChunkBytesMin = size_t{256} * 1024;
// Of one array, read, added up and written at a time, between two looks at the links. What is read
// of all peers together stays in a core's own cache. Two and four ranks of 16 MiB take 0.59 and
// 0.65 with this, 0.59 and 0.71 with half as much, 0.66 and 0.66 with twice as much.
constexpr size_t kPieceBytesMax = size_t{128} * 1024;
constexpr size_t kFetchedBytesMax = size_t{1} << 20;
constexpr size_t kPieceBytesMin = size_t{16} * 1024;
// The memory of a process that is being killed goes before its connections do.
constexpr int64_t kRefusalGraceNs = 200'000'000;

uint64_t address_of(const void* array) { return reinterpret_cast<uintptr_t>(array); }

size_t piece_bytes(size_t peers) {
  // Whole vectors of values, wherever a peer's begin.
  const size_t each = kFetchedBytesMax / peers / kPieceBytesMin * kPieceBytesMin;
  return std::clamp(each, kPieceBytesMin, kPieceBytesMax);
}

}  // namespace

// Sums of arrays that stay in the ranks' common cache, of which other guests of a host may hold the
// better part; larger ones are stored past it (PlanRun::past_cache), which the kernel's copies are
// not. Where two cores share 260 MiB, in place 2 x 32 and 4 x 16 MiB take 0.69 to 0.88 of the time
// of messages, but 4 x 32 MiB 0.75 to 1.03; elsewhere 2 x 16 MiB 0.80 to 1.00, 4 x 8 MiB 0.95 to
// 1.12, 4 x 16 MiB 1.02 to 1.15.
bool Operation::is_worth_reaching() const {
  const CompiledPlan& plan = *call_.plan;
  // Of two ranks a ring has two_step's flows.
  const bool is_direct = plan.request.kind == PlanKind::kTwoStep ||
                         (plan.request.kind == PlanKind::kRing && member_->size() == 2);
  const bool fits = is_direct && plan.held.empty() && plan.codec->wire_is_values();
  if (request_.collective != Collective::kAllReduce || !fits || sums_ != nullptr) return false;
  if (!request_.parts.empty() || request_.added.is_any()) return false;
  const size_t bytes = request_.count * element_bytes(request_.type);
  const auto size = static_cast<size_t>(member_->size());
  const size_t arrays = request_.input == request_.output ? 1 : 2;
  const size_t least = size == 2 ? kChunkBytesMinOfTwo : kChunkBytesMin;
  return bytes >= size * least && arrays * bytes < member_->reach_room();
}

// Peers show their doors with the first such call, so that the second is the first that can.
bool Operation::can_reach(const Node& node) const {
  for (int peer = 0; peer < member_->size(); ++peer) {
    if (peer == member_->rank) continue;
    ArrayReach* const reach = Node::reach(*member_, peer);
    if (reach == nullptr || Node::far(*member_, peer) || !reach->reaches()) return false;
  }
  const size_t bytes = request_.count * element_bytes(request_.type);
  return node.finds(request_.input, bytes) && node.finds(request_.output, bytes);
}

void Operation::ask_reach(Node& node) {
  reaching_ = Reaching::kNo;
  summed_ = 0;
  added_ = false;
  placing_ = 0;
  refused_since_ns_ = INT64_MAX;
  ArrayDoor* const door = node.transport().door();
  if (door == nullptr || member_->size() < 2 || !is_worth_reaching()) return;
  door->start();
  if (!can_reach(node)) return;
  const auto peers = static_cast<size_t>(member_->size() - 1);
  Result<SlotRef> fetched = node.reserve(peers * piece_bytes(peers));
  if (!fetched.ok()) return;
  const ArrayGrant grant = door->claim();
  if (grant.key == 0) return;
  fetched_ = std::move(fetched).value();
  door_ = door;
  reaching_ = Reaching::kAsked;
  descriptor_.arrays = {grant, address_of(request_.input), address_of(request_.output)};
  for (int peer = 0; peer < member_->size(); ++peer) {
    if (peer == member_->rank) continue;
    PeerState& state = peers_[static_cast<size_t>(peer)];
    state.reach = Node::reach(*member_, peer);
    state.reach->open_arrays(grant);
  }
}

void Operation::hear_arrays(const OpenArrays& arrays, int from) {
  if (reaching_ == Reaching::kNo) return;
  peers_[static_cast<size_t>(from)].arrays = arrays;
  if (arrays.grant.key != 0) return;
  reaching_ = Reaching::kNo;
  close_arrays();
}

// Nobody touches this rank's arrays when it returns.
void Operation::close_arrays() {
  fetched_ = SlotRef();
  if (door_ == nullptr) return;
  const ArrayGrant grant = std::exchange(descriptor_.arrays, {}).grant;
  for (PeerState& peer : peers_) {
    if (peer.reach != nullptr) peer.reach->close_arrays(grant);
  }
  std::exchange(door_, nullptr)->release(grant);
}

bool Operation::advance_reach(Node& node, int64_t now_ns) {
  if (reaching_ == Reaching::kAsked) {
    if (ready_peers_ + 1 < ranks()) return false;
    reaching_ = Reaching::kYes;
  }
  for (uint32_t i = 0; i < call_.roles.size(); ++i) {
    const ChunkRole& role = call_.plan->roles[i];
    if (role.finishes && call_.roles[i].produced < role.slices) {
      return sum_piece(node, i, now_ns);
    }
  }
  return false;
}

// The next values of this rank's chunk.
bool Operation::sum_piece(Node& node, uint32_t role_index, int64_t now_ns) {
  const ChunkRole& role = call_.plan->roles[role_index];
  const size_t value_bytes = element_bytes(request_.type);
  const size_t values = role.range.end - role.range.begin;
  const size_t most = piece_bytes(role.adds.count) / value_bytes;
  const size_t first = role.range.begin + summed_;
  const size_t count = std::min(most, values - summed_);
  const int64_t begin_ns = trace_start(node.trace());
  int rank = member_->rank;
  Touched touched = Touched::kDone;
  // Once: sums may lie where contributions lay.
  if (!added_) {
    touched = fetch(role, first * value_bytes, count * value_bytes, &rank);
    if (touched == Touched::kDone) add_up_fetched(role, first, count);
    added_ = touched == Touched::kDone;
  }
  if (touched == Touched::kDone) {
    touched = place_sums(role, first * value_bytes, count * value_bytes, &rank);
  }
  if (touched != Touched::kDone) {
    judge_refusal(node, touched, rank, now_ns);
    return done();
  }
  refused_since_ns_ = INT64_MAX;
  added_ = false;
  placing_ = 0;
  RoleState& state = call_.roles[role_index];
  if (TraceRecorder* trace = node.trace()) {
    trace_slice(*trace, TraceKind::kCombine, begin_ns, call_, role, state.produced,
                count * value_bytes);
  }
  summed_ += count;
  state.produced = static_cast<uint32_t>(summed_ / call_.plan->slice_values);
  if (summed_ == values) tell_placed(node, role_index);
  return true;
}

// To scratch that stays in the core's own cache from one piece to the next.
Touched Operation::fetch(const ChunkRole& role, size_t begin_bytes, size_t bytes, int* rank) {
  const size_t room = piece_bytes(role.adds.count);
  wires_.clear();
  for (uint32_t i = 0; i < role.adds.count; ++i) {
    *rank = call_.plan->in_flows[role.adds.first + i].peer;
    const PeerState& peer = peers_[static_cast<size_t>(*rank)];
    const std::span<std::byte> to = fetched_.bytes().subspan(i * room, bytes);
    const Touched touched =
        peer.reach->read_array(peer.arrays.grant, peer.arrays.input + begin_bytes, to);
    if (touched != Touched::kDone) return touched;
    wires_.push_back(to.data());
  }
  return Touched::kDone;
}

void Operation::add_up_fetched(const ChunkRole& role, size_t first, size_t count) {
  const size_t begin_bytes = first * element_bytes(request_.type);
  const auto* const own = static_cast<const std::byte*>(request_.input) + begin_bytes;
  auto* const sums = static_cast<std::byte*>(request_.output) + begin_bytes;
  SlicePlace place;
  place.first = first;
  const bool divides = request_.op == ReduceOp::kAverage;
  call_.plan->codec->combine(wires_, own, role.own_index, count,
                             {request_.op, divides ? ranks() : 1, call_.plan->gathered_ranks},
                             nullptr, sums, place);
}

// While they are in this core's cache.
Touched Operation::place_sums(const ChunkRole& role, size_t begin_bytes, size_t bytes, int* rank) {
  const auto* const sums = static_cast<const std::byte*>(request_.output) + begin_bytes;
  for (; placing_ < role.finals.count; ++placing_) {
    *rank = call_.plan->out_flows[role.finals.first + placing_].peer;
    const PeerState& peer = peers_[static_cast<size_t>(*rank)];
    const Touched touched =
        peer.reach->write_array(peer.arrays.grant, peer.arrays.output + begin_bytes, {sums, bytes});
    if (touched != Touched::kDone) return touched;
  }
  return Touched::kDone;
}

void Operation::judge_refusal(Node& node, Touched touched, int rank, int64_t now_ns) {
  if (touched == Touched::kNotNow) return;
  refused_since_ns_ = std::min(refused_since_ns_, now_ns);
  if (now_ns - refused_since_ns_ < kRefusalGraceNs) return;
  fail(node,
       {StatusCode::kSystem, "the system does not let this process touch the arrays of " +
                                 member_->name_of(rank) + " any more; set TERSUM_SHM_REACH=off"});
}

void Operation::tell_placed(Node& node, uint32_t role_index) {
  const ChunkRole& role = call_.plan->roles[role_index];
  const size_t bytes = call_.plan->codec->wire_bytes(role.range.end - role.range.begin);
  for (uint32_t i = 0; i < role.adds.count; ++i) {
    call_.in[role.adds.first + i].arrived = role.slices;
    bytes_received_ += bytes;
  }
  for (uint32_t i = 0; i < role.finals.count; ++i) {
    const uint32_t index = role.finals.first + i;
    call_.out[index].sent = role.slices;
    bytes_sent_ += bytes;
    bytes_placed_ += bytes;
    MessageHeader placed = header(MessageKind::kPlaced, call_.plan->out_flows[index].peer);
    placed.chunk = role.chunk;
    node.send(*member_, placed, {});
  }
  call_.roles[role_index].produced = role.slices;
  call_.refresh_role(role_index);
}

void Operation::on_placed(Node& node, const MessageHeader& got) {
  PeerState& peer = peers_[got.from_rank];
  const CompiledPlan& plan = *call_.plan;
  const int flow = find_flow(plan.in_lookup, got.chunk, FlowPhase::kGather, got.from_rank);
  if (reaching_ == Reaching::kNo || !peer.ready || peer.placed || flow < 0) {
    fail_protocol(node, got.from_rank, "sums that nobody waits for");
    return;
  }
  peer.placed = true;
  const uint32_t index = plan.in_flows[static_cast<size_t>(flow)].role;
  const ChunkRole& role = plan.roles[index];
  const size_t bytes = plan.codec->wire_bytes(role.range.end - role.range.begin);
  bytes_sent_ += bytes;
  bytes_received_ += bytes;
  call_.in[static_cast<size_t>(flow)].arrived = role.slices;
  for (uint32_t i = 0; i < role.partials.count; ++i) {
    call_.out[role.partials.first + i].sent = role.slices;
  }
  call_.roles[index].produced = call_.roles[index].stored = role.slices;
  call_.refresh_role(index);
}

}  // namespace tersum
