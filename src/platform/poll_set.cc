#include "platform/poll_set.h"

#include <sys/socket.h>

#include <algorithm>
#include <cerrno>

#include "base/check.h"

namespace tersum {

bool PollSet::wait(int64_t timeout_ns) {
  // Rounded up: waking before the deadline would only spin. An hour at a time is waiting enough.
  const int64_t timeout_ms = std::clamp<int64_t>(
      timeout_ns / 1'000'000 + (timeout_ns % 1'000'000 > 0 ? 1 : 0), 0, 3'600'000);
  const int ready = poll(entries_.data(), entries_.size(), static_cast<int>(timeout_ms));
  TERSUM_CHECK(ready >= 0 || errno == EINTR || errno == ENOMEM);
  if (ready < 0) {
    for (pollfd& entry : entries_) entry.revents = 0;
  }
  return ready > 0;
}

SendResult send_some(int fd, std::span<const std::byte> bytes) {
  for (;;) {
    const ssize_t sent = send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent >= 0) return {.bytes = static_cast<size_t>(sent), .error_number = 0};
    if (errno == EAGAIN) return {};
    if (errno != EINTR) return {.bytes = 0, .error_number = errno};
  }
}

}  // namespace tersum
