#include "runtime/node.h"

#include <algorithm>
#include <string>
#include <utility>

#include "base/check.h"
#include "platform/remote_memory.h"
#include "runtime/call_counters.h"

namespace tersum {
namespace {

// Payloads that travel before their receiver is ready, per link: 32 calls' worth.
constexpr size_t kEagerLinkBytesMax = 4 * kEagerBytesMax;

}  // namespace

Node::Node(const Clock& clock, std::unique_ptr<Transport> transport)
    : clock_(clock), transport_(std::move(transport)) {
  transport_->set_sink(this);
  now_ns_ = clock_.now_ns();
}

Node::~Node() {
  // Messages hold slots of the transport's arena: they go first.
  local_messages_.clear();
  local_batch_.clear();
  unknown_.clear();
  for (const auto& member : members_) member->parked.clear();
  transport_->set_sink(nullptr);
  for (size_t i = 0; i < links_.size(); ++i) CallCounters::process().count_link_closed();
}

void Node::submit(std::shared_ptr<Operation> operation) {
  pending_.fetch_add(1, std::memory_order_acq_rel);
  {
    const std::lock_guard lock(submissions_mutex_);
    submissions_.push_back({std::move(operation), {}});
  }
  transport_->wake();
}

void Node::post(std::function<void(Node&)> task) {
  pending_.fetch_add(1, std::memory_order_acq_rel);
  {
    const std::lock_guard lock(submissions_mutex_);
    submissions_.push_back({nullptr, std::move(task)});
  }
  transport_->wake();
}

bool Node::drain_submissions() {
  {
    const std::lock_guard lock(submissions_mutex_);
    if (submissions_.empty()) return false;
    taken_.swap(submissions_);
  }
  for (Submission& submission : taken_) {
    if (submission.task) {
      submission.task(*this);
      pending_.fetch_sub(1, std::memory_order_acq_rel);
      ++ended_;
    } else {
      begin_operation(submission.operation);
    }
  }
  taken_.clear();
  return true;
}

bool Node::step() {
  now_ns_ = clock_.now_ns();
  bool moved = drain_submissions();
  // What a call can send at once leaves with its descriptor, in one system call and one segment.
  if (moved) advance_operations();
  moved |= transport_->poll();
  moved |= deliver_local();
  moved |= advance_operations();
  flush_links();
  return moved;
}

void Node::begin_operation(const std::shared_ptr<Operation>& operation) {
  Member& member = operation->member();
  Operation& begun = *operation;
  // A group that has been left has poisoned the member: begin() ends the call at once.
  if (member.registered) member.active.push_back(operation);
  if (!member.keyed) member.begun_calls = begun.request().call + 1;
  begun.begin(*this);
  adopt_parked(member, begun);
}

void Node::operation_ended(Operation& operation) {
  constexpr size_t kEndedKeysKept = 1024;
  pending_.fetch_sub(1, std::memory_order_acq_rel);
  ++ended_;
  Member& member = operation.member();
  if (!member.keyed) return;
  if (member.ended_keys.size() >= kEndedKeysKept) {
    member.ended_keys.erase(member.ended_keys.begin());
  }
  member.ended_keys.push_back(operation.request().call);
}

int64_t Node::sleep_ns(int64_t limit_ns) const {
  const int64_t now = clock_.now_ns();
  int64_t sleep = limit_ns;
  for (const auto& member : members_) {
    for (const auto& operation : member->active) {
      sleep = std::min(sleep, operation->deadline_ns() - now);
    }
  }
  return std::max<int64_t>(sleep, 0);
}

void Node::set_trace(TraceRecorder* trace) {
  trace_ = trace;
  transport_->set_watch(trace);
}

size_t Node::backlog_bytes() const {
  size_t bytes = 0;
  for (const LinkState& state : links_) bytes += state.link->backlog_bytes();
  return bytes;
}

void Node::flush_links() {
  if (!any_dirty_) return;
  any_dirty_ = false;
  // By index: a link that breaks while flushing is taken out of links_.
  for (size_t i = 0; i < links_.size(); ++i) {
    if (!links_[i].dirty) continue;
    links_[i].dirty = false;
    links_[i].link->flush();
  }
}

void Node::settle_lent() {
  if (!any_lent_) return;
  any_lent_ = false;
  // By index, as in flush_links().
  for (size_t i = 0; i < links_.size(); ++i) {
    if (!std::exchange(links_[i].lent, false)) continue;
    links_[i].dirty = false;
    links_[i].link->settle();
  }
}

void Node::drop_landings() {
  if (!std::exchange(any_landing_, false)) return;
  for (const LinkState& state : links_) state.link->drop_landings();
}

void Node::send(Member& member, const MessageHeader& header, const SlotRef& payload,
                SourcePieces lent) {
  if (trace_ != nullptr && header.kind == MessageKind::kData) {
    trace_->record_message(TraceKind::kQueued, header);
  }
  const int hop = member.routes.next_to(header.to_rank);
  if (hop == header.to_rank) {
    hand_over(member, hop, header, payload, lent);
    return;
  }
  MessageHeader relayed = header;
  relayed.via = static_cast<uint16_t>(hop + 1);
  hand_over(member, hop, relayed, payload, lent);
}

void Node::hand_over(Member& member, int neighbour, const MessageHeader& header,
                     const SlotRef& payload, SourcePieces lent) {
  const RankPlace& place = member.places[static_cast<size_t>(neighbour)];
  if (place.local) {
    InMessage message;
    message.header = header;
    if (payload) message.payload = payload.bytes().first(header.payload_bytes);
    message.hold = PayloadHold(payload);
    local_messages_.push_back(std::move(message));
    return;
  }
  LinkState* const state = find_link(place.link);
  if (state == nullptr) return;
  state->dirty = any_dirty_ = true;
  if (lent.empty()) {
    place.link->send(header, payload);
  } else {
    state->lent = any_lent_ = true;
    place.link->send_lent(header, payload, lent);
  }
}

// In batches: what a delivery sends is delivered in the next round, so that two ranks of one
// process cannot keep each other busy for ever inside one step.
bool Node::deliver_local() {
  if (local_messages_.empty()) return false;
  local_batch_.swap(local_messages_);
  for (InMessage& message : local_batch_) route(std::move(message), nullptr);
  local_batch_.clear();
  return true;
}

bool Node::finds(const void* array, size_t bytes) const {
  ArrayDoor* const door = transport_->door();
  if (door == nullptr || bytes == 0) return false;
  std::byte byte;
  const auto found = [&](uint64_t at) {
    return read_remote(door->number(), at, {&byte, 1}) == RemoteCopy::kDone;
  };
  const auto first = reinterpret_cast<uintptr_t>(array);
  return found(first) && found(first + bytes - 1);
}

size_t Node::link_backlog_bytes(const Member& member, int rank) const {
  const Link* link = member.places[static_cast<size_t>(rank)].link;
  return link == nullptr ? 0 : link->backlog_bytes();
}

bool Node::gathers(const Member& member) {
  bool any = false;
  for (const RankPlace& place : member.places) {
    if (place.link == nullptr) continue;
    if (!place.link->gathers()) return false;
    any = true;
  }
  return any;
}

bool Node::eager_room(const Member& member, int rank, size_t bytes) const {
  const RankPlace& place = member.places[static_cast<size_t>(rank)];
  if (place.local) return true;
  const LinkState* state = find_link(place.link);
  return state != nullptr && state->eager_bytes + bytes <= kEagerLinkBytesMax;
}

void Node::take_eager(const Member& member, int rank, size_t bytes) {
  LinkState* state = find_link(member.places[static_cast<size_t>(rank)].link);
  if (state != nullptr) state->eager_bytes += bytes;
}

void Node::give_back_eager(const Member& member, int rank, size_t bytes) {
  LinkState* state = find_link(member.places[static_cast<size_t>(rank)].link);
  if (state != nullptr) state->eager_bytes -= std::min(bytes, state->eager_bytes);
}

void Node::ping(Member& member, int rank) {
  MessageHeader header;
  header.kind = MessageKind::kPing;
  header.from_rank = static_cast<uint16_t>(member.rank);
  header.to_rank = static_cast<uint16_t>(rank);
  header.group = member.group;
  if (!member.places[static_cast<size_t>(rank)].local) send(member, header, {});
}

bool Node::heard_since(const Member& member, int rank, int64_t since_ns) const {
  const RankPlace& place = member.places[static_cast<size_t>(rank)];
  if (place.local) return true;
  const LinkState* state = find_link(place.link);
  return place.heard_ns >= since_ns || (state != nullptr && state->last_heard_ns >= since_ns);
}

Node::LinkState* Node::find_link(const Link* link) {
  for (LinkState& state : links_) {
    if (state.link == link) return &state;
  }
  return nullptr;
}

const Node::LinkState* Node::find_link(const Link* link) const {
  return const_cast<Node*>(this)->find_link(link);
}

Member* Node::find_member(uint64_t group, int rank) const {
  for (const auto& member : members_) {
    if (member->group == group && member->rank == rank) return member.get();
  }
  return nullptr;
}

bool Node::has_cpu_each() const {
  return std::all_of(members_.begin(), members_.end(),
                     [](const auto& member) { return member->cpu_each; });
}

bool Node::has_group(uint64_t group) const {
  return std::any_of(members_.begin(), members_.end(),
                     [&](const auto& member) { return member->group == group; });
}

void Node::doom(Member& member, const Status& cause) {
  poison(member, cause);
  if (member.doom.ok()) member.doom = cause;
}

void Node::poison(Member& member, const Status& cause) {
  TERSUM_CHECK(!cause.ok());
  {
    const std::lock_guard lock(member.mutex);
    if (member.poison.ok()) member.poison = cause;
  }
  if (member.parent != nullptr) poison(*member.parent, cause);
}

}  // namespace tersum
