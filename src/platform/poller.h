// Poller: which descriptors have become ready, and a way to be woken.
//
// Readiness is reported by edges into flags that their owners clear when the kernel says "would
// block", so that a busy descriptor costs no system call of its own and nothing is ever re-armed.
//
// Thread safety: none, except wake(), which any thread may call.
// Invariants: a PollFlags outlives its registration. wake() ends the wait() in progress or the
// next.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>

#include "platform/unique_fd.h"
#include "tersum/status.h"

namespace tersum {

struct PollFlags {
  bool readable = false;
  bool writable = false;
  bool half_closed = false;  // the other side will send no more: read until the end
  bool hung_up = false;      // the other side has closed both directions, or an error is pending
};

class Poller {
 public:
  static Result<std::unique_ptr<Poller>> create();

  // `flags` must be right for a fresh descriptor; edges are added to them from now on.
  // `input_only` is for what is never written to (listeners, events of one's own).
  Status add(int fd, PollFlags* flags, bool input_only = false);
  // Must come before the descriptor is closed if a copy of it may live elsewhere.
  void remove(int fd);

  // Takes note of what is ready without sleeping; the number of events.
  int dispatch();

  // Sleeps until something is ready, wake(), or `timeout_ns`; notes what is ready.
  void wait(int64_t timeout_ns);

  // Cheap (one atomic store) when nobody sleeps.
  void wake();

 private:
  Poller() = default;
  int collect(int64_t timeout_ns);

  UniqueFd epoll_;
  UniqueFd wake_event_;
  std::atomic<bool> sleeping_{false};
  std::atomic<bool> wake_pending_{false};
  bool precise_timeouts_ = true;
};

}  // namespace tersum
