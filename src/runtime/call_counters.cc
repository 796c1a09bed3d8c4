#include "runtime/call_counters.h"

#include <algorithm>

namespace tersum {
namespace {

size_t bucket_of(double seconds) {
  const auto* const found = std::find_if(kDurationBuckets.begin(), kDurationBuckets.end(),
                                         [&](double bound) { return seconds <= bound; });
  return static_cast<size_t>(found - kDurationBuckets.begin());
}

void add(CallMetrics& to, const CallMetrics& from) {
  to.calls += from.calls;
  to.payload_bytes += from.payload_bytes;
  to.wire_bytes_sent += from.wire_bytes_sent;
  to.wire_bytes_received += from.wire_bytes_received;
  to.wire_bytes_streamed += from.wire_bytes_streamed;
  to.wire_bytes_placed += from.wire_bytes_placed;
  to.slices_sent += from.slices_sent;
  to.seconds += from.seconds;
  for (size_t i = 0; i < to.durations.size(); ++i) to.durations[i] += from.durations[i];
}

}  // namespace

CallCounters& CallCounters::process() {
  // Never destroyed: engines may end while the process does.
  static auto* const counters = new CallCounters();
  return *counters;
}

void CallCounters::count_ended(const CallCount& call) {
  const std::lock_guard lock(mutex_);
  ++ended_;
  auto series = std::find_if(series_.begin(), series_.end(), [&](const Series& other) {
    return other.collective == call.collective && other.codec == call.codec;
  });
  if (series == series_.end()) {
    series_.push_back({call.collective, call.codec, {}, {}});
    series = series_.end() - 1;
  }
  CallMetrics& sums = series->sums;
  ++sums.calls;
  sums.payload_bytes += call.payload_bytes;
  sums.wire_bytes_sent += call.wire_bytes_sent;
  sums.wire_bytes_received += call.wire_bytes_received;
  sums.wire_bytes_streamed += call.wire_bytes_streamed;
  sums.wire_bytes_placed += call.wire_bytes_placed;
  sums.slices_sent += call.slices_sent;
  sums.seconds += call.seconds;
  ++sums.durations[bucket_of(call.seconds)];
  if (call.code == StatusCode::kOk) return;
  auto failure = std::find_if(series->failures.begin(), series->failures.end(),
                              [&](const auto& other) { return other.first == call.code; });
  if (failure == series->failures.end()) {
    series->failures.emplace_back(call.code, 0);
    failure = series->failures.end() - 1;
  }
  ++failure->second;
}

// A codec object serves one element type; types are added up here.
Metrics CallCounters::read() const {
  Metrics metrics;
  const std::lock_guard lock(mutex_);
  for (const Series& series : series_) {
    const std::string collective(collective_name(series.collective));
    const std::string codec = series.codec->spec().to_string();
    const auto same = [&](const auto& other) {
      return other.collective == collective && other.codec == codec;
    };
    auto call = std::find_if(metrics.calls.begin(), metrics.calls.end(), same);
    if (call == metrics.calls.end()) {
      metrics.calls.push_back({.collective = collective, .codec = codec});
      call = metrics.calls.end() - 1;
    }
    add(*call, series.sums);
    for (const auto& [code, calls] : series.failures) {
      auto failure = std::find_if(
          metrics.failures.begin(), metrics.failures.end(),
          [&, wanted = code](const auto& other) { return same(other) && other.code == wanted; });
      if (failure == metrics.failures.end()) {
        metrics.failures.push_back({collective, codec, code, 0});
        failure = metrics.failures.end() - 1;
      }
      failure->calls += calls;
    }
  }
  const auto load = [](const std::atomic<uint64_t>& counter) {
    return counter.load(std::memory_order_relaxed);
  };
  metrics.calls_in_flight = load(started_) - std::min(ended_, load(started_));
  metrics.links_opened = load(opened_);
  metrics.links_lost = load(lost_);
  metrics.connects_failed = load(connects_failed_);
  const uint64_t gone = load(closed_) + metrics.links_lost;
  metrics.links = metrics.links_opened - std::min(gone, metrics.links_opened);
  return metrics;
}

}  // namespace tersum
