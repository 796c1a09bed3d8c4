// TERSUM_CHECK: programmer errors stop the process; operating errors are Status.
//
// Thread safety: any thread. A failed check calls the replaceable handler and then aborts: a
// crashed rank is a fault that its group survives, a corrupt one is not.
#pragma once

namespace tersum {

using CheckHandler = void (*)(const char* file, int line, const char* condition);

// Replaces the handler that hears of a failed check before the process aborts; returns the old one.
CheckHandler set_check_handler(CheckHandler handler);

[[noreturn]] void check_failed(const char* file, int line, const char* condition);

}  // namespace tersum

#define TERSUM_CHECK(condition)                               \
  do {                                                        \
    if (!(condition)) [[unlikely]]                            \
      ::tersum::check_failed(__FILE__, __LINE__, #condition); \
  } while (false)
