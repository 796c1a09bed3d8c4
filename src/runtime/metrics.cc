#include "tersum/metrics.h"

#include <fmt/format.h>

#include <atomic>
#include <iterator>
#include <memory>
#include <string_view>
#include <utility>

#include "runtime/call_counters.h"
#include "runtime/process_node.h"
#include "tersum/isa.h"
#include "tersum/version.h"

namespace tersum {
namespace {

constexpr int64_t kEnginePatienceNs = 200'000'000;

// The engine's gauges belong to whoever has its role, so a task reads them there. Shared with that
// task, which may come too late.
struct EngineReading {
  EngineMetrics values;
  std::atomic<bool> done{false};
};

EngineMetrics read_engine() {
  const std::shared_ptr<Progress> engine = current_process_node();
  if (!engine) return {};
  auto reading = std::make_shared<EngineReading>();
  engine->node().post([reading](Node& node) {
    const Arena& arena = node.transport().arena();
    reading->values = {true, arena.used_bytes(), arena.high_water_bytes(), arena.capacity_bytes(),
                       node.backlog_bytes()};
    reading->done.store(true, std::memory_order_release);
  });
  const auto done = [&] { return reading->done.load(std::memory_order_acquire); };
  return engine->wait_until(done, kEnginePatienceNs) ? reading->values : EngineMetrics{};
}

std::string escape_label(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '\\' || c == '"') out += '\\';
    if (c == '\n') {
      out += "\\n";
    } else {
      out += c;
    }
  }
  return out;
}

class TextWriter {
 public:
  // Begins a family: all its samples follow.
  void family(std::string_view name, std::string_view type, std::string_view help) {
    name_ = name;
    fmt::format_to(std::back_inserter(text_), "# HELP {0} {1}\n# TYPE {0} {2}\n", name, help, type);
  }
  template <typename Number>
  void sample(Number value, std::string_view labels = "", std::string_view suffix = "") {
    const std::string braced = labels.empty() ? "" : fmt::format("{{{}}}", labels);
    fmt::format_to(std::back_inserter(text_), "{}{}{} {}\n", name_, suffix, braced, value);
  }
  template <typename Number>
  void single(std::string_view name, std::string_view type, std::string_view help, Number value) {
    family(name, type, help);
    sample(value);
  }
  std::string take() { return std::move(text_); }

 private:
  std::string_view name_;
  std::string text_;
};

template <typename Entry>
std::string labels_of(const Entry& entry) {
  return fmt::format(R"(collective="{}",codec="{}")", escape_label(entry.collective),
                     escape_label(entry.codec));
}

void write_calls(TextWriter& out, const Metrics& metrics) {
  const auto counter = [&](std::string_view name, std::string_view help,
                           uint64_t CallMetrics::* field) {
    out.family(name, "counter", help);
    for (const CallMetrics& call : metrics.calls) out.sample(call.*field, labels_of(call));
  };
  counter("tersum_calls_total", "Calls that have ended, well or not.", &CallMetrics::calls);
  out.family("tersum_call_failures_total", "counter", "Calls that have ended with an error.");
  for (const FailureMetrics& failure : metrics.failures) {
    out.sample(failure.calls, fmt::format(R"({},code="{}")", labels_of(failure),
                                          escape_label(status_code_name(failure.code))));
  }
  counter("tersum_payload_bytes_total", "Bytes of the arrays that callers handed in.",
          &CallMetrics::payload_bytes);
  counter("tersum_wire_bytes_sent_total", "Encoded bytes sent to other ranks, headers not counted.",
          &CallMetrics::wire_bytes_sent);
  counter("tersum_wire_bytes_received_total",
          "Encoded bytes received from other ranks, headers not counted.",
          &CallMetrics::wire_bytes_received);
  counter("tersum_slices_sent_total", "Messages that carried them.", &CallMetrics::slices_sent);
  counter("tersum_wire_bytes_streamed_total",
          "Encoded bytes written past the caches, for ranks whose cores are far.",
          &CallMetrics::wire_bytes_streamed);
  counter("tersum_wire_bytes_placed_total",
          "Bytes sent by writing them into the arrays of ranks on this host.",
          &CallMetrics::wire_bytes_placed);
  out.family("tersum_call_duration_seconds", "histogram", "From the start of a call to its end.");
  for (const CallMetrics& call : metrics.calls) {
    const std::string labels = labels_of(call);
    uint64_t below = 0;
    for (size_t i = 0; i < call.durations.size(); ++i) {
      below += call.durations[i];
      const std::string bound =
          i < kDurationBuckets.size() ? fmt::format("{}", kDurationBuckets[i]) : "+Inf";
      out.sample(below, fmt::format(R"({},le="{}")", labels, bound), "_bucket");
    }
    out.sample(call.seconds, labels, "_sum");
    out.sample(call.calls, labels, "_count");
  }
}

void write_engine(TextWriter& out, const EngineMetrics& engine) {
  if (!engine.running) return;
  out.single("tersum_arena_used_bytes", "gauge", "Message memory that somebody still needs.",
             engine.arena_used_bytes);
  out.single("tersum_arena_high_water_bytes", "gauge", "The most of it at any time.",
             engine.arena_high_water_bytes);
  out.single("tersum_arena_capacity_bytes", "gauge", "Address space set aside for it.",
             engine.arena_capacity_bytes);
  out.single("tersum_backlog_bytes", "gauge", "Queued for peers and not yet taken by the carrier.",
             engine.backlog_bytes);
}

}  // namespace

Metrics metrics() {
  Metrics metrics = CallCounters::process().read();
  metrics.engine = read_engine();
  return metrics;
}

std::string metrics_text() {
  const Metrics now = metrics();
  TextWriter out;
  out.family("tersum_build_info", "gauge", "Always 1; the labels say which tersum this is.");
  out.sample(1, fmt::format(R"(version="{}",wire="{}",isa="{}")", TERSUM_VERSION, kWireVersion,
                            escape_label(active_isa())));
  write_calls(out, now);
  out.single("tersum_calls_in_flight", "gauge", "Calls that have started and not ended.",
             now.calls_in_flight);
  out.single("tersum_links", "gauge", "Links to other processes.", now.links);
  out.single("tersum_links_opened_total", "counter", "Links that came up.", now.links_opened);
  out.single("tersum_links_lost_total", "counter", "Links that the peer or the network ended.",
             now.links_lost);
  out.single("tersum_connects_failed_total", "counter", "Connections that were given up.",
             now.connects_failed);
  write_engine(out, now.engine);
  return out.take();
}

}  // namespace tersum
