#include "base/log.h"

#include <atomic>
#include <mutex>

#include "base/name_table.h"

namespace tersum {
namespace {

constexpr NamedValue<LogLevel> kLevels[] = {
    {LogLevel::kDebug, "debug"},
    {LogLevel::kInfo, "info"},
    {LogLevel::kWarning, "warning"},
};

struct SinkState {
  LogSink sink = nullptr;
  void* context = nullptr;
};

// One above the highest level: nothing passes.
constexpr uint8_t kSilent = 3;

// The threshold is read on hot paths without the lock; sink and context change together under it.
std::atomic<uint8_t> g_minimum{kSilent};
std::mutex g_mutex;
SinkState g_state;

}  // namespace

std::string_view log_level_name(LogLevel level) { return name_of<LogLevel>(kLevels, level); }

void set_log_sink(LogSink sink, void* context, LogLevel minimum) {
  const std::lock_guard lock(g_mutex);
  g_state = {sink, context};
  g_minimum.store(sink == nullptr ? kSilent : static_cast<uint8_t>(minimum));
}

bool log_enabled(LogLevel level) {
  return static_cast<uint8_t>(level) >= g_minimum.load(std::memory_order_relaxed);
}

void log_message(LogLevel level, std::string_view message) {
  if (!log_enabled(level)) return;
  SinkState state;
  {
    const std::lock_guard lock(g_mutex);
    state = g_state;
  }
  // Outside the lock, so that a sink may install another one.
  if (state.sink != nullptr) state.sink(state.context, level, message);
}

}  // namespace tersum
