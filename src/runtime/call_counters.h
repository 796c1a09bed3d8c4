// CallCounters: the counters of this process, whatever engine or communicator they come from.
//
// Thread safety: any thread. Invariant: counters only grow; counting does not allocate after the
// first call of a collective with a codec (and of a failure with a code).
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <vector>

#include "codec/codec.h"
#include "tersum/metrics.h"
#include "tersum/options.h"
#include "tersum/status.h"

namespace tersum {

// One call that has ended.
struct CallCount {
  Collective collective = Collective::kBarrier;
  const Codec* codec = nullptr;
  StatusCode code = StatusCode::kOk;
  uint64_t payload_bytes = 0;
  uint64_t wire_bytes_sent = 0;
  uint64_t wire_bytes_received = 0;
  uint64_t wire_bytes_streamed = 0;
  uint64_t wire_bytes_placed = 0;
  uint64_t slices_sent = 0;
  double seconds = 0;
};

class CallCounters {
 public:
  static CallCounters& process();

  void count_started() { started_.fetch_add(1, std::memory_order_relaxed); }
  void count_ended(const CallCount& call);
  void count_link_opened() { opened_.fetch_add(1, std::memory_order_relaxed); }
  void count_link_closed() { closed_.fetch_add(1, std::memory_order_relaxed); }
  void count_link_lost() { lost_.fetch_add(1, std::memory_order_relaxed); }
  void count_connect_failed() { connects_failed_.fetch_add(1, std::memory_order_relaxed); }

  // All but the engine's gauges.
  [[nodiscard]] Metrics read() const;

 private:
  struct Series {
    Collective collective;
    const Codec* codec;
    CallMetrics sums;  // names are filled in by read()
    std::vector<std::pair<StatusCode, uint64_t>> failures;
  };

  mutable std::mutex mutex_;
  std::vector<Series> series_;
  uint64_t ended_ = 0;  // under mutex_
  std::atomic<uint64_t> started_{0};
  std::atomic<uint64_t> opened_{0};
  std::atomic<uint64_t> closed_{0};
  std::atomic<uint64_t> lost_{0};
  std::atomic<uint64_t> connects_failed_{0};
};

}  // namespace tersum
