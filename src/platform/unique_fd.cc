#include "platform/unique_fd.h"

#include <unistd.h>

namespace tersum {

void UniqueFd::reset() {
  // EINTR from close() has closed the descriptor on Linux, so there is nothing to retry.
  if (fd_ >= 0) ::close(std::exchange(fd_, -1));
}

}  // namespace tersum
