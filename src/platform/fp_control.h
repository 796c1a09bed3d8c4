// FpControlGuard: the floating-point environment that tersum's results are defined in.
//
// Threads of other libraries run with denormals flushed or other rounding; the same sums would then
// differ between ranks. While the guard lives, this thread rounds to nearest, keeps denormals and
// masks exceptions; its end restores what was set before (and drops exception flags raised
// meanwhile).
//
// Thread safety: acts on the calling thread; must end on the thread that it began on.
#pragma once

#include <cstdint>

namespace tersum {

class FpControlGuard {
 public:
  FpControlGuard();
  ~FpControlGuard();
  FpControlGuard(const FpControlGuard&) = delete;
  FpControlGuard& operator=(const FpControlGuard&) = delete;

 private:
  uint64_t saved_ = 0;
};

}  // namespace tersum
