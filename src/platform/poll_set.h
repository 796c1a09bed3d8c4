// PollSet: sleeps until one of some sockets is ready, by level; and sends what a socket takes now.
//
// For code off the data path that looks at all its sockets anyway: nothing is registered, and a
// readiness that was not used up is reported again. (Poller is for the data path.)
//
// Thread safety: none. Invariant: allocates only when it holds more sockets than ever before.
#pragma once

#include <poll.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace tersum {

class PollSet {
 public:
  enum class For : short { kReading = POLLIN, kWriting = POLLOUT };

  void clear() { entries_.clear(); }
  // The index by which ready() knows it. A negative descriptor is never ready.
  size_t add(int fd, For what) {
    entries_.push_back({fd, static_cast<short>(what), 0});
    return entries_.size() - 1;
  }
  // Sleeps until something is ready (true), or `timeout_ns` passed or a signal came (false).
  bool wait(int64_t timeout_ns);
  // After wait(): ready for what was asked, at its end, or broken.
  [[nodiscard]] bool ready(size_t index) const { return entries_[index].revents != 0; }

 private:
  std::vector<pollfd> entries_;
};

// Result of one send: bytes > 0; or 0 with `error_number`; or 0 without: would block.
struct SendResult {
  size_t bytes = 0;
  int error_number = 0;
};
SendResult send_some(int fd, std::span<const std::byte> bytes);

}  // namespace tersum
