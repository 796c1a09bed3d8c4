#include "runtime/trace_recorder.h"

#include <algorithm>

namespace tersum {

TraceRecorder::TraceRecorder(const Clock& clock, size_t events_max)
    : clock_(clock), events_max_(std::max<size_t>(events_max, 1)) {}

void TraceRecorder::record(const TraceEvent& event) {
  if (events_.size() < events_max_) {
    events_.push_back(event);
    return;
  }
  events_[first_] = event;
  first_ = (first_ + 1) % events_max_;
  ++dropped_;
}

void TraceRecorder::record_message(TraceKind kind, const MessageHeader& header) {
  const bool incoming = kind == TraceKind::kArrived || kind == TraceKind::kReady;
  TraceEvent event;
  event.begin_ns = event.end_ns = now_ns();
  event.group = header.group;
  event.call = header.call;
  event.bytes = header.payload_bytes;
  event.chunk = header.chunk;
  event.slice = header.slice;
  event.rank = incoming ? header.to_rank : header.from_rank;
  event.peer = incoming ? header.from_rank : header.to_rank;
  event.has_peer = true;
  event.kind = kind;
  event.phase = header.phase;
  record(event);
}

void TraceRecorder::record_sleep(int64_t begin_ns) {
  TraceEvent event;
  event.begin_ns = begin_ns;
  event.end_ns = now_ns();
  event.kind = TraceKind::kSleep;
  record(event);
}

void TraceRecorder::on_taken(const MessageHeader& header) {
  if (header.kind == MessageKind::kData) record_message(TraceKind::kTaken, header);
}

}  // namespace tersum
