// The part of Node that matches messages to calls, and keeps groups and links.
#include <algorithm>
#include <string>
#include <utility>

#include "base/check.h"
#include "base/copy_bytes.h"
#include "runtime/call_counters.h"
#include "runtime/call_descriptor.h"
#include "runtime/node.h"

namespace tersum {
namespace {

// Parked messages are descriptors, cancels and eager payloads; an honest peer stays far below.
constexpr size_t kParkedMessagesMax = 64 * 1024;
// Calls that have not begun here whose descriptors passed here; honest peers are a few calls ahead.
constexpr size_t kEarlyTransitsMax = 4096;

// The rank that a message is handed to now.
int receiver_of(const MessageHeader& header) {
  return header.via != 0 ? header.via - 1 : header.to_rank;
}

}  // namespace

void Node::on_message(Link& link, InMessage message) {
  LinkState* state = find_link(&link);
  if (state == nullptr) return;
  state->last_heard_ns = now_ns_;
  route(std::move(message), state);
}

// As far as route_to_member() would let the message get.
void Node::find_landing(Link& link, const MessageHeader& header, Landing& landing) {
  if (header.kind != MessageKind::kData || header.via != 0) return;
  Member* const member = find_member(header.group, header.to_rank);
  const bool knows = member != nullptr && member->registered && header.from_rank < member->size() &&
                     header.from_rank != member->rank;
  if (!knows || member->places[header.from_rank].link != &link) return;
  for (const auto& operation : member->active) {
    if (operation->request().call != header.call || operation->done()) continue;
    operation->find_landing(header, landing);
    any_landing_ |= !landing.empty();
    return;
  }
}

void Node::route(InMessage message, LinkState* from) {
  const MessageHeader& header = message.header;
  if (header.via != 0) {
    if (Member* member = find_member(header.group, header.via - 1)) {
      relay(*member, message);
    } else {
      park_unknown(std::move(message));
    }
    return;
  }
  if (trace_ != nullptr) trace_arrival(header);
  switch (header.kind) {
    case MessageKind::kPing:
      if (Member* member = find_member(header.group, header.to_rank);
          member != nullptr && !member->routes.direct() && header.from_rank < member->size()) {
        MessageHeader pong;
        pong.kind = MessageKind::kPong;
        pong.from_rank = header.to_rank;
        pong.to_rank = header.from_rank;
        pong.group = header.group;
        send(*member, pong, {});
      } else if (from != nullptr) {
        MessageHeader pong;
        pong.kind = MessageKind::kPong;
        pong.from_rank = header.to_rank;
        pong.to_rank = header.from_rank;
        pong.group = header.group;
        from->dirty = any_dirty_ = true;
        from->link->send(pong, {});
      }
      return;
    case MessageKind::kPong:
      if (Member* member = find_member(header.group, header.to_rank);
          member != nullptr && header.from_rank < member->size()) {
        member->places[header.from_rank].heard_ns = now_ns_;
      }
      return;
    case MessageKind::kGoodbye:
      if (find_member(header.group, header.to_rank) == nullptr) {
        park_unknown(std::move(message));
      } else {
        on_goodbye(header);
      }
      return;
    default:
      break;
  }
  if (Member* member = find_member(header.group, header.to_rank)) {
    route_to_member(*member, std::move(message), from);
    return;
  }
  park_unknown(std::move(message));
}

void Node::trace_arrival(const MessageHeader& header) {
  if (header.kind == MessageKind::kData) trace_->record_message(TraceKind::kArrived, header);
  if (header.kind == MessageKind::kReady) trace_->record_message(TraceKind::kReady, header);
}

// For a rank that is not here yet; what is for one that was here is dropped.
void Node::park_unknown(InMessage message) {
  const std::pair<uint64_t, int> place{message.header.group, receiver_of(message.header)};
  if (std::find(closed_.begin(), closed_.end(), place) != closed_.end()) return;
  if (unknown_.size() < kParkedMessagesMax) unknown_.push_back(std::move(message));
}

void Node::route_to_member(Member& member, InMessage message, LinkState* from) {
  const MessageHeader& header = message.header;
  if (!member.registered) return;  // being left: nothing may be parked any more
  if (header.from_rank >= member.size() || header.from_rank == member.rank) return;
  // A process speaks for its own ranks, and for those whose way leads through them.
  const int last = member.routes.last_from(header.from_rank);
  const RankPlace& place = member.places[static_cast<size_t>(last)];
  if (from != nullptr ? place.link != from->link : !place.local) return;
  if (last != header.from_rank) member.places[header.from_rank].heard_ns = now_ns_;
  for (const auto& operation : member.active) {
    if (operation->request().call != header.call || operation->done()) continue;
    operation->on_message(*this, std::move(message));
    return;
  }
  if (header.kind == MessageKind::kCancel) on_idle_cancel(member, message);
  if (header.call == kNoCall || is_over(member, header.call)) return;
  if (member.parked.size() < kParkedMessagesMax) member.parked.push_back(std::move(message));
}

// A notice for a call that is not in flight here: its sender takes no further part in the group, so
// no call that is in flight here can end well.
void Node::on_idle_cancel(Member& member, const InMessage& message) {
  const auto notice = decode_cancel(message.payload);
  if (!notice || !notice->poisons) return;
  std::string text(notice->text);
  if (notice->code == StatusCode::kAborted || notice->code == StatusCode::kClosed) {
    text = member.name_of(message.header.from_rank) + ": " + text;
  }
  doom(member, Status(notice->code, std::move(text)));
}

// Hands a message on to the next rank of its way. Its bytes are not looked at.
void Node::relay(Member& member, const InMessage& message) {
  MessageHeader header = message.header;
  const bool known = header.from_rank < member.size() && header.to_rank < member.size();
  if (!member.registered || !known || member.routes.direct()) return;
  if (header.from_rank == member.rank || header.to_rank == member.rank) return;
  const int hop = member.routes.next_to(header.to_rank);
  header.via = hop == header.to_rank ? 0 : static_cast<uint16_t>(hop + 1);
  SlotRef slot = message.hold.slot();
  if (!message.payload.empty() && (!slot || slot.bytes().data() != message.payload.data())) {
    // Bytes in a peer's memory are copied: what is queued must outlive their hold.
    Result<SlotRef> copy = reserve(message.payload.size());
    if (!copy.ok()) return;  // the receiver's deadline tells
    slot = std::move(copy).value();
    copy_bytes(slot.bytes().data(), message.payload.data(), message.payload.size());
  }
  hand_over(member, hop, header, slot, {});
  if (header.kind == MessageKind::kReady) count_transit(member, header.call);
}

void Node::count_transit(Member& member, uint64_t call) {
  for (const auto& operation : member.active) {
    if (operation->request().call != call || operation->done()) continue;
    operation->on_transit();
    return;
  }
  if (is_over(member, call)) return;
  for (auto& [early_call, count] : member.early_transits) {
    if (early_call != call) continue;
    ++count;
    return;
  }
  if (member.early_transits.size() < kEarlyTransitsMax) member.early_transits.emplace_back(call, 1);
}

uint32_t Node::take_early_transits(Member& member, uint64_t call) {
  for (auto entry = member.early_transits.begin(); entry != member.early_transits.end(); ++entry) {
    if (entry->first != call) continue;
    const uint32_t count = entry->second;
    member.early_transits.erase(entry);
    return count;
  }
  return 0;
}

void Node::on_goodbye(const MessageHeader& header) {
  Member* member = find_member(header.group, header.to_rank);
  if (member == nullptr || header.from_rank >= member->size()) return;
  RankPlace& place = member->places[header.from_rank];
  if (place.left) return;
  place.left = true;
  place.left_ns = now_ns_;
  poison(*member, {StatusCode::kPeerLost, member->name_of(header.from_rank) +
                                              " has closed its communicator; make a new one"});
}

bool Node::is_over(const Member& member, uint64_t call) const {
  if (!member.keyed) return call < member.begun_calls;
  const auto& keys = member.ended_keys;
  return std::find(keys.begin(), keys.end(), call) != keys.end();
}

void Node::adopt_parked(Member& member, Operation& operation) {
  const uint64_t call = operation.request().call;
  for (size_t i = 0; i < member.parked.size();) {
    if (member.parked[i].header.call != call) {
      ++i;
      continue;
    }
    InMessage message = std::move(member.parked[i]);
    member.parked.erase(member.parked.begin() + static_cast<std::ptrdiff_t>(i));
    operation.on_message(*this, std::move(message));
  }
}

void Node::adopt_unknown(Member& member) {
  for (size_t i = 0; i < unknown_.size();) {
    const MessageHeader& header = unknown_[i].header;
    if (header.group != member.group || receiver_of(header) != member.rank) {
      ++i;
      continue;
    }
    InMessage message = std::move(unknown_[i]);
    unknown_.erase(unknown_.begin() + static_cast<std::ptrdiff_t>(i));
    if (message.header.via != 0) {
      relay(member, message);
      continue;
    }
    if (message.header.kind == MessageKind::kGoodbye) {
      on_goodbye(message.header);
      continue;
    }
    // Which link it came by was not kept; the sender's place says which it must have been.
    const bool known = message.header.from_rank < member.size();
    const int last = known ? member.routes.last_from(message.header.from_rank) : 0;
    LinkState* from = known ? find_link(member.places[static_cast<size_t>(last)].link) : nullptr;
    route_to_member(member, std::move(message), from);
  }
}

void Node::register_member(const std::shared_ptr<Member>& member) {
  TERSUM_CHECK(!member->registered);
  TERSUM_CHECK(find_member(member->group, member->rank) == nullptr);
  member->registered = true;
  members_.push_back(member);
  for (RankPlace& place : member->places) {
    const auto rank = static_cast<int>(&place - member->places.data());
    if (place.local || rank == member->rank || !member->is_neighbour(rank)) continue;
    place.link = transport_->find(place.process);
    if (LinkState* state = find_link(place.link)) {
      ++state->members;
      continue;
    }
    // Lost since the group met: said now, not at the deadline of the first call.
    poison(*member, {StatusCode::kPeerLost,
                     member->name_of(rank) + " is gone; make a new communicator without it"});
  }
  adopt_unknown(*member);
}

void Node::unregister_member(const std::shared_ptr<Member>& member, const Status& reason) {
  constexpr size_t kClosedKept = 4096;
  if (!member->registered) return;
  member->registered = false;
  if (closed_.size() >= kClosedKept) closed_.erase(closed_.begin());
  closed_.emplace_back(member->group, member->rank);
  poison(*member, reason);
  for (const auto& operation : member->active) operation->fail(*this, reason);
  member->active.clear();
  member->parked.clear();
  for (int peer = 0; peer < member->size(); ++peer) {
    if (peer == member->rank) continue;
    MessageHeader goodbye;
    goodbye.kind = MessageKind::kGoodbye;
    goodbye.from_rank = static_cast<uint16_t>(member->rank);
    goodbye.to_rank = static_cast<uint16_t>(peer);
    goodbye.group = member->group;
    goodbye.call = kNoCall;
    send(*member, goodbye, {});
  }
  deliver_local();
  flush_links();
  std::erase(members_, member);
  for (RankPlace& place : member->places) {
    LinkState* state = find_link(place.link);
    place.link = nullptr;
    if (state == nullptr || --state->members > 0) continue;
    Link* link = state->link;
    links_.erase(links_.begin() + (state - links_.data()));
    CallCounters::process().count_link_closed();
    link->close();
  }
}

void Node::abort_member(Member& member, const Status& reason) {
  doom(member, reason);
  for (const auto& operation : member.active) operation->fail(*this, reason);
  cancel_all(member, kNoCall, reason, true);
}

void Node::cancel_all(Member& member, uint64_t call, const Status& status, bool poisons) {
  Result<SlotRef> slot = reserve(8 + kCancelTextBytesMax);
  if (!slot.ok()) return;  // the others have their own deadlines
  const size_t bytes = encode_cancel({status.code(), poisons, status.message()}, slot->bytes());
  for (int peer = 0; peer < member.size(); ++peer) {
    if (peer == member.rank) continue;
    MessageHeader cancel;
    cancel.kind = MessageKind::kCancel;
    cancel.from_rank = static_cast<uint16_t>(member.rank);
    cancel.to_rank = static_cast<uint16_t>(peer);
    cancel.group = member.group;
    cancel.call = call;
    cancel.payload_bytes = static_cast<uint32_t>(bytes);
    send(member, cancel, *slot);
  }
}

void Node::on_link_up(Link& link) {
  if (find_link(&link) != nullptr) return;
  LinkState state;
  state.link = &link;
  state.peer = link.peer();
  state.last_heard_ns = now_ns_;
  for (const auto& member : members_) {
    for (int rank = 0; rank < member->size(); ++rank) {
      RankPlace& place = member->places[static_cast<size_t>(rank)];
      if (place.local || place.link != nullptr || place.process != state.peer) continue;
      if (!member->is_neighbour(rank)) continue;
      place.link = &link;
      ++state.members;
    }
  }
  links_.push_back(state);
  CallCounters::process().count_link_opened();
}

void Node::on_link_down(Link& link, const Status& reason) {
  LinkState* state = find_link(&link);
  if (state == nullptr) return;
  CallCounters::process().count_link_lost();
  links_.erase(links_.begin() + (state - links_.data()));
  for (const auto& member : members_) {
    for (int rank = 0; rank < member->size(); ++rank) {
      RankPlace& place = member->places[static_cast<size_t>(rank)];
      if (place.link != &link) continue;
      place.link = nullptr;
      const Status lost(StatusCode::kPeerLost, member->name_of(rank) + " is gone (" +
                                                   std::string(reason.message()) +
                                                   "); make a new communicator without it");
      poison(*member, lost);
      for (const auto& operation : member->active) operation->on_peer_down(*this, rank, reason);
      // Ranks that are no neighbours of the lost one would otherwise wait for it until a deadline.
      if (!member->routes.direct() && !place.left) cancel_all(*member, kNoCall, lost, true);
    }
  }
}

void Node::on_connect_failed(ProcessId peer, const Status& reason) {
  connect_failures_.emplace_back(peer, reason);
  CallCounters::process().count_connect_failed();
}

void Node::forget_connect_failure(ProcessId peer) {
  std::erase_if(connect_failures_, [&](const auto& failure) { return failure.first == peer; });
}

Status Node::connect_failure(ProcessId peer) const {
  for (const auto& [process, reason] : connect_failures_) {
    if (process == peer) return reason;
  }
  return {};
}

}  // namespace tersum
