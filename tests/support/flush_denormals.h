// A thread as other libraries leave it: denormals flushed to zero.
//
// Thread safety: changes the calling thread's control word alone, and must be destroyed in it.
#pragma once

#if defined(__SSE2__)
#include <xmmintrin.h>
#endif

namespace tersum::testing {

// Flush-to-zero and denormals-are-zero, as XLA's threads have them; restored at the end.
class FlushDenormals {
 public:
#if defined(__SSE2__)
  FlushDenormals() : saved_(_mm_getcsr()) { _mm_setcsr(saved_ | kBits); }
  ~FlushDenormals() { _mm_setcsr(saved_); }
  FlushDenormals(const FlushDenormals&) = delete;
  FlushDenormals& operator=(const FlushDenormals&) = delete;
  static constexpr bool kWorks = true;
  [[nodiscard]] static bool on() { return (_mm_getcsr() & kBits) == kBits; }

 private:
  static constexpr unsigned kBits = 0x8040;
  unsigned saved_;
#else
  static constexpr bool kWorks = false;
  [[nodiscard]] static bool on() { return false; }
#endif
};

}  // namespace tersum::testing
