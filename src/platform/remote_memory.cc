#include "platform/remote_memory.h"

#include <sys/prctl.h>
#include <sys/uio.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
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
    std::memcpy(static_cast<void*>(&remote.iov_base), &there, sizeof remote.iov_base);
    const ssize_t moved = copy(static_cast<pid_t>(thread), &local, 1, &remote, 1, 0);
    // The kernel copies as far as there is memory, and says so only when asked for the rest.
    if (moved <= 0) return moved < 0 && errno == ESRCH ? RemoteCopy::kGone : RemoteCopy::kRefused;
    here += moved;
    there += static_cast<uint64_t>(moved);
    bytes -= static_cast<size_t>(moved);
  }
  return RemoteCopy::kDone;
}

constexpr size_t kProcBytesMax = 4096;

// Where a thread waits in the kernel that has been frozen, or whose process writes its core: on the
// way back from a system call, as where signals stop it.
bool waits_outside_calls(const std::string& proc) {
  std::string where;
  if (read_small_file(proc + "/wchan", kProcBytesMax, &where) != 0) return false;
  return where.find("freezer") != std::string::npos ||
         where.find("refrigerator") != std::string::npos ||
         where.find("coredump") != std::string::npos;
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
  const std::string proc = "/proc/" + std::to_string(thread);
  std::string text;
  const int error_number = read_small_file(proc + "/stat", kProcBytesMax, &text);
  if (error_number == ENOENT || error_number == ESRCH) {
    // Not where nothing is to be seen there at all.
    return access("/proc/self/stat", R_OK) == 0 ? ThreadState::kGone : ThreadState::kUnknown;
  }
  // "number (name) state …": a name may hold anything, parentheses among it.
  const size_t name_end = text.rfind(')');
  if (name_end == std::string::npos || name_end + 2 >= text.size()) return ThreadState::kUnknown;
  const char state = text[name_end + 2];
  if (state == 'T' || state == 't') return ThreadState::kStopped;
  if (state == 'Z' || state == 'X') return ThreadState::kGone;
  if (state != 'R' && waits_outside_calls(proc)) return ThreadState::kStopped;
  return ThreadState::kRuns;
}

bool has_thread(uint32_t thread) {
  return tgkill(getpid(), static_cast<pid_t>(thread), 0) == 0 || errno != ESRCH;
}

void allow_remote_copies() {
  // Without Yama there is no such option, and none is needed.
  [[maybe_unused]] const int asked = prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY, 0, 0, 0);
}

}  // namespace tersum
