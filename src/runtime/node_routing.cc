// The part of Node that matches messages to calls, and keeps groups and links.
#include <algorithm>
#include <string>
#include <utility>

#include "base/check.h"
#include "runtime/call_counters.h"
#include "runtime/call_descriptor.h"
#include "runtime/node.h"

namespace tersum {
namespace {

// Parked messages are descriptors, cancels and eager payloads; an honest peer stays far below.
constexpr size_t kParkedMessagesMax = 64 * 1024;
// Call number of a notice that concerns the group, not one call.
constexpr uint64_t kNoCall = ~uint64_t{0};

}  // namespace

void Node::on_message(Link& link, InMessage message) {
  LinkState* state = find_link(&link);
  if (state == nullptr) return;
  state->last_heard_ns = now_ns_;
  route(std::move(message), state);
}

void Node::route(InMessage message, LinkState* from) {
  const MessageHeader& header = message.header;
  if (trace_ != nullptr) trace_arrival(header);
  switch (header.kind) {
    case MessageKind::kPing:
      if (from != nullptr) {
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
  const std::pair<uint64_t, int> place{message.header.group, message.header.to_rank};
  if (std::find(closed_.begin(), closed_.end(), place) != closed_.end()) return;
  if (unknown_.size() < kParkedMessagesMax) unknown_.push_back(std::move(message));
}

void Node::route_to_member(Member& member, InMessage message, LinkState* from) {
  const MessageHeader& header = message.header;
  if (!member.registered) return;  // being left: nothing may be parked any more
  if (header.from_rank >= member.size() || header.from_rank == member.rank) return;
  const RankPlace& place = member.places[header.from_rank];
  // A process speaks for its own ranks only.
  if (from != nullptr ? place.link != from->link : !place.local) return;
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
    if (header.group != member.group || header.to_rank != member.rank) {
      ++i;
      continue;
    }
    InMessage message = std::move(unknown_[i]);
    unknown_.erase(unknown_.begin() + static_cast<std::ptrdiff_t>(i));
    if (message.header.kind == MessageKind::kGoodbye) {
      on_goodbye(message.header);
      continue;
    }
    // Which link it came by was not kept; the sender's place says which it must have been.
    const bool known = message.header.from_rank < member.size();
    LinkState* from = known ? find_link(member.places[message.header.from_rank].link) : nullptr;
    route_to_member(member, std::move(message), from);
  }
}

void Node::register_member(const std::shared_ptr<Member>& member) {
  TERSUM_CHECK(!member->registered);
  TERSUM_CHECK(find_member(member->group, member->rank) == nullptr);
  member->registered = true;
  members_.push_back(member);
  for (RankPlace& place : member->places) {
    if (place.local) continue;
    place.link = transport_->find(place.process);
    if (LinkState* state = find_link(place.link)) {
      ++state->members;
      continue;
    }
    // Lost since the group met: said now, not at the deadline of the first call.
    const auto lost = static_cast<int>(&place - member->places.data());
    poison(*member, {StatusCode::kPeerLost,
                     member->name_of(lost) + " is gone; make a new communicator without it"});
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
  Result<SlotRef> slot = reserve(8 + kCancelTextBytesMax);
  if (!slot.ok()) return;
  const size_t bytes = encode_cancel({reason.code(), true, reason.message()}, slot->bytes());
  for (int peer = 0; peer < member.size(); ++peer) {
    if (peer == member.rank) continue;
    MessageHeader cancel;
    cancel.kind = MessageKind::kCancel;
    cancel.from_rank = static_cast<uint16_t>(member.rank);
    cancel.to_rank = static_cast<uint16_t>(peer);
    cancel.group = member.group;
    cancel.call = kNoCall;
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
    for (RankPlace& place : member->places) {
      if (place.local || place.link != nullptr || place.process != state.peer) continue;
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
      poison(*member, {StatusCode::kPeerLost, member->name_of(rank) + " is gone (" +
                                                  std::string(reason.message()) +
                                                  "); make a new communicator without it"});
      for (const auto& operation : member->active) operation->on_peer_down(*this, rank, reason);
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
