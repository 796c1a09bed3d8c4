// TraceRecorder: what one process's engine did and when: calls, slices, messages, sleeps.
//
// A ring of fixed size: once it is full the oldest event gives way and is counted as dropped, so a
// long run keeps its end. Nothing is formatted while recording; trace_json.h writes it out.
//
// Thread safety: none; the holder of the progress role records, and whoever writes the trace out
// has that role or comes after the node's end. Invariant: no allocation after the ring has filled
// up once, and before that only by doubling.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/clock.h"
#include "codec/codec.h"
#include "tersum/options.h"
#include "tersum/status.h"
#include "transport/link.h"
#include "wire/message.h"

namespace tersum {

enum class TraceKind : uint8_t {
  kCall,     // from the caller's start to the end
  kEncode,   // own values to the wire format
  kCombine,  // contributions (and own values) to a sum
  kDecode,   // the owner's bytes to values
  kQueued,   // a slice was handed to the link
  kTaken,    // the carrier (socket, shared memory) has taken the last byte of it
  kArrived,  // a slice has come in
  kReady,    // another rank's descriptor has come in: that rank is in the call
  kSleep,    // the engine slept: nothing could be done
};

struct TraceEvent {
  int64_t begin_ns = 0;
  int64_t end_ns = 0;  // equal for instants
  uint64_t group = 0;
  uint64_t call = 0;
  uint64_t bytes = 0;
  const Codec* codec = nullptr;
  uint32_t chunk = 0;
  uint32_t slice = 0;
  uint16_t rank = 0;
  uint16_t peer = 0;
  TraceKind kind = TraceKind::kCall;
  FlowPhase phase = FlowPhase::kReduce;
  Collective collective = Collective::kBarrier;
  bool has_peer = false;
  StatusCode status = StatusCode::kOk;
};
static_assert(sizeof(TraceEvent) == 72);

class TraceRecorder final : public CarrierWatch {
 public:
  // 19 MB at 72 bytes each: the slices of some hundred calls of 64 MiB.
  static constexpr size_t kEventsDefault = 1 << 18;

  explicit TraceRecorder(const Clock& clock, size_t events_max = kEventsDefault);

  [[nodiscard]] int64_t now_ns() const { return clock_.now_ns(); }
  void record(const TraceEvent& event);
  // A slice or descriptor on its way, as its header describes it; `kind` says which end this is.
  void record_message(TraceKind kind, const MessageHeader& header);
  void record_sleep(int64_t begin_ns);
  void on_taken(const MessageHeader& header) override;

  [[nodiscard]] size_t size() const { return events_.size(); }
  // The i-th oldest event that is left.
  [[nodiscard]] const TraceEvent& at(size_t i) const {
    return events_[(first_ + i) % events_.size()];
  }
  [[nodiscard]] uint64_t dropped() const { return dropped_; }

 private:
  const Clock& clock_;
  const size_t events_max_;
  std::vector<TraceEvent> events_;
  size_t first_ = 0;  // the oldest, once the ring is full
  uint64_t dropped_ = 0;
};

// The start of a span, 0 when nobody records: one branch where tracing is off.
inline int64_t trace_start(const TraceRecorder* trace) {
  return trace == nullptr ? 0 : trace->now_ns();
}

}  // namespace tersum
