// Transport: makes the links of one process: listens, connects, proves the group token, sleeps.
//
// Implementations: HostTransport (tcp/ and shm/, chosen per pair of processes) and SimTransport (a
// network of nodes in one thread on a virtual clock).
//
// Thread safety: none (progress role) except wake(), which any thread may call.
// Invariants: at most one link per peer process; every link has proved a token that was admitted
// here. A connection that does not (a stranger, a lying length, silence for 5 s) is dropped without
// a report and without effect on anything else.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "base/clock.h"
#include "tersum/options.h"
#include "tersum/status.h"
#include "transport/arena.h"
#include "transport/array_door.h"
#include "transport/link.h"

namespace tersum {

using GroupToken = std::array<std::byte, 16>;

struct ListenOptions {
  // Address or interface name; empty: decided by `store_host` (see CommunicatorOptions).
  std::string listen_address;
  std::string store_host;
  uint16_t listen_port = 0;
  int tcp_streams = 0;
};

// What a transport reports, beside what links report.
class TransportSink : public LinkSink {
 public:
  // A link is ready for use, whichever side began it. Comes before its first message.
  virtual void on_link_up(Link& link) = 0;
  // connect() to `peer` failed for good.
  virtual void on_connect_failed(ProcessId peer, const Status& reason) = 0;
};

class Transport {
 public:
  virtual ~Transport() = default;

  [[nodiscard]] virtual ProcessId self() const = 0;
  [[nodiscard]] virtual Arena& arena() = 0;
  // What calls open their arrays by; null: peers may not touch any.
  [[nodiscard]] virtual ArrayDoor* door() { return nullptr; }
  virtual void set_sink(TransportSink* sink) = 0;
  // Before listen(): from now on `watch` hears of every message that a carrier takes.
  virtual void set_watch(CarrierWatch* watch) = 0;

  // Starts listening (idempotent: later calls keep the first choice). kUnavailable: no such
  // interface or address, port taken; the message names it and says what to do.
  virtual Status listen(const ListenOptions& options) = 0;
  // After listen(): the text that peers need for connect(): process id, boot id, network namespace,
  // TCP address, Unix socket name, CPUs.
  [[nodiscard]] virtual std::string address() const = 0;
  // The process id inside an address text; kProtocol if it is none.
  [[nodiscard]] virtual Result<ProcessId> parse_peer(std::string_view address) const = 0;

  // What tells an address's host, and its network namespace there, from others: equal for two
  // processes whose messages to each other take CPU time and no wire. An address that does not say
  // is a host of its own. The same on whichever process asks.
  [[nodiscard]] virtual std::string host_of(std::string_view address) const = 0;
  // The CPUs of that host on which the process may run, as platform/cpu_count.h writes them; empty
  // where an address does not say.
  [[nodiscard]] virtual std::string cpus_of(std::string_view address) const = 0;
  // What its last-level cache holds; 0 where an address does not say.
  [[nodiscard]] virtual size_t cache_bytes_of(std::string_view address) const = 0;

  // From now on connections proving (group, token) are let in; until forget().
  virtual void admit(uint64_t group, const GroupToken& token) = 0;
  virtual void forget(uint64_t group) = 0;

  // Begins a connection; exactly one of on_link_up and on_connect_failed follows, from poll().
  // Retries while refused until `deadline_ns` of the clock. If a link to that process exists
  // already, nothing happens. `kind` kSharedMemory between different hosts fails with kUnavailable.
  virtual void connect(std::string_view address, uint64_t group, const GroupToken& token,
                       TransportKind kind, int64_t deadline_ns) = 0;

  // The live link to a process, or null.
  [[nodiscard]] virtual Link* find(ProcessId peer) = 0;

  // One round: accepts, continues handshakes, polls every link, flushes. True if anything moved.
  virtual bool poll() = 0;

  // Sleeps until something is readable or writable that was not, wake() was called, or `timeout_ns`
  // passed. Peers that share memory are told that a wake-up is needed.
  virtual void wait(int64_t timeout_ns) = 0;
  virtual void wake() = 0;
};

}  // namespace tersum
