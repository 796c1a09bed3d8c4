#include "transport/host_transport.h"

#include <algorithm>
#include <map>
#include <vector>

#include "base/check.h"
#include "platform/cache_size.h"
#include "platform/cpu_count.h"
#include "platform/doorbell.h"
#include "platform/host_identity.h"
#include "platform/remote_memory.h"
#include "platform/stream_socket.h"
#include "transport/host_link.h"
#include "transport/inbound.h"
#include "transport/outbound.h"
#include "transport/shm/shm_link.h"
#include "transport/tcp/tcp_link.h"

namespace tersum {
namespace {

// Measured: see docs/performance.md; more pays only where one connection cannot fill the wire.
constexpr int kDefaultTcpStreams = 1;
// Where nothing hurries, the kernel is asked for news only every so many rounds.
constexpr unsigned kRoundsPerDispatch = 8;

class HostTransport final : public Transport, private Inbound::Policy, private Outbound::Policy {
 public:
  static Result<std::unique_ptr<Transport>> create(const HostTransportOptions& options);
  ~HostTransport() override;

  [[nodiscard]] ProcessId self() const override { return handshakes_.self; }
  [[nodiscard]] Arena& arena() override { return *arena_; }
  [[nodiscard]] ArrayDoor* door() override { return reaches_ ? &door_ : nullptr; }
  void set_sink(TransportSink* sink) override { sink_ = sink; }
  void set_watch(CarrierWatch* watch) override { watch_ = watch; }
  Status listen(const ListenOptions& options) override;
  [[nodiscard]] std::string address() const override;
  [[nodiscard]] Result<ProcessId> parse_peer(std::string_view address) const override;
  [[nodiscard]] std::string host_of(std::string_view address) const override;
  [[nodiscard]] std::string cpus_of(std::string_view address) const override;
  [[nodiscard]] size_t cache_bytes_of(std::string_view address) const override;
  void admit(uint64_t group, const GroupToken& token) override { inbound_.admit(group, token); }
  void forget(uint64_t group) override { inbound_.forget(group); }
  void connect(std::string_view address, uint64_t group, const GroupToken& token,
               TransportKind kind, int64_t deadline_ns) override;
  [[nodiscard]] Link* find(ProcessId peer) override;
  bool poll() override;
  void wait(int64_t timeout_ns) override;
  void wake() override { poller_->wake(); }

 private:
  HostTransport() : inbound_(&handshakes_, this), outbound_(&handshakes_, this) {}
  bool may_accept(ProcessId peer) override;
  bool should_wait(ProcessId peer) override { return inbound_.expects(peer); }

  void listen_for_sharing();
  bool poll_links();
  bool poll_handshakes();
  void add_link(Established parts);
  void retire_links();
  [[nodiscard]] int64_t next_deadline_ns() const;

  HandshakeContext handshakes_;
  std::unique_ptr<Poller> poller_;
  std::unique_ptr<Arena> arena_;
  ArrayDoor door_;
  bool reaches_ = false;  // peers' arrays, and lets itself be reached
  UniqueFd doorbell_;
  PollFlags doorbell_flags_;
  TransportSink* sink_ = nullptr;
  CarrierWatch* watch_ = nullptr;
  PeerAddress own_;
  bool shares_memory_ = false;
  bool listening_ = false;
  int tcp_streams_ = 0;
  PayloadStores stores_ = PayloadStores::kAuto;
  Inbound inbound_;
  Outbound outbound_;
  std::vector<Outbound::Failure> early_failures_;
  std::vector<std::unique_ptr<HostLink>> links_;    // live and lingering
  std::vector<std::unique_ptr<HostLink>> retired_;  // kept, because callers may hold a pointer
  std::vector<Established> established_;
  std::vector<Outbound::Failure> failures_;
  unsigned rounds_ = 0;
  bool polling_ = false;
};

Result<std::unique_ptr<Transport>> HostTransport::create(const HostTransportOptions& options) {
  TERSUM_CHECK(options.clock != nullptr && options.random != nullptr);
  std::unique_ptr<HostTransport> transport(new HostTransport());
  Result<std::unique_ptr<Poller>> poller = Poller::create();
  if (!poller.ok()) return poller.status();
  bool shared = options.shared_memory;
  Result<std::unique_ptr<Arena>> arena = Arena::create(shared, options.arena_capacity_bytes);
  if (!arena.ok() && shared) {
    // A sandbox without memory files still has TCP.
    shared = false;
    arena = Arena::create(false, options.arena_capacity_bytes);
  }
  if (!arena.ok()) return arena.status();
  Result<UniqueFd> doorbell = make_doorbell();
  if (!doorbell.ok()) return doorbell.status();
  transport->poller_ = std::move(poller).value();
  transport->arena_ = std::move(arena).value();
  transport->doorbell_ = std::move(doorbell).value();
  TERSUM_RETURN_IF_ERROR(
      transport->poller_->add(transport->doorbell_.get(), &transport->doorbell_flags_, true));
  transport->shares_memory_ = shared;
  transport->tcp_streams_ = options.tcp_streams;
  transport->stores_ = options.stores;
  HandshakeContext& context = transport->handshakes_;
  context.self = {options.random->next(), options.random->next()};
  context.poller = transport->poller_.get();
  context.clock = options.clock;
  context.random = options.random;
  context.arena = transport->arena_.get();
  context.doorbell = transport->doorbell_.get();
  transport->reaches_ = options.reach != ArrayReachPolicy::kOff;
  if (options.reach == ArrayReachPolicy::kAllow) allow_remote_copies();
  transport->own_.id = context.self;
  return std::unique_ptr<Transport>(std::move(transport));
}

HostTransport::~HostTransport() {
  TERSUM_CHECK(!polling_);
  for (const auto& link : links_) link->close();
}

void HostTransport::listen_for_sharing() {
  own_.boot = boot_id();
  own_.network = network_namespace_id();
  if (!shares_memory_) return;
  const std::string name = "tersum-" + process_name(self());
  Result<UniqueFd> fd = listen_unix(name);
  if (!fd.ok()) {
    shares_memory_ = false;  // peers see no name and come over TCP
    return;
  }
  own_.unix_name = name;
  inbound_.add_listener(std::move(fd).value(), Carrier::kSharedMemory);
}

Status HostTransport::listen(const ListenOptions& options) {
  if (listening_) return {};
  if (options.tcp_streams < 0 || options.tcp_streams > kStreamsMax) {
    return invalid_argument("tcp_streams is " + std::to_string(options.tcp_streams) +
                            "; allowed are 0 (the default) to " + std::to_string(kStreamsMax));
  }
  const Result<SocketAddress> chosen =
      choose_listen_address(options.listen_address, options.store_host, options.listen_port);
  if (!chosen.ok()) return chosen.status();
  Result<UniqueFd> fd = listen_tcp(chosen.value());
  if (!fd.ok()) return fd.status();
  Result<SocketAddress> bound = local_address(fd->get());
  if (!bound.ok()) return bound.status();
  if (bound->is_any()) {
    // Peers cannot connect to "any address": tell them the one that routes to the store.
    Result<SocketAddress> told = choose_listen_address("", options.store_host, bound->port());
    if (!told.ok()) return told.status();
    bound = std::move(told);
  }
  listen_for_sharing();
  own_.tcp = bound->to_string();
  own_.cpus = own_cpus();
  own_.cache_bytes = last_level_cache_bytes();
  inbound_.add_listener(std::move(fd).value(), Carrier::kTcp);
  if (options.tcp_streams > 0) tcp_streams_ = options.tcp_streams;
  if (tcp_streams_ == 0) tcp_streams_ = kDefaultTcpStreams;
  listening_ = true;
  return {};
}

std::string HostTransport::address() const {
  TERSUM_CHECK(listening_);
  return own_.to_string();
}

Result<ProcessId> HostTransport::parse_peer(std::string_view address) const {
  const Result<PeerAddress> parsed = parse_peer_address(address);
  if (!parsed.ok()) return parsed.status();
  return parsed.value().id;
}

std::string HostTransport::host_of(std::string_view address) const {
  const Result<PeerAddress> parsed = parse_peer_address(address);
  if (!parsed.ok()) return std::string(address);
  const PeerAddress& peer = parsed.value();
  const bool known = !peer.boot.empty() && !peer.network.empty();
  return known ? peer.boot + " " + peer.network : process_name(peer.id);
}

std::string HostTransport::cpus_of(std::string_view address) const {
  const Result<PeerAddress> parsed = parse_peer_address(address);
  return parsed.ok() ? parsed.value().cpus : std::string();
}

size_t HostTransport::cache_bytes_of(std::string_view address) const {
  const Result<PeerAddress> parsed = parse_peer_address(address);
  return parsed.ok() ? parsed.value().cache_bytes : 0;
}

void HostTransport::connect(std::string_view address, uint64_t group, const GroupToken& token,
                            TransportKind kind, int64_t deadline_ns) {
  TERSUM_CHECK(listening_);
  const Result<PeerAddress> parsed = parse_peer_address(address);
  if (!parsed.ok()) {
    early_failures_.push_back({ProcessId{}, parsed.status()});
    return;
  }
  const PeerAddress& peer = parsed.value();
  if (peer.id == self()) {
    early_failures_.push_back(
        {peer.id, invalid_argument("a process cannot connect to itself; two ranks of one process "
                                   "need no link")});
    return;
  }
  if (find(peer.id) != nullptr) return;
  outbound_.start({peer, group, token, kind, deadline_ns}, why_no_shared_memory(own_, peer),
                  tcp_streams_);
}

Link* HostTransport::find(ProcessId peer) {
  for (const auto& link : links_) {
    if (!link->down() && link->peer() == peer) return link.get();
  }
  return nullptr;
}

// Two processes may connect to each other at the same time; the connection of the one with the
// smaller id wins. A greeting that is out cannot be taken back, so only then does the smaller one
// insist.
bool HostTransport::may_accept(ProcessId peer) {
  if (find(peer) != nullptr) return false;
  if (outbound_.greeted(peer) && self() < peer) return false;
  outbound_.yield(peer);
  return true;
}

void HostTransport::add_link(Established parts) {
  const ProcessId peer = parts.peer;
  outbound_.cancel(peer);
  inbound_.drop(peer);
  if (find(peer) != nullptr) return;  // closing the new connection; the peer sees its end
  const LinkContext context{arena_.get(), poller_.get(), handshakes_.clock, &sink_, watch_,
                            stores_,      door()};
  if (parts.carrier == Carrier::kSharedMemory) {
    links_.push_back(std::make_unique<ShmLink>(context, std::move(parts)));
  } else {
    links_.push_back(std::make_unique<TcpLink>(context, peer, std::move(parts.sockets)));
  }
  if (sink_ != nullptr) sink_->on_link_up(*links_.back());
}

bool HostTransport::poll_links() {
  bool moved = false;
  // By index: the sink may close links; new ones come only from poll_handshakes().
  for (size_t i = 0; i < links_.size(); ++i) moved |= links_[i]->poll();
  return moved;
}

bool HostTransport::poll_handshakes() {
  bool moved = inbound_.poll(established_);
  moved |= outbound_.poll(established_, failures_);
  for (Established& parts : established_) add_link(std::move(parts));
  established_.clear();
  for (auto& failure : early_failures_) failures_.push_back(std::move(failure));
  early_failures_.clear();
  // The sink may ask for new connections meanwhile, whose failures come next time.
  const std::vector<Outbound::Failure> failures = std::exchange(failures_, {});
  for (const auto& failure : failures) {
    if (sink_ != nullptr) sink_->on_connect_failed(failure.peer, failure.reason);
  }
  return moved || !failures.empty();
}

void HostTransport::retire_links() {
  for (size_t i = 0; i < links_.size();) {
    if (links_[i]->retired()) {
      retired_.push_back(std::move(links_[i]));
      links_.erase(links_.begin() + static_cast<ptrdiff_t>(i));
    } else {
      ++i;
    }
  }
}

bool HostTransport::poll() {
  TERSUM_CHECK(!polling_);
  polling_ = true;
  bool moved = poll_links();
  bool news_likely = false;
  for (const auto& link : links_) {
    news_likely |= link->blocked() || (!moved && link->needs_poller());
  }
  // Shared memory is looked at directly, so asking the kernel (0.3 us) can wait; sockets become
  // ready only by an edge from the poller.
  if (news_likely || ++rounds_ % kRoundsPerDispatch == 0) {
    if (poller_->dispatch() > 0) moved |= poll_links();
  }
  if (doorbell_flags_.readable) {
    doorbell_flags_.readable = false;
    clear_doorbell(doorbell_.get());
  }
  moved |= poll_handshakes();
  retire_links();
  polling_ = false;
  return moved;
}

int64_t HostTransport::next_deadline_ns() const {
  int64_t next = std::min(inbound_.next_deadline_ns(), outbound_.next_deadline_ns());
  for (const auto& link : links_) next = std::min(next, link->next_deadline_ns());
  return next;
}

void HostTransport::wait(int64_t timeout_ns) {
  bool idle = !inbound_.ready() && early_failures_.empty();
  for (const auto& link : links_) idle &= link->prepare_sleep();
  if (idle) {
    const int64_t next = next_deadline_ns();
    if (next != std::numeric_limits<int64_t>::max()) {
      timeout_ns = std::min(timeout_ns, next - handshakes_.clock->now_ns());
    }
    poller_->wait(std::max<int64_t>(timeout_ns, 0));
  }
  for (const auto& link : links_) link->finish_sleep();
}

}  // namespace

Result<std::unique_ptr<Transport>> make_host_transport(const HostTransportOptions& options) {
  return HostTransport::create(options);
}

}  // namespace tersum
