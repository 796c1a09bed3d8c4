#include "platform/remote_memory.h"

#include <sys/prctl.h>
#include <sys/uio.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string>

#include "platform/small_file.h"

namespace tersum {
namespace {

using Transfer = ssize_t (*)(pid_t, const iovec*, unsigned long, const iovec*, unsigned long,
                             unsigned long);

RemoteCopy transfer(Transfer copy, uint32_t thread, uint64_t there, std::byte* here, size_t bytes) {
  while (bytes > 0) {
    const iovec local = {here, bytes};
    // An address over there, which is no pointer here.
    iovec remote = {nullptr, bytes};
    std::memcpy(&remote.iov_base, &there, sizeof remote.iov_base);
    const ssize_t moved = copy(static_cast<pid_t>(thread), &local, 1, &remote, 1, 0);
    // The kernel copies as far as there is memory, and says so only when asked for the rest.
    if (moved <= 0) return moved < 0 && errno == ESRCH ? RemoteCopy::kGone : RemoteCopy::kRefused;
    here += moved;
    there += static_cast<uint64_t>(moved);
    bytes -= static_cast<size_t>(moved);
  }
  return RemoteCopy::kDone;
}

}  // namespace

RemoteCopy read_remote(uint32_t thread, uint64_t from, std::span<std::byte> to) {
  return transfer(process_vm_readv, thread, from, to.data(), to.size());
}

RemoteCopy write_remote(uint32_t thread, uint64_t to, std::span<const std::byte> from) {
  // Only read, but the two calls have one signature.
  return transfer(process_vm_writev, thread, to, const_cast<std::byte*>(from.data()), from.size());
}

uint32_t thread_number() { return static_cast<uint32_t>(gettid()); }

ThreadState thread_state(uint32_t thread) {
  constexpr size_t kStatBytesMax = 4096;
  std::string text;
  if (read_small_file("/proc/" + std::to_string(thread) + "/stat", kStatBytesMax, &text) != 0) {
    return ThreadState::kGone;
  }
  // "number (name) state …": a name may hold anything, parentheses among it.
  const size_t name_end = text.rfind(')');
  if (name_end == std::string::npos || name_end + 2 >= text.size()) return ThreadState::kGone;
  const char state = text[name_end + 2];
  if (state == 'T' || state == 't') return ThreadState::kStopped;
  return state == 'Z' || state == 'X' ? ThreadState::kGone : ThreadState::kRuns;
}

void allow_remote_copies() {
  // Without Yama there is no such option, and none is needed.
  [[maybe_unused]] const int asked = prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY, 0, 0, 0);
}

}  // namespace tersum
