// The part of Operation that says what was done: to statistics, counters and traces.
#include "runtime/call_counters.h"
#include "runtime/member.h"
#include "runtime/node.h"
#include "runtime/operation.h"
#include "runtime/trace_recorder.h"

namespace tersum {

void Operation::count_call(const Node& node, const Status& status) {
  const double seconds = static_cast<double>(node.clock().now_ns() - request_.start_ns) * 1e-9;
  {
    const std::lock_guard lock(member_->mutex);
    CommunicatorStats& stats = member_->stats;
    ++stats.calls;
    stats.values += request_.count;
    stats.wire_bytes_sent += bytes_sent_;
    stats.wire_bytes_received += bytes_received_;
    stats.seconds += seconds;
  }
  CallCounters::process().count_ended({request_.collective, request_.codec, status.code(),
                                       request_.count * element_bytes(request_.type), bytes_sent_,
                                       bytes_received_, bytes_streamed_, bytes_placed_,
                                       slices_sent_, seconds});
}

void Operation::trace_slice(TraceRecorder& trace, TraceKind kind, int64_t begin_ns,
                            const PlanRun& run, const ChunkRole& role, uint32_t slice,
                            size_t bytes) const {
  TraceEvent event;
  event.begin_ns = begin_ns;
  event.end_ns = trace.now_ns();
  event.group = member_->group;
  event.call = request_.call;
  event.bytes = bytes;
  event.codec = request_.codec;
  event.chunk = role.chunk;
  event.slice = slice;
  event.rank = static_cast<uint16_t>(member_->rank);
  event.kind = kind;
  const bool gathers = kind == TraceKind::kDecode;
  event.phase = stage_phase(gathers ? FlowPhase::kGather : FlowPhase::kReduce, run.of_scales);
  // Whose contribution was decoded, or whom the encoded one is for (the first of several).
  const FlowRange& outs = role.finishes ? role.finals : role.partials;
  if (gathers) {
    event.peer = run.plan->in_flows[role.store.first].peer;
    event.has_peer = true;
  } else if (kind == TraceKind::kEncode && outs.count > 0) {
    event.peer = run.plan->out_flows[outs.first].peer;
    event.has_peer = true;
  }
  trace.record(event);
}

void Operation::trace_call(TraceRecorder& trace) const {
  TraceEvent event;
  event.begin_ns = request_.start_ns;
  event.end_ns = trace.now_ns();
  event.group = member_->group;
  event.call = request_.call;
  event.bytes = request_.count * element_bytes(request_.type);
  event.codec = request_.codec;
  event.rank = static_cast<uint16_t>(member_->rank);
  event.kind = TraceKind::kCall;
  event.collective = request_.collective;
  event.status = status_.code();
  trace.record(event);
}

}  // namespace tersum
