// The process's counters: as Prometheus text, and as plain Python values.

#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>

#include "bindings.h"
#include "tersum/metrics.h"

namespace tersum::python {

namespace nb = nanobind;

namespace {

nb::dict metrics_dict() {
  const Metrics now = [] {
    nb::gil_scoped_release release;
    return metrics();
  }();
  nb::list calls;
  for (const CallMetrics& call : now.calls) {
    nb::dict entry;
    entry["collective"] = call.collective;
    entry["codec"] = call.codec;
    entry["calls"] = call.calls;
    entry["payload_bytes"] = call.payload_bytes;
    entry["wire_bytes_sent"] = call.wire_bytes_sent;
    entry["wire_bytes_received"] = call.wire_bytes_received;
    entry["wire_bytes_streamed"] = call.wire_bytes_streamed;
    entry["wire_bytes_placed"] = call.wire_bytes_placed;
    entry["slices_sent"] = call.slices_sent;
    entry["seconds"] = call.seconds;
    calls.append(entry);
  }
  nb::list failures;
  for (const FailureMetrics& failure : now.failures) {
    nb::dict entry;
    entry["collective"] = failure.collective;
    entry["codec"] = failure.codec;
    entry["code"] = status_code_name(failure.code);
    entry["calls"] = failure.calls;
    failures.append(entry);
  }
  nb::dict all;
  all["calls"] = calls;
  all["failures"] = failures;
  all["calls_in_flight"] = now.calls_in_flight;
  all["links"] = now.links;
  all["links_opened"] = now.links_opened;
  all["links_lost"] = now.links_lost;
  all["connects_failed"] = now.connects_failed;
  all["arena_used_bytes"] = now.engine.arena_used_bytes;
  all["arena_high_water_bytes"] = now.engine.arena_high_water_bytes;
  all["arena_capacity_bytes"] = now.engine.arena_capacity_bytes;
  all["backlog_bytes"] = now.engine.backlog_bytes;
  return all;
}

std::string text() {
  nb::gil_scoped_release release;
  return metrics_text();
}

}  // namespace

void bind_metrics(nb::module_& module) {
  module.def("metrics", &metrics_dict, "What tersum has done in this process.");
  module.def("metrics_text", &text, "The same in Prometheus's text format.");
}

}  // namespace tersum::python
