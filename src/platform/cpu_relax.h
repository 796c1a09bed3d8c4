// How a waiting thread gives way: to its sibling hyper-thread, to other threads, for a while.
//
// Thread safety: any thread.
#pragma once

#include <cstdint>

namespace tersum {

// A few dozen cycles; tells the core that this is a spin loop.
inline void spin_pause() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("isb" ::: "memory");
#endif
}

// Lets another runnable thread have this core.
void yield_thread();

// Sleeps at least `duration_ns`, whatever signals arrive.
void sleep_thread_ns(int64_t duration_ns);

}  // namespace tersum
