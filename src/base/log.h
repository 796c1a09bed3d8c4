// The log sink: the only way in which tersum speaks. Silent unless a caller installs a sink.
//
// Thread safety: any thread, at any time; a sink may be called from several threads at once, and
// from a thread that is moving data, so it must not block nor call into tersum. After
// set_log_sink() has returned the old sink may still be finishing a call that had begun.
#pragma once

#include <cstdint>
#include <string_view>

namespace tersum {

enum class LogLevel : uint8_t { kDebug = 0, kInfo = 1, kWarning = 2 };
// "debug", "info", "warning".
std::string_view log_level_name(LogLevel level);

// `context` is what was given at installation; `message` lives only during the call.
using LogSink = void (*)(void* context, LogLevel level, std::string_view message);

// Installs `sink` for messages of `minimum` and above; a null sink makes tersum silent again.
// `context` must live until the sink has been replaced.
void set_log_sink(LogSink sink, void* context, LogLevel minimum = LogLevel::kInfo);

// True where a message of this level would reach a sink; ask before building an expensive one.
[[nodiscard]] bool log_enabled(LogLevel level);

void log_message(LogLevel level, std::string_view message);

}  // namespace tersum
