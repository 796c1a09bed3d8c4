// Metrics: what tersum has done in this process, over all communicators, as numbers and as text.
//
// Thread safety: any thread, but not from a completion callback. Reading waits at most 200 ms for
// the engine's own gauges and leaves them out if it is busy for longer. Invariant: counters only
// grow. docs/metrics.md lists every name.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "tersum/status.h"

namespace tersum {

// Upper bounds of the histogram of call durations, in seconds; the last bucket has none.
inline constexpr std::array<double, 9> kDurationBuckets = {1e-5, 3e-5, 1e-4, 1e-3, 1e-2,
                                                           1e-1, 1.0,  10.0, 100.0};

// Calls of one collective with one codec ("exact" where the values travelled as they were).
struct CallMetrics {
  std::string collective;
  std::string codec;
  uint64_t calls = 0;          // that have ended, well or not
  uint64_t payload_bytes = 0;  // of the arrays handed in
  uint64_t wire_bytes_sent = 0;
  uint64_t wire_bytes_received = 0;
  uint64_t wire_bytes_streamed = 0;  // written past the caches, for ranks whose cores are far
  uint64_t wire_bytes_placed = 0;    // of those sent, written where ranks of this host want them
  uint64_t slices_sent = 0;
  double seconds = 0;  // from start to end, summed
  std::array<uint64_t, kDurationBuckets.size() + 1> durations{};
};

struct FailureMetrics {
  std::string collective;
  std::string codec;
  StatusCode code = StatusCode::kInternal;
  uint64_t calls = 0;
};

// The engine's memory and queues; all 0 while there is no communicator.
struct EngineMetrics {
  bool running = false;
  uint64_t arena_used_bytes = 0;  // slots that somebody still needs
  uint64_t arena_high_water_bytes = 0;
  uint64_t arena_capacity_bytes = 0;  // address space, not memory
  uint64_t backlog_bytes = 0;         // queued for peers, not yet taken by the carrier
};

struct Metrics {
  std::vector<CallMetrics> calls;
  std::vector<FailureMetrics> failures;
  uint64_t calls_in_flight = 0;
  uint64_t links = 0;  // to other processes, now
  uint64_t links_opened = 0;
  uint64_t links_lost = 0;  // not closed by us: the peer is gone or broke the protocol
  uint64_t connects_failed = 0;
  EngineMetrics engine;
};

Metrics metrics();

// The same in Prometheus's text format 0.0.4.
std::string metrics_text();

}  // namespace tersum
