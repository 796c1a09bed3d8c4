#include "platform/fp_control.h"

#if defined(__x86_64__) || defined(__i386__)
#include <xmmintrin.h>
#endif

namespace tersum {
namespace {

#if defined(__x86_64__) || defined(__i386__)
// All six exceptions masked, round to nearest, neither flush-to-zero nor denormals-are-zero.
constexpr unsigned kDefaultControl = 0x1F80;
uint64_t read_control() { return _mm_getcsr(); }
void write_control(uint64_t value) { _mm_setcsr(static_cast<unsigned>(value)); }
#elif defined(__aarch64__)
constexpr uint64_t kDefaultControl = 0;
uint64_t read_control() {
  uint64_t value = 0;
  asm volatile("mrs %0, fpcr" : "=r"(value));
  return value;
}
void write_control(uint64_t value) { asm volatile("msr fpcr, %0" ::"r"(value)); }
#else
#error "tersum does not know the floating-point control register of this processor"
#endif

}  // namespace

FpControlGuard::FpControlGuard() : saved_(read_control()) {
  // Writing the register stalls the pipeline (about 10 ns), reading it does not.
  if (saved_ != kDefaultControl) write_control(kDefaultControl);
}

FpControlGuard::~FpControlGuard() {
  if (read_control() != saved_) write_control(saved_);
}

}  // namespace tersum
