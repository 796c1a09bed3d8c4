#include "platform/doorbell.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>

#include "platform/system_error.h"

namespace tersum {

Result<UniqueFd> make_doorbell() {
  UniqueFd fd(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
  if (!fd) return system_error(StatusCode::kSystem, "cannot make an event", errno);
  return fd;
}

void ring_doorbell(int fd) {
  const uint64_t one = 1;
  // EAGAIN: the counter is full of rings that nobody has taken; one more changes nothing.
  [[maybe_unused]] const ssize_t wrote = write(fd, &one, sizeof one);
}

void clear_doorbell(int fd) {
  uint64_t rings = 0;
  [[maybe_unused]] const ssize_t got = read(fd, &rings, sizeof rings);
}

}  // namespace tersum
