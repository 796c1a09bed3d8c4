#include "transport/inbound.h"

#include <algorithm>
#include <limits>

#include "base/check.h"
#include "platform/stream_socket.h"
#include "tersum/version.h"
#include "transport/shm/mailbox.h"

namespace tersum {
namespace {

constexpr size_t kStrangersMax = 64;
constexpr int kAcceptsPerRound = 16;
constexpr int64_t kSilenceNs = 5'000'000'000;
// A peer that has proved its token may be slow: it may be compiling, or stopped in a debugger.
constexpr int64_t kAssemblyNs = 60'000'000'000;
constexpr int64_t kAcceptRetryNs = 100'000'000;

}  // namespace

void Inbound::add_listener(UniqueFd fd, Carrier carrier) {
  auto listener = std::make_unique<Listener>();
  listener->fd = std::move(fd);
  listener->carrier = carrier;
  TERSUM_CHECK(context_->poller->add(listener->fd.get(), &listener->flags, true).ok());
  listeners_.push_back(std::move(listener));
}

void Inbound::admit(uint64_t group, const GroupToken& token) {
  admitted_.emplace_back(group, token);
}

void Inbound::forget(uint64_t group) {
  std::erase_if(admitted_, [group](const auto& pair) { return pair.first == group; });
}

bool Inbound::is_admitted(const HandshakeFrame& hello) const {
  bool admitted = false;
  for (const auto& [group, token] : admitted_) {
    admitted |= group == hello.group && tokens_equal(token, hello.token);
  }
  return admitted;
}

bool Inbound::accept_from(Listener& listener) {
  if (!listener.flags.readable) return false;
  const int64_t now = context_->clock->now_ns();
  if (now < listener.retry_ns) return false;
  bool moved = false;
  for (int i = 0; i < kAcceptsPerRound; ++i) {
    Result<UniqueFd> fd = accept_connection(listener.fd.get());
    if (!fd.ok()) {
      listener.retry_ns =
          now + kAcceptRetryNs;  // the connection waits; there is no new edge for it
      break;
    }
    if (!*fd) {
      listener.flags.readable = false;
      break;
    }
    if (strangers_.size() >= kStrangersMax) strangers_.erase(strangers_.begin());
    if (listener.carrier == Carrier::kTcp) tune_tcp(fd->get());
    strangers_.push_back(
        {.socket = std::make_unique<HandshakeSocket>(std::move(fd).value(), context_->poller),
         .carrier = listener.carrier,
         .deadline_ns = now + kSilenceNs});
    moved = true;
  }
  return moved;
}

bool Inbound::poll(std::vector<Established>& links) {
  bool moved = false;
  for (const auto& listener : listeners_) moved |= accept_from(*listener);
  if (!strangers_.empty()) moved |= poll_strangers();
  if (!assemblies_.empty()) moved |= poll_assemblies(links);
  return moved;
}

bool Inbound::poll_strangers() {
  const int64_t now = context_->clock->now_ns();
  const size_t before = strangers_.size();
  std::erase_if(strangers_, [this, now](Stranger& stranger) {
    if (now >= stranger.deadline_ns) return true;
    if (!stranger.socket->flags().readable) return false;
    return examine(stranger) == Verdict::kDrop;
  });
  return strangers_.size() != before;
}

// kDrop also when the socket has moved on into an assembly.
Inbound::Verdict Inbound::examine(Stranger& stranger) {
  HandshakeFrame hello;
  switch (stranger.socket->receive(&hello)) {
    case HandshakeSocket::Progress::kWaiting:
      return Verdict::kKeep;
    case HandshakeSocket::Progress::kBroken:
      return Verdict::kDrop;
    case HandshakeSocket::Progress::kOtherVersion: {
      HandshakeFrame reject;
      reject.version = kWireVersion;
      reject.kind = HandshakeKind::kReject;
      reject.stream_count = 1;
      stranger.socket->send(reject);
      return Verdict::kDrop;
    }
    case HandshakeSocket::Progress::kFrame:
      break;
  }
  const ProcessId peer = to_process_id(hello.from);
  const bool addressed = hello.kind == HandshakeKind::kHello && hello.carrier == stranger.carrier &&
                         peer != context_->self && to_process_id(hello.to) == context_->self;
  const bool fits = hello.carrier == Carrier::kTcp || hello.stream_count == 1;
  if (!addressed || !fits || !is_admitted(hello)) return Verdict::kDrop;
  const auto known = assemblies_.find(peer);
  const bool same_attempt = known != assemblies_.end() && known->second.attempt == hello.attempt;
  if (!same_attempt && !policy_->may_accept(peer)) return Verdict::kDrop;
  assemble(std::move(stranger.socket), hello);
  return Verdict::kDrop;
}

void Inbound::assemble(std::unique_ptr<HandshakeSocket> socket, const HandshakeFrame& hello) {
  const ProcessId peer = to_process_id(hello.from);
  auto known = assemblies_.find(peer);
  if (known != assemblies_.end() && known->second.attempt != hello.attempt) {
    assemblies_.erase(known);  // the peer has given up its earlier attempt
    known = assemblies_.end();
  }
  if (known == assemblies_.end()) {
    Assembly fresh;
    fresh.attempt = hello.attempt;
    fresh.carrier = hello.carrier;
    fresh.streams.resize(hello.stream_count);
    fresh.deadline_ns = context_->clock->now_ns() + kAssemblyNs;
    known = assemblies_.emplace(peer, std::move(fresh)).first;
  }
  Assembly& assembly = known->second;
  const bool fits = hello.stream_count == assembly.streams.size() &&
                    hello.carrier == assembly.carrier && !assembly.welcomed &&
                    assembly.streams[hello.stream_index] == nullptr;
  if (!fits) {
    assemblies_.erase(known);
    return;
  }
  assembly.streams[hello.stream_index] = std::move(socket);
  if (++assembly.present == assembly.streams.size() && !welcome(peer, assembly)) {
    assemblies_.erase(known);
  }
}

bool Inbound::welcome(ProcessId peer, Assembly& assembly) {
  assembly.welcomed = true;
  HandshakeFrame frame;
  frame.version = kWireVersion;
  frame.kind = HandshakeKind::kWelcome;
  frame.carrier = assembly.carrier;
  frame.stream_count = static_cast<uint16_t>(assembly.streams.size());
  frame.attempt = assembly.attempt;
  frame.from = to_words(context_->self);
  frame.to = to_words(peer);
  if (assembly.carrier == Carrier::kSharedMemory) {
    Result<SharedMemory> mailbox = make_mailbox(context_->random->next());
    if (!mailbox.ok()) return false;
    assembly.own_mailbox = std::move(mailbox).value();
    const auto descriptors = offer_shared_memory(*context_, assembly.own_mailbox, &frame);
    return assembly.streams.front()->send(frame, descriptors);
  }
  for (size_t i = 0; i < assembly.streams.size(); ++i) {
    frame.stream_index = static_cast<uint16_t>(i);
    if (!assembly.streams[i]->send(frame)) return false;
  }
  return true;
}

bool Inbound::poll_assemblies(std::vector<Established>& links) {
  const int64_t now = context_->clock->now_ns();
  bool moved = false;
  for (auto item = assemblies_.begin(); item != assemblies_.end();) {
    Assembly& assembly = item->second;
    bool over = now >= assembly.deadline_ns;
    // Once welcomed, stream 0 tells: a confirmation may stand before the end.
    for (const auto& stream : assembly.streams) {
      over |= !assembly.welcomed && stream != nullptr && stream->flags().hung_up;
    }
    HandshakeSocket* first = assembly.streams.front().get();
    if (!over && assembly.welcomed && first->flags().readable) {
      HandshakeFrame confirm;
      const HandshakeSocket::Progress progress = first->receive(&confirm);
      if (progress == HandshakeSocket::Progress::kFrame) {
        establish(item->first, assembly, confirm, links);
      }
      over = progress != HandshakeSocket::Progress::kWaiting;
    }
    moved |= over;
    item = over ? assemblies_.erase(item) : std::next(item);
  }
  return moved;
}

bool Inbound::establish(ProcessId peer, Assembly& assembly, const HandshakeFrame& confirm,
                        std::vector<Established>& links) {
  if (confirm.kind != HandshakeKind::kConfirm || confirm.attempt != assembly.attempt ||
      to_process_id(confirm.from) != peer || to_process_id(confirm.to) != context_->self) {
    return false;
  }
  Established link;
  link.peer = peer;
  link.carrier = assembly.carrier;
  if (assembly.carrier == Carrier::kSharedMemory) {
    link.own_mailbox = std::move(assembly.own_mailbox);
    std::vector<UniqueFd>& descriptors = assembly.streams.front()->descriptors();
    if (!take_shared_memory(confirm, descriptors, &link).ok()) return false;
  }
  for (const auto& stream : assembly.streams) link.sockets.push_back(stream->take());
  links.push_back(std::move(link));
  return true;
}

bool Inbound::ready() const {
  const int64_t now = context_->clock->now_ns();
  return std::any_of(listeners_.begin(), listeners_.end(), [now](const auto& listener) {
    return listener->flags.readable && now >= listener->retry_ns;
  });
}

int64_t Inbound::next_deadline_ns() const {
  int64_t next = std::numeric_limits<int64_t>::max();
  for (const auto& listener : listeners_) {
    if (listener->flags.readable) next = std::min(next, listener->retry_ns);
  }
  for (const Stranger& stranger : strangers_) next = std::min(next, stranger.deadline_ns);
  for (const auto& [peer, assembly] : assemblies_) next = std::min(next, assembly.deadline_ns);
  return next;
}

}  // namespace tersum
