#include "base/check.h"

#include <atomic>
#include <cstdio>
#include <cstdlib>

namespace tersum {
namespace {

// The one exception to "the library never prints": the process is about to abort, and without a
// line on standard error its owner would have nothing to report.
void print_to_stderr(const char* file, int line, const char* condition) {
  std::fprintf(stderr, "tersum: check failed at %s:%d: %s (a bug in tersum or in its use)\n", file,
               line, condition);
}

std::atomic<CheckHandler> g_handler{&print_to_stderr};

}  // namespace

CheckHandler set_check_handler(CheckHandler handler) {
  return g_handler.exchange(handler == nullptr ? &print_to_stderr : handler);
}

void check_failed(const char* file, int line, const char* condition) {
  g_handler.load()(file, line, condition);
  std::abort();
}

}  // namespace tersum
