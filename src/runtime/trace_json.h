// A recorded trace as text: the JSON array format that Perfetto and chrome://tracing read.
//
// Pure; any thread that may read the recorder. One process per file, one track per (group, rank),
// spans of codec work on it, calls and slices under way as asynchronous spans. Times are
// microseconds of the clock that recorded them; the event "tersum_clock" holds what is needed to
// line up files of several hosts. docs/tracing.md describes every event.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "runtime/trace_recorder.h"

namespace tersum {

// Who recorded, and what its clock showed when the trace was written.
struct TraceOrigin {
  int64_t process = 0;
  int rank = 0;  // of the first group that the process joined
  std::string host;
  std::string boot;          // processes of one boot share a clock
  int64_t monotonic_ns = 0;  // the recorder's clock, and …
  int64_t wall_ns = 0;       // … nanoseconds since 1970 at the same moment
};

// Hands the text to `sink` in pieces of some 64 KiB.
void write_trace_json(const TraceRecorder& recorder, const TraceOrigin& origin,
                      const std::function<void(std::string_view)>& sink);

}  // namespace tersum
