// StoreClient: one connection to a StoreServer, and what it takes to use it under a deadline.
//
// Thread safety: none; each thread that talks to the server has a connection of its own.
// Invariant: after any error the connection is closed, so a late reply is never taken for the next.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include "base/clock.h"
#include "platform/poll_set.h"
#include "platform/socket_address.h"
#include "platform/unique_fd.h"
#include "runtime/stores/store_protocol.h"
#include "tersum/status.h"

namespace tersum {

// How an attempt ended; what to do about it is the caller's affair.
enum class StoreAttempt : uint8_t {
  kDone,
  kTimeout,   // the deadline passed
  kLost,      // refused, reset or closed: worth another try
  kStranger,  // what answers is no tersum store
  kVersion,   // a tersum store of another version
};

class StoreClient {
 public:
  explicit StoreClient(const Clock& clock) : clock_(clock) {}

  // Connects and exchanges greetings.
  StoreAttempt connect(const SocketAddress& address, int64_t deadline_ns);
  // Sends the request and waits for its reply. Only after connect() was kDone.
  StoreAttempt exchange(const StoreRequest& request, int64_t deadline_ns);

  [[nodiscard]] bool connected() const { return static_cast<bool>(fd_); }
  // Of the last exchange() that was kDone.
  [[nodiscard]] StoreResult result() const { return result_; }
  [[nodiscard]] std::string take_value() { return std::move(value_); }
  // What the system said at the last kLost, e.g. "Connection refused".
  [[nodiscard]] const std::string& last_error() const { return last_error_; }
  [[nodiscard]] uint16_t peer_version() const { return peer_version_; }

 private:
  StoreAttempt greet(int64_t deadline_ns);
  StoreAttempt send_all(std::string_view bytes, int64_t deadline_ns);
  StoreAttempt receive_some(int64_t deadline_ns);
  StoreAttempt await(PollSet::For what, int64_t deadline_ns);
  StoreAttempt lost(std::string why);
  StoreAttempt closed(StoreAttempt attempt);

  const Clock& clock_;
  UniqueFd fd_;
  PollSet poll_set_;
  std::string in_;
  StoreResult result_ = StoreResult::kOk;
  std::string value_;
  std::string last_error_ = "no answer";
  uint16_t peer_version_ = 0;
};

}  // namespace tersum
