// StoreServer: the table behind a TCP store, served by one thread that sleeps in poll().
//
// Thread safety: the object is made and destroyed by one thread; nothing else is called on it.
// Invariants: a stranger's bytes, a broken request or silence before the greeting cost that
// connection and nothing else. Connections and the table's size are bounded. The destructor closes
// every descriptor and joins the thread; it does not wait for clients.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/clock.h"
#include "platform/poll_set.h"
#include "platform/service_thread.h"
#include "platform/socket_address.h"
#include "platform/unique_fd.h"
#include "runtime/stores/store_protocol.h"
#include "tersum/status.h"

namespace tersum {

// Bounds, so that no client can eat the memory or the descriptors of rank 0's process.
struct StoreServerLimits {
  size_t connections_max = 4096;
  size_t table_bytes_max = 64 * 1024 * 1024;
  int64_t greeting_timeout_ms = 5'000;
};

class StoreServer {
 public:
  // Listens on `address` (port 0: any free one) and starts the thread. kUnavailable: the port is
  // taken or the address not of this host; kSystem: no thread or descriptor to be had. `clock` must
  // outlive the server.
  static Result<std::unique_ptr<StoreServer>> start(const SocketAddress& address,
                                                    const Clock& clock,
                                                    const StoreServerLimits& limits = {});
  ~StoreServer();
  StoreServer(const StoreServer&) = delete;
  StoreServer& operator=(const StoreServer&) = delete;

  // Where it listens, the port filled in.
  [[nodiscard]] const SocketAddress& address() const { return address_; }

 private:
  struct Connection {
    UniqueFd fd;
    std::string in;           // received, not yet taken apart
    std::string out;          // to be sent
    std::string awaited_key;  // not empty: a wait is open
    int64_t greeting_deadline_ns = 0;
    bool greeted = false;
    bool closing = false;  // to be closed once `out` is sent
    bool dead = false;
  };

  StoreServer(const Clock& clock, const StoreServerLimits& limits)
      : clock_(clock), limits_(limits) {}
  void run();
  int64_t watch(int64_t now_ns);
  void serve_ready();
  void accept_all();
  void read_from(Connection& connection);
  void advance(Connection& connection);
  bool take_greeting(Connection& connection);
  bool take_request(Connection& connection);
  void answer(Connection& connection, const StoreReply& reply);
  StoreResult set(std::string_view key, std::string_view value);
  void wake_waiters(std::string_view key, std::string_view value);
  static void flush(Connection& connection);
  void drop_dead();

  const Clock& clock_;
  const StoreServerLimits limits_;
  SocketAddress address_;
  UniqueFd listener_;
  UniqueFd stop_;  // doorbell
  ServiceThread thread_;
  // Everything below belongs to the thread.
  PollSet poll_set_;  // stop_, listener_, then the connections in their order
  bool stopping_ = false;
  int64_t accept_again_ns_ = 0;
  size_t table_bytes_ = 0;
  std::unordered_map<std::string, std::string> table_;
  std::vector<std::unique_ptr<Connection>> connections_;
};

}  // namespace tersum
