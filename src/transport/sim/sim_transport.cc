#include "transport/sim/sim_transport.h"

#include <algorithm>
#include <charconv>
#include <cstring>
#include <limits>

#include "base/check.h"
#include "wire/handshake.h"

namespace tersum {
namespace {

constexpr std::string_view kPrefix = "sim:";
constexpr int64_t kNever = std::numeric_limits<int64_t>::max();

}  // namespace

// ---- link

void SimLink::send(const MessageHeader& header, const SlotRef& payload) {
  if (down_ || ending_) return;
  TERSUM_CHECK(header.payload_bytes == 0 || header.payload_bytes <= payload.bytes().size());
  outbox_.push_back({header, header.payload_bytes > 0 ? payload : SlotRef()});
  backlog_bytes_ += kMessageHeaderBytes + header.payload_bytes;
  flush();
}

void SimLink::send_lent(const MessageHeader& header, const SlotRef& payload, SourcePieces lent) {
  lent_.push_back({payload, {lent.begin(), lent.end()}, header.payload_bytes});
  send(header, payload);
}

void SimLink::settle() {
  for (const Lent& lent : lent_) {
    copy_out(lent.pieces, 0, lent.slot.bytes().data(), lent.bytes);
  }
  lent_.clear();
}

bool SimLink::gathers() const { return owner_->state_->options.gathers; }

void SimLink::drop_landings() {
  if (!inbox_.empty()) inbox_.front().landing.clear();
}

// A payload is half there until the next poll().
void SimLink::begin_landing() {
  if (down_ || inbox_.empty() || owner_->sink_ == nullptr) return;
  Waiting& next = inbox_.front();
  if (!next.slot || !next.landing.empty()) return;
  owner_->sink_->find_landing(*this, next.header, next.landing);
  copy_in(next.landing, 0, next.slot.bytes().data(), next.header.payload_bytes / 2);
}

void SimLink::flush() {
  while (!down_ && !outbox_.empty() && !owner_->frozen_) {
    const uint32_t bytes = outbox_.front().header.payload_bytes;
    if (flying_bytes_ > 0 && flying_bytes_ + bytes > owner_->state_->options.window_bytes) return;
    SimFlight flight;
    flight.from = owner_->index_;
    flight.to = peer_node_;
    flight.link = number_;
    flight.header = outbox_.front().header;
    flight.slot = std::move(outbox_.front().slot);
    outbox_.pop_front();
    backlog_bytes_ -= kMessageHeaderBytes + bytes;
    flying_bytes_ += bytes;
    if (owner_->watch_ != nullptr) owner_->watch_->on_taken(flight.header);
    owner_->state_->depart(std::move(flight));
  }
}

bool SimLink::poll() {
  if (down_ || !announced_ || owner_->frozen_) return false;
  const size_t most = 1 + owner_->state_->random.below(owner_->state_->options.messages_per_poll);
  size_t delivered = 0;
  while (delivered < most && !inbox_.empty() && !down_) {
    begin_landing();
    Waiting next = std::move(inbox_.front());
    inbox_.pop_front();
    ++delivered;
    InMessage message;
    message.header = next.header;
    if (next.slot) {
      message.payload = next.slot.bytes().first(next.header.payload_bytes);
      if (!next.landing.empty()) {
        copy_in(next.landing, 0, message.payload.data(), message.payload.size());
        message.payload = next.landing.front();
        message.landed = true;
      }
      message.hold = PayloadHold(std::move(next.slot));
    }
    if (owner_->sink_ != nullptr) owner_->sink_->on_message(*this, std::move(message));
  }
  begin_landing();
  if (!down_ && ending_ && inbox_.empty()) {
    go_down(Status(StatusCode::kPeerLost, end_reason_));
    return true;
  }
  return delivered > 0;
}

void SimLink::go_down(const Status& reason) {
  down_ = true;
  outbox_.clear();
  inbox_.clear();
  backlog_bytes_ = 0;
  if (owner_->sink_ != nullptr) owner_->sink_->on_link_down(*this, reason);
}

void SimLink::close() {
  if (down_ || owner_->killed_) return;
  flush();
  down_ = true;
  outbox_.clear();
  inbox_.clear();
  backlog_bytes_ = 0;
  owner_->state_->end_link_later(
      owner_->index_, peer_node_, number_, 0,
      "simulated node " + std::to_string(owner_->index_) + " left: it closed its communicators");
}

// ---- transport

SimTransport::~SimTransport() {
  if (!killed_) {
    for (const auto& link : links_) link->close();
    state_->remove_node(index_, true);
  }
}

Status SimTransport::listen(const ListenOptions& options) {
  if (options.tcp_streams < 0 || options.tcp_streams > kStreamsMax) {
    return invalid_argument("tcp_streams is out of range");
  }
  return {};
}

std::string SimTransport::address() const { return std::string(kPrefix) + std::to_string(index_); }

Result<ProcessId> SimTransport::parse_peer(std::string_view address) const {
  const Status wrong(StatusCode::kProtocol,
                     "'" + std::string(address) + "' is not the address of a simulated node");
  if (!address.starts_with(kPrefix)) return wrong;
  address.remove_prefix(kPrefix.size());
  size_t index = 0;
  const char* end = address.data() + address.size();
  const auto [stop, error] = std::from_chars(address.data(), end, index);
  if (error != std::errc() || stop != end || index >= state_->nodes.size()) return wrong;
  return state_->id_of(static_cast<int>(index));
}

std::string SimTransport::host_of(std::string_view address) const {
  const Result<ProcessId> id = parse_peer(address);
  if (!id.ok()) return std::string(address);
  if (state_->options.hosts == 0) return std::string(address);
  int node = 0;
  while (state_->id_of(node) != id.value()) ++node;
  return "host " + std::to_string(node % state_->options.hosts);
}

std::string SimTransport::cpus_of(std::string_view) const { return state_->options.cpus; }

size_t SimTransport::cache_bytes_of(std::string_view) const { return 0; }

void SimTransport::admit(uint64_t group, const GroupToken& token) {
  admitted_.emplace_back(group, token);
}

void SimTransport::forget(uint64_t group) {
  std::erase_if(admitted_, [group](const auto& pair) { return pair.first == group; });
}

bool SimTransport::admits(uint64_t group, const GroupToken& token) const {
  return std::any_of(admitted_.begin(), admitted_.end(), [&](const auto& pair) {
    return pair.first == group && tokens_equal(pair.second, token);
  });
}

void SimTransport::connect(std::string_view address, uint64_t group, const GroupToken& token,
                           TransportKind kind, int64_t deadline_ns) {
  if (killed_) return;
  const Result<ProcessId> peer = parse_peer(address);
  if (!peer.ok()) {
    failures_.emplace_back(ProcessId{}, peer.status());
    return;
  }
  if (kind == TransportKind::kSharedMemory) {
    failures_.emplace_back(peer.value(), Status(StatusCode::kUnavailable,
                                                "simulated nodes share no memory; use transport "
                                                "\"auto\" or \"tcp\""));
    return;
  }
  if (find(peer.value()) != nullptr) return;
  const int node = state_->index_of(peer.value());
  const SimState::Greeting greeting{index_, node, peer.value(), group, token, deadline_ns};
  state_->after(state_->latency_ns(), [state = state_, greeting] { state->greet(greeting); });
}

Link* SimTransport::find(ProcessId peer) {
  for (const auto& link : links_) {
    if (link->announced_ && !link->down_ && link->peer_ == peer) return link.get();
  }
  return nullptr;
}

SimLink* SimTransport::live_link(int peer_node) {
  for (const auto& link : links_) {
    if (!link->down_ && link->peer_node_ == peer_node) return link.get();
  }
  return nullptr;
}

SimLink* SimTransport::link_by_number(uint64_t number) {
  for (const auto& link : links_) {
    if (link->number_ == number) return link.get();
  }
  return nullptr;
}

bool SimTransport::report() {
  bool moved = false;
  while (!news_.empty()) {
    SimLink* link = news_.front();
    news_.pop_front();
    if (link->down_) continue;
    link->announced_ = true;
    moved = true;
    if (sink_ != nullptr) sink_->on_link_up(*link);
  }
  while (!failures_.empty()) {
    const auto [peer, reason] = std::move(failures_.front());
    failures_.pop_front();
    moved = true;
    if (sink_ != nullptr) sink_->on_connect_failed(peer, reason);
  }
  return moved;
}

bool SimTransport::poll() {
  if (frozen_ || killed_) return false;
  bool moved = report();
  // By index: the sink may close links, and connect() only makes events.
  for (size_t i = 0; i < links_.size(); ++i) moved |= links_[i]->poll();
  return moved;
}

void SimTransport::wait(int64_t timeout_ns) {
  const int64_t now = state_->clock.now_ns();
  const int64_t until = timeout_ns < kNever - now ? now + std::max<int64_t>(timeout_ns, 0) : kNever;
  if (!state_->events.empty() && state_->events.top().time_ns <= until) {
    state_->run_next();
  } else if (until != kNever) {
    state_->set_now(until);
  }
}

}  // namespace tersum
