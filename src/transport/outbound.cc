#include "transport/outbound.h"

#include <algorithm>
#include <limits>

#include "base/check.h"
#include "platform/stream_socket.h"
#include "platform/system_error.h"
#include "tersum/version.h"
#include "transport/host_link.h"
#include "transport/shm/mailbox.h"

namespace tersum {
namespace {

// Pauses between tries: the first ones are short because ranks start at nearly the same time.
constexpr int64_t kFirstPauseNs = 2'000'000;
constexpr int64_t kLongestPauseNs = 200'000'000;
constexpr int64_t kNever = std::numeric_limits<int64_t>::max();

int64_t last_deadline_ns(const std::vector<Outbound::Request>& requests) {
  int64_t last = 0;
  for (const Outbound::Request& request : requests) last = std::max(last, request.deadline_ns);
  return last;
}

}  // namespace

void Outbound::start(Request request, std::string no_shared_memory, int tcp_streams) {
  const ProcessId peer = request.address.id;
  Attempt& attempt = attempts_[peer];
  if (attempt.requests.empty()) {
    attempt.address = request.address;
    attempt.no_shared_memory = std::move(no_shared_memory);
    attempt.tcp_streams = tcp_streams;
    attempt.pause_ns = kFirstPauseNs;
    attempt.started_ns = context_->clock->now_ns();
  }
  attempt.requests.push_back(std::move(request));
}

bool Outbound::poll(std::vector<Established>& links, std::vector<Failure>& failures) {
  if (attempts_.empty()) return false;
  const int64_t now = context_->clock->now_ns();
  bool moved = false;
  for (auto item = attempts_.begin(); item != attempts_.end();) {
    const size_t links_before = links.size();
    Status status = advance(item->first, item->second, now, links, &moved);
    const bool over = links.size() > links_before || !status.ok();
    if (!status.ok()) failures.push_back({item->first, std::move(status)});
    moved |= over;
    item = over ? attempts_.erase(item) : std::next(item);
  }
  return moved;
}

Status Outbound::advance(ProcessId peer, Attempt& attempt, int64_t now,
                         std::vector<Established>& links, bool* moved) {
  if (attempt.streams.empty() && now >= attempt.retry_ns && !policy_->should_wait(peer)) {
    *moved = true;
    TERSUM_RETURN_IF_ERROR(begin_try(attempt));
  }
  size_t welcomed = 0;
  for (size_t i = 0; i < attempt.streams.size(); ++i) {
    // The last stream's failure ends the try and leaves none.
    TERSUM_RETURN_IF_ERROR(advance_stream(attempt, i));
    if (attempt.streams.empty()) break;
    if (attempt.streams[i].stage == Stage::kWelcomed) ++welcomed;
  }
  if (welcomed > 0 && welcomed == attempt.streams.size()) {
    if (establish(attempt, last_welcome_, links)) return {};
    end_try(attempt, "the peer closed the connection in the middle of the handshake");
  }
  if (now < last_deadline_ns(attempt.requests)) return {};
  const int64_t waited_ms = (now - attempt.started_ns) / 1'000'000;
  return {StatusCode::kTimeout, "could not connect to process " + process_name(peer) + " at " +
                                    attempt.address.tcp + " within " + std::to_string(waited_ms) +
                                    " ms: " + attempt.last_error +
                                    "; is the peer alive, and does a firewall stand between?"};
}

Status Outbound::begin_try(Attempt& attempt) {
  const TransportKind kind = attempt.request().kind;
  const bool possible = attempt.no_shared_memory.empty();
  if (kind == TransportKind::kSharedMemory && !possible) {
    return {StatusCode::kUnavailable, "transport \"shm\" cannot reach process " +
                                          process_name(attempt.address.id) + " at " +
                                          attempt.address.tcp + ": " + attempt.no_shared_memory +
                                          "; use transport \"auto\" or \"tcp\""};
  }
  const bool shared = possible && (kind == TransportKind::kSharedMemory ||
                                   (kind == TransportKind::kAuto && !attempt.avoid_shared_memory));
  attempt.carrier = shared ? Carrier::kSharedMemory : Carrier::kTcp;
  attempt.id = context_->random->next();
  const Status opened = open_streams(attempt);
  if (!opened.ok()) {
    if (shared) attempt.avoid_shared_memory = true;
    end_try(attempt, std::string(opened.message()));
  }
  return {};
}

Status Outbound::open_streams(Attempt& attempt) {
  if (attempt.carrier == Carrier::kSharedMemory) {
    Result<UniqueFd> fd = connect_unix(attempt.address.unix_name);
    if (!fd.ok()) return fd.status();
    attempt.streams.push_back(
        {std::make_unique<HandshakeSocket>(std::move(fd).value(), context_->poller)});
    return {};
  }
  const Result<SocketAddress> target = parse_socket_address(attempt.address.tcp);
  if (!target.ok()) return target.status();
  for (int i = 0; i < attempt.tcp_streams; ++i) {
    Result<UniqueFd> fd = start_connect_tcp(target.value());
    if (!fd.ok()) return fd.status();
    attempt.streams.push_back(
        {std::make_unique<HandshakeSocket>(std::move(fd).value(), context_->poller)});
  }
  return {};
}

void Outbound::end_try(Attempt& attempt, std::string why) {
  attempt.streams.clear();
  attempt.own_mailbox = SharedMemory();
  attempt.last_error = std::move(why);
  ++attempt.tries;
  // Half of the pause is random, so that two processes that keep crossing each other fall apart.
  const auto jitter = static_cast<int64_t>(context_->random->next() %
                                           static_cast<uint64_t>(attempt.pause_ns / 2 + 1));
  attempt.retry_ns = context_->clock->now_ns() + attempt.pause_ns / 2 + jitter;
  attempt.pause_ns = std::min(2 * attempt.pause_ns, kLongestPauseNs);
}

Status Outbound::advance_stream(Attempt& attempt, size_t index) {
  Stream& stream = attempt.streams[index];
  if (stream.stage == Stage::kConnecting) {
    if (!stream.socket->flags().writable && !stream.socket->flags().hung_up) return {};
    const int error_number = pending_error(stream.socket->fd());
    if (error_number != 0) {
      end_try(attempt, error_text(error_number));
      return {};
    }
    if (!stream.socket->send(frame_for(attempt, HandshakeKind::kHello, index))) {
      end_try(attempt, "the connection broke before the greeting was out");
      return {};
    }
    stream.stage = Stage::kGreeted;
  }
  if (stream.stage != Stage::kGreeted || !stream.socket->flags().readable) return {};
  HandshakeFrame frame;
  switch (stream.socket->receive(&frame)) {
    case HandshakeSocket::Progress::kWaiting:
      return {};
    case HandshakeSocket::Progress::kOtherVersion:
      return {StatusCode::kVersionMismatch,
              "process " + process_name(attempt.address.id) + " at " + attempt.address.tcp +
                  " speaks wire version " + std::to_string(stream.socket->peer_version()) +
                  ", this process " + std::to_string(kWireVersion) +
                  "; install the same version of tersum on all ranks"};
    case HandshakeSocket::Progress::kBroken:
      end_try(attempt, "the peer closed the connection: it has not joined the group (yet)");
      return {};
    case HandshakeSocket::Progress::kFrame:
      break;
  }
  const bool right = frame.kind == HandshakeKind::kWelcome && frame.attempt == attempt.id &&
                     to_process_id(frame.from) == attempt.address.id &&
                     to_process_id(frame.to) == context_->self &&
                     frame.carrier == attempt.carrier && frame.stream_index == index;
  if (!right) {
    end_try(attempt, "another process answers at that address");
    return {};
  }
  stream.stage = Stage::kWelcomed;
  last_welcome_ = frame;
  return {};
}

HandshakeFrame Outbound::frame_for(const Attempt& attempt, HandshakeKind kind, size_t index) const {
  HandshakeFrame frame;
  frame.version = kWireVersion;
  frame.kind = kind;
  frame.carrier = attempt.carrier;
  frame.stream_index = static_cast<uint16_t>(index);
  frame.stream_count = static_cast<uint16_t>(attempt.streams.size());
  frame.attempt = attempt.id;
  frame.from = to_words(context_->self);
  frame.to = to_words(attempt.address.id);
  if (kind == HandshakeKind::kHello) {
    frame.group = attempt.request().group;
    frame.token = attempt.request().token;
  }
  return frame;
}

bool Outbound::establish(Attempt& attempt, const HandshakeFrame& welcome,
                         std::vector<Established>& links) {
  Established link;
  link.peer = attempt.address.id;
  link.carrier = attempt.carrier;
  HandshakeSocket& first = *attempt.streams.front().socket;
  HandshakeFrame confirm = frame_for(attempt, HandshakeKind::kConfirm, 0);
  if (attempt.carrier == Carrier::kSharedMemory) {
    Result<SharedMemory> mailbox = make_mailbox(context_->random->next());
    if (!mailbox.ok() || !take_shared_memory(welcome, first.descriptors(), &link).ok()) {
      attempt.avoid_shared_memory = true;
      return false;
    }
    link.own_mailbox = std::move(mailbox).value();
    const auto descriptors = offer_shared_memory(*context_, link.own_mailbox, &confirm);
    if (!first.send(confirm, descriptors)) return false;
  } else if (!first.send(confirm)) {
    return false;
  }
  for (Stream& stream : attempt.streams) link.sockets.push_back(stream.socket->take());
  links.push_back(std::move(link));
  return true;
}

bool Outbound::greeted(ProcessId peer) const {
  const auto item = attempts_.find(peer);
  if (item == attempts_.end()) return false;
  return std::any_of(item->second.streams.begin(), item->second.streams.end(),
                     [](const Stream& stream) { return stream.stage != Stage::kConnecting; });
}

void Outbound::yield(ProcessId peer) {
  const auto item = attempts_.find(peer);
  if (item == attempts_.end() || item->second.streams.empty()) return;
  end_try(item->second, "the peer's own connection came first, and broke");
}

int64_t Outbound::next_deadline_ns() const {
  int64_t next = kNever;
  for (const auto& [peer, attempt] : attempts_) {
    next = std::min(next, last_deadline_ns(attempt.requests));
    if (attempt.streams.empty()) next = std::min(next, attempt.retry_ns);
  }
  return next;
}

}  // namespace tersum
