// The memory of another process of this host, copied by the kernel (process_vm_readv, _writev).
//
// A process is named by any one of its threads, as this process sees their numbers. Who may do so
// is up to the system: processes of the same user may by default, not where the kernel's Yama
// module restricts ptrace, nor in many containers.
//
// Thread safety: any thread. Nothing here blocks but for page faults over there.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace tersum {

enum class RemoteCopy {
  kDone,
  kGone,     // there is no such thread any more
  kRefused,  // the system does not allow it, or some of those addresses are not memory
};

// All of `to`, from address `from` on. After anything but kDone some of it may have been copied.
RemoteCopy read_remote(uint32_t thread, uint64_t from, std::span<std::byte> to);
RemoteCopy write_remote(uint32_t thread, uint64_t to, std::span<const std::byte> from);

// Of the calling thread.
uint32_t thread_number();

enum class ThreadState {
  kRuns,     // or may at any time
  kStopped,  // by a signal, a debugger, a freezer or a core dump: in no system call
  kGone,
  kUnknown,  // there is no way to look here
};
ThreadState thread_state(uint32_t thread);
// Of this process; needs no descriptor and no /proc.
bool has_thread(uint32_t thread);

// From now on every process of this user may reach this one's memory, where Yama asks for that.
void allow_remote_copies();

}  // namespace tersum
