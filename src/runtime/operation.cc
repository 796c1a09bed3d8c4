#include "runtime/operation.h"

#include <algorithm>
#include <string>

#include "base/check.h"
#include "plan/collective_rules.h"
#include "plan/plan.h"
#include "runtime/deadline.h"
#include "runtime/group_id.h"
#include "runtime/member.h"
#include "runtime/node.h"
#include "runtime/usual_plan.h"

namespace tersum {
namespace {

constexpr int64_t kNsPerMs = 1'000'000;
// A rank that said goodbye cannot enter any more, but its last messages may still be on another
// stream.
constexpr int64_t kGoodbyeGraceNs = 1'000 * kNsPerMs;

bool in_window(const CompiledPlan& plan, const ChunkRole& role, const InState& state,
               uint32_t slice) {
  return slice >= state.consumed && slice - state.consumed < plan.window && slice < role.slices;
}

std::string slice_name(const MessageHeader& header) {
  return "slice " + std::to_string(header.slice) + " of chunk " + std::to_string(header.chunk);
}

}  // namespace

void Operation::prepare(std::shared_ptr<Member> member, const CallRequest& request, OnDone on_done,
                        void* context) {
  member_ = std::move(member);
  request_ = request;
  on_done_ = on_done;
  context_ = context;
  deadline_ns_ = deadline_after_ms(request.start_ns, request.timeout_ms);
  ping_ns_ = deadline_after_ms(request.start_ns, request.timeout_ms / 2);
  pinged_ = false;
  begun_ = false;
  codec_text_ = request.codec->spec().to_string();
  descriptor_ = {request.collective,
                 request.op,
                 request.type,
                 request.plan,
                 static_cast<uint32_t>(request.root),
                 request.count,
                 codec_text_,
                 request.tensors,
                 0,
                 {}};
  status_ = {};
  done_.store(false, std::memory_order_release);
}

void Operation::begin(Node& node) {
  TERSUM_CHECK(!begun_);
  begun_ = true;
  peers_.assign(static_cast<size_t>(member_->size()), {});
  ready_peers_ = 0;
  gathers_ = Node::gathers(*member_);
  transits_ = Node::take_early_transits(*member_, request_.call);
  bytes_sent_ = bytes_received_ = bytes_streamed_ = bytes_placed_ = slices_sent_ = 0;
  call_.clear();
  agreement_.clear();
  call_.arrays = {request_.input, request_.output, request_.count, request_.type, request_.op};
  call_.arrays.parts = request_.parts;
  const bool is_sum = reduces(request_.collective);
  call_.ranks_of_host = is_sum ? member_->ranks_of_host : 1;
  call_.cache_bytes = is_sum ? member_->cache_bytes : 0;
  sums_ = nullptr;
  const Status poison = member_->current_poison();
  if (!poison.ok()) {
    // The others may be in this call already: they hear why this rank is not.
    if (member_->registered) notify_others(node, poison);
    finish(node, poison);
    return;
  }
  Status resolved =
      resolve_plan(wanted_plan(*request_.codec), *request_.codec, member_->limits, call_.plan);
  if (resolved.ok()) resolved = begin_scales();
  if (!resolved.ok()) {
    fail(node, resolved);
    return;
  }
  call_.restart();
  ask_reach(node);
  enter_site();
  take_site(node);
}

PlanRequest Operation::wanted_plan(const Codec& codec) const {
  const int size = member_->size();
  const Topology* const topology = member_->topology.get();
  PlanRequest plan;
  plan.collective = request_.collective;
  plan.size = size;
  plan.root = request_.root;
  plan.granule = codec.block();
  plan.topology = topology;
  plan.count = request_.count * part_count(request_.collective, size);
  plan.kind = request_.plan;
  if (plan.kind == PlanKind::kAuto) {
    plan.kind = usual_plan(member_->ground(), request_.collective, request_.type, request_.op,
                           codec, request_.count);
  }
  return plan;
}

// The plan for this shape, from the member's cache or made now.
Status Operation::resolve_plan(const PlanRequest& wanted, const Codec& codec,
                               const SliceLimits& limits,
                               std::shared_ptr<const CompiledPlan>& found) {
  found = member_->plans.find(wanted, codec, limits);
  if (found != nullptr) return {};
  auto compiled = compile_plan(wanted, codec, member_->rank, limits);
  if (!compiled.ok()) return compiled.status();
  found = compiled.value();
  member_->plans.add(found);
  return {};
}

MessageHeader Operation::header(MessageKind kind, int to_rank) const {
  MessageHeader header;
  header.kind = kind;
  header.from_rank = static_cast<uint16_t>(member_->rank);
  header.to_rank = static_cast<uint16_t>(to_rank);
  header.group = member_->group;
  header.call = request_.call;
  return header;
}

void Operation::send_ready(Node& node) {
  if (member_->size() == 1) return;
  Result<SlotRef> slot = node.reserve(kOpenDescriptorBytes);
  if (!slot.ok()) {
    fail(node, slot.status());
    return;
  }
  const size_t bytes = encode_descriptor(descriptor_, slot->bytes().first<kOpenDescriptorBytes>());
  // Starting behind the own rank, so that not everybody talks to rank 0 first.
  for (int i = 1; i < member_->size(); ++i) {
    const int peer = (member_->rank + i) % member_->size();
    MessageHeader ready = header(MessageKind::kReady, peer);
    ready.payload_bytes = static_cast<uint32_t>(bytes);
    node.send(*member_, ready, *slot);
  }
}

void Operation::on_message(Node& node, InMessage message) {
  if (done()) return;
  if (resting_ && message.header.kind != MessageKind::kCancel) {
    early_.push_back(std::move(message));
    return;
  }
  switch (message.header.kind) {
    case MessageKind::kReady:
      on_ready(node, message);
      break;
    case MessageKind::kData:
      on_data(node, std::move(message));
      break;
    case MessageKind::kCredit:
      on_credit(node, message.header);
      break;
    case MessageKind::kPlaced:
      on_placed(node, message.header);
      break;
    case MessageKind::kCancel:
      if (const auto notice = decode_cancel(message.payload)) {
        on_cancel(node, *notice, message.header.from_rank);
      } else {
        fail_protocol(node, message.header.from_rank, "an unreadable cancel notice");
      }
      break;
    default:
      fail_protocol(node, message.header.from_rank, "a message kind that calls do not have");
  }
}

void Operation::on_ready(Node& node, const InMessage& message) {
  const int from = message.header.from_rank;
  const auto other = decode_descriptor(message.payload);
  PeerState& peer = peers_[static_cast<size_t>(from)];
  if (!other || peer.ready) {
    fail_protocol(node, from, peer.ready ? "a second descriptor" : "an unreadable descriptor");
    return;
  }
  if (Status agreed = compare_descriptors(descriptor_, member_->shown_rank(member_->rank), *other,
                                          member_->shown_rank(from));
      !agreed.ok()) {
    fail(node, agreed);
    return;
  }
  peer.ready = true;
  ++ready_peers_;
  if (peer.eager_bytes > 0) node.give_back_eager(*member_, from, peer.eager_bytes);
  peer.eager_bytes = 0;
  hear_arrays(other->arrays, from);
  for (size_t i = 0; i < early_.size() && !done();) {
    if (early_[i].header.from_rank != from) {
      ++i;
      continue;
    }
    InMessage data = std::move(early_[i]);
    early_.erase(early_.begin() + static_cast<std::ptrdiff_t>(i));
    on_data(node, std::move(data));
  }
}

// Everything the header says is compared with the local plan; nothing of it sizes anything.
void Operation::on_data(Node& node, InMessage message) {
  const MessageHeader& got = message.header;
  if (!peers_[got.from_rank].ready) {
    early_.push_back(std::move(message));
    return;
  }
  PlanRun* const run = find_run(got.phase);
  const FlowPhase phase = plan_phase(got.phase);
  const int flow =
      run == nullptr ? -1 : find_flow(run->plan->in_lookup, got.chunk, phase, got.from_rank);
  if (flow < 0) {
    fail_protocol(
        node, got.from_rank,
        "data of chunk " + std::to_string(got.chunk) + " in a flow that the plan does not have");
    return;
  }
  const auto index = static_cast<uint32_t>(flow);
  const CompiledPlan& plan = *run->plan;
  const ChunkRole& role = plan.roles[plan.in_flows[index].role];
  InState& state = run->in[index];
  if (!in_window(plan, role, state, got.slice) ||
      run->inbox(index, got.slice).payload.data() != nullptr) {
    fail_protocol(node, got.from_rank,
                  slice_name(got) + " twice or outside its window of " +
                      std::to_string(plan.window) + " from " + std::to_string(state.consumed));
    return;
  }
  const size_t expected = plan.codec_of(phase).wire_bytes(plan.slice_count(role, got.slice));
  // What landed has the bytes that it was asked a place for.
  if (!message.landed && message.payload.size() != expected) {
    fail_protocol(node, got.from_rank,
                  slice_name(got) + " with " + std::to_string(message.payload.size()) +
                      " bytes where it has " + std::to_string(expected));
    return;
  }
  ++state.arrived;
  bytes_received_ += expected;
  run->inbox(index, got.slice) = std::move(message);
}

// What on_data() would take, of a slice that is stored as it comes.
void Operation::find_landing(const MessageHeader& got, Landing& landing) {
  const bool is_large = got.payload_bytes >= kInPlaceBytesMin;
  if (resting_ || !is_large || got.phase != FlowPhase::kGather) return;
  const CompiledPlan& plan = *call_.plan;
  if (!peers_[got.from_rank].ready || !plan.codec->wire_is_values()) return;
  const int flow = find_flow(plan.in_lookup, got.chunk, got.phase, got.from_rank);
  if (flow < 0) return;
  const auto index = static_cast<uint32_t>(flow);
  const ChunkRole& role = plan.roles[plan.in_flows[index].role];
  const bool stores = role.store.count == 1 && role.store.first == index;
  if (!stores || role.forwards.count > 0 || !keeps(call_, role)) return;
  if (!in_window(plan, role, call_.in[index], got.slice)) return;
  if (call_.inbox(index, got.slice).payload.data() != nullptr) return;
  if (got.payload_bytes != plan.codec->wire_bytes(plan.slice_count(role, got.slice))) return;
  call_.list_parts(role, got.slice, parts_);
  if (parts_.size() > kPayloadPiecesMax) return;
  for (const SlicePart& part : parts_) {
    landing.emplace_back(part.output, plan.codec->wire_bytes(part.count));
  }
}

void Operation::on_credit(Node& node, const MessageHeader& got) {
  PlanRun* const run = find_run(got.phase);
  const FlowPhase phase = plan_phase(got.phase);
  const int flow =
      run == nullptr ? -1 : find_flow(run->plan->out_lookup, got.chunk, phase, got.from_rank);
  if (flow < 0 || got.slice > run->out[static_cast<size_t>(flow)].sent) {
    fail_protocol(node, got.from_rank,
                  "credit for " + std::to_string(got.slice) + " slices of chunk " +
                      std::to_string(got.chunk) + ", more than it was sent");
    return;
  }
  OutState& out = run->out[static_cast<size_t>(flow)];
  out.granted = std::max(out.granted, got.slice + run->plan->window);
}

void Operation::fail_protocol(Node& node, int from_rank, const std::string& what) {
  fail(node, {StatusCode::kProtocol, member_->name_of(from_rank) + " sent " + what +
                                         "; check that all ranks run the same version of tersum"});
}

bool Operation::advance(Node& node, int64_t now_ns) {
  if (done()) return false;
  if (resting_ && !take_site(node)) {
    check_deadline(node, now_ns);
    return done();
  }
  if (!measure_whole()) return true;
  // The call's slices wait for their scales.
  bool moved = !agreement_.complete() && advance_run(node, agreement_);
  if (reaching_ != Reaching::kNo) {
    moved |= !done() && advance_reach(node, now_ns);
  } else {
    moved |= !done() && advance_run(node, call_);
  }
  if (done()) return true;
  if (complete()) {
    finish(node, {});
    return true;
  }
  check_deadline(node, now_ns);
  return moved || done();
}

uint32_t Operation::ranks() const { return static_cast<uint32_t>(member_->size()); }

bool Operation::complete() const {
  return call_.complete() && agreement_.complete() && all_entered();
}

// Every rank's descriptor has arrived, and those that pass here have been handed on.
bool Operation::all_entered() const {
  return ready_peers_ + 1 == static_cast<uint32_t>(member_->size()) &&
         transits_ >= member_->routes.transits;
}

void Operation::check_deadline(Node& node, int64_t now_ns) {
  if (!pinged_ && now_ns >= ping_ns_) {
    pinged_ = true;
    ping_ns_ = now_ns;
    for (int peer = 0; peer < member_->size(); ++peer) {
      if (peer != member_->rank) node.ping(*member_, peer);
    }
  }
  for (int peer = 0; peer < member_->size(); ++peer) {
    const RankPlace& place = member_->places[static_cast<size_t>(peer)];
    if (place.left && !peers_[static_cast<size_t>(peer)].ready &&
        now_ns - place.left_ns > kGoodbyeGraceNs) {
      fail(node, {StatusCode::kPeerLost,
                  member_->name_of(peer) + " has left the group; make a new communicator"});
      return;
    }
  }
  if (now_ns < deadline_ns_) return;
  fail(node, {StatusCode::kTimeout, blame(node)});
}

// Who holds the call up: ranks that have not entered, else ranks that do not answer, else ranks
// whose data is missing.
std::string Operation::blame(const Node& node) const {
  std::string late, silent, owing;
  const auto add = [](std::string& list, const std::string& name) {
    if (list.size() < 200) list += (list.empty() ? "" : ", ") + name;
  };
  for (int peer = 0; peer < member_->size(); ++peer) {
    if (peer == member_->rank) continue;
    if (!peers_[static_cast<size_t>(peer)].ready) add(late, member_->name_of(peer));
    if (!node.heard_since(*member_, peer, ping_ns_)) add(silent, member_->name_of(peer));
    if (still_needs(peer)) add(owing, member_->name_of(peer));
  }
  std::string text(collective_name(request_.collective));
  text += " passed its deadline of " + std::to_string(request_.timeout_ms) + " ms: ";
  if (!late.empty()) {
    text += late + " did not enter the call";
  } else if (!silent.empty()) {
    text += silent + " stopped answering";
  } else {
    text += "still waiting for data of " + owing;
  }
  return text + "; look at that rank, or raise timeout_ms";
}

bool Operation::still_needs(int rank) const {
  return !peers_[static_cast<size_t>(rank)].ready || call_.needs(rank) || agreement_.needs(rank);
}

void Operation::on_peer_down(Node& node, int rank, const Status& reason) {
  // A lost neighbour may also have been the way to ranks that are well. One that said goodbye has
  // handed everything on before.
  const bool left = member_->places[static_cast<size_t>(rank)].left;
  const bool cut_off = !member_->routes.direct() && !left && !all_entered();
  if (done() || (!still_needs(rank) && !cut_off)) return;
  fail(node, {StatusCode::kPeerLost, member_->name_of(rank) + " is gone (" +
                                         std::string(reason.message()) +
                                         "); make a new communicator without it"});
}

void Operation::on_cancel(Node& node, const CancelNotice& notice, int from_rank) {
  if (done()) return;
  std::string text(notice.text);
  if (notice.code == StatusCode::kAborted || notice.code == StatusCode::kClosed) {
    text = member_->name_of(from_rank) + ": " + text;
  }
  const Status status(notice.code, std::move(text));
  if (notice.poisons) node.doom(*member_, status);
  notify_others(node, Status(notice.code, std::string(notice.text)));
  finish(node, status);
}

void Operation::fail(Node& node, const Status& status) {
  if (done()) return;
  TERSUM_CHECK(!status.ok());
  // Ranks that disagreed have all dropped the same call: the group is as it was before.
  if (status.code() != StatusCode::kDisagreement) node.doom(*member_, status);
  notify_others(node, status);
  finish(node, status);
}

void Operation::notify_others(Node& node, const Status& status) {
  node.cancel_all(*member_, request_.call, status, status.code() != StatusCode::kDisagreement);
}

void Operation::finish(Node& node, Status status) {
  // The caller's arrays may go as soon as the end is known.
  node.settle_lent();
  node.drop_landings();
  close_arrays();
  call_.release();
  agreement_.release();
  early_.clear();
  for (size_t peer = 0; peer < peers_.size(); ++peer) {
    if (peers_[peer].eager_bytes == 0) continue;
    node.give_back_eager(*member_, static_cast<int>(peer), peers_[peer].eager_bytes);
    peers_[peer].eager_bytes = 0;
  }
  leave_site(status.ok());
  count_call(node, status);
  status_ = std::move(status);
  if (TraceRecorder* trace = node.trace()) trace_call(*trace);
  node.operation_ended(*this);
  const OnDone on_done = on_done_;
  void* const context = context_;
  done_.store(true, std::memory_order_release);
  if (on_done != nullptr) on_done(context, status_);
}

}  // namespace tersum
