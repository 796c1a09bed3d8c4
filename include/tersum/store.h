// Store: the small key-value service through which ranks find each other.
//
// Thread safety: implementations must allow concurrent calls. Invariants: a key is set once and
// never changes; values are opaque bytes below 64 KiB. tersum uses a store only while a group is
// made, never for collectives. Callers may hand in their own implementation.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "tersum/status.h"

namespace tersum {

class Store {
 public:
  virtual ~Store() = default;

  // Makes `value` visible under `key`. Setting a key again with equal bytes is allowed, with others
  // kInvalidArgument. May block up to the store's own network time.
  virtual Status set(std::string_view key, std::string_view value) = 0;

  // Waits until `key` is set and returns its value; kTimeout (naming the key) after `timeout_ms`.
  virtual Result<std::string> wait(std::string_view key, int64_t timeout_ms) = 0;

  // The host that this store is reached at, "" when there is none (file store). It decides where a
  // process listens: on loopback if this is loopback, else at the address that routes to it.
  [[nodiscard]] virtual std::string host() const = 0;
};

// A TCP store. With `serve` this process runs the server on host:port in a thread of the returned
// object (until it is destroyed); without, it connects, retrying until `timeout_ms`.
// kUnavailable: the port is taken or the host unknown.
Result<std::shared_ptr<Store>> make_tcp_store(const std::string& host, uint16_t port, bool serve,
                                              int64_t timeout_ms);

// A store in a directory that all ranks can reach; made if absent. Stale keys of an earlier run
// must be removed by the caller (use a fresh directory per run).
Result<std::shared_ptr<Store>> make_file_store(const std::string& directory);

// By URL: "tcp://host:port" (rank 0 serves) or "file:///path".
Result<std::shared_ptr<Store>> open_store(std::string_view url, int rank, int64_t timeout_ms);

}  // namespace tersum
