#include "runtime/process_node.h"

#include <charconv>
#include <condition_variable>
#include <cstdlib>
#include <mutex>

#include "base/log.h"
#include "base/name_table.h"
#include "codec/force_isa.h"
#include "platform/environment.h"
#include "platform/system_clock.h"
#include "runtime/trace_file.h"
#include "transport/host_transport.h"

namespace tersum {
namespace {

// What outlives the engines of this process. A new engine is made only when the one before it has
// ended, so that two never share the recorder or a port.
struct ProcessState {
  std::mutex mutex;
  std::condition_variable engine_ended;
  bool engine_exists = false;  // outlasts `current` until the end is complete
  std::weak_ptr<Progress> current;
  SystemClock clock;
  SystemRandom random;
  std::unique_ptr<TraceFile> trace;
};

// Never destroyed: engines may end while the process does.
ProcessState& process_state() {
  static auto* const state = new ProcessState();
  return *state;
}

// TERSUM_FORCE_ISA is obeyed or refused, never ignored: a benchmark or a test that names an
// instruction set must not run on another.
Status apply_environment() {
  const auto isa = environment_variable("TERSUM_FORCE_ISA");
  if (!isa || isa->empty()) return {};
  return force_isa(*isa);
}

void write_trace(const TraceFile& trace) {
  const Status written = trace.write();
  if (!written.ok()) log_message(LogLevel::kWarning, written.message());
}

// For programs that end without closing their communicators.
void write_trace_at_exit() {
  const std::shared_ptr<Progress> alive = current_process_node();
  if (alive) alive->execute([](Node& /*node*/) { write_trace(*process_state().trace); });
}

// What a variable names; `allowed`: the names, as the error says them.
template <typename T>
Result<T> value_of_variable(const char* variable, std::span<const NamedValue<T>> names,
                            const char* allowed) {
  const std::string text = environment_variable(variable).value_or("");
  if (const auto named = value_named<T>(names, text)) return *named;
  return invalid_argument(std::string(variable) + " is '" + text + "'; set it to " + allowed +
                          ", or leave it out");
}

Result<PayloadStores> payload_stores() {
  static constexpr NamedValue<PayloadStores> kNames[] = {{PayloadStores::kAuto, ""},
                                                         {PayloadStores::kAuto, "auto"},
                                                         {PayloadStores::kCached, "cached"},
                                                         {PayloadStores::kStreamed, "streamed"}};
  return value_of_variable<PayloadStores>("TERSUM_SHM_STORES", kNames, "auto, cached or streamed");
}

Result<ArrayReachPolicy> reach_policy() {
  static constexpr NamedValue<ArrayReachPolicy> kNames[] = {{ArrayReachPolicy::kAuto, ""},
                                                            {ArrayReachPolicy::kAuto, "auto"},
                                                            {ArrayReachPolicy::kOff, "off"},
                                                            {ArrayReachPolicy::kAllow, "allow"}};
  return value_of_variable<ArrayReachPolicy>("TERSUM_SHM_REACH", kNames, "auto, off or allow");
}

Result<size_t> trace_events_max() {
  const auto text = environment_variable("TERSUM_TRACE_EVENTS");
  if (!text || text->empty()) return TraceRecorder::kEventsDefault;
  size_t events = 0;
  const char* const end = text->data() + text->size();
  const auto [parsed, error] = std::from_chars(text->data(), end, events);
  // 2^30 events would be 77 GB.
  if (error != std::errc() || parsed != end || events == 0 || events > (size_t{1} << 30)) {
    return invalid_argument("TERSUM_TRACE_EVENTS is '" + *text +
                            "'; set it to the number of events to keep, e.g. 262144");
  }
  return events;
}

// Requires the state's mutex.
Status open_trace(ProcessState& state, const CommunicatorOptions& options, int rank, int size) {
  if (state.trace != nullptr) return {};
  const std::string path = environment_variable("TERSUM_TRACE").value_or(options.trace_file);
  if (path.empty()) return {};
  const Result<size_t> events = trace_events_max();
  if (!events.ok()) return events.status();
  auto opened = TraceFile::open(path, rank, size, events.value(), state.clock);
  if (!opened.ok()) return opened.status();
  state.trace = std::move(opened).value();
  std::atexit(write_trace_at_exit);
  return {};
}

void end_engine(Progress* progress) {
  ProcessState& state = process_state();
  const bool traced = progress->node().trace() != nullptr;
  delete progress;
  if (traced) write_trace(*state.trace);
  {
    const std::lock_guard lock(state.mutex);
    state.engine_exists = false;
  }
  state.engine_ended.notify_all();
}

}  // namespace

Result<std::shared_ptr<Progress>> acquire_process_node(const CommunicatorOptions& options, int rank,
                                                       int size) {
  ProcessState& state = process_state();
  std::unique_lock lock(state.mutex);
  while (true) {
    if (auto alive = state.current.lock()) return alive;
    if (!state.engine_exists) break;
    state.engine_ended.wait(lock);
  }
  TERSUM_RETURN_IF_ERROR(apply_environment());
  const Result<PayloadStores> stores = payload_stores();
  if (!stores.ok()) return stores.status();
  const Result<ArrayReachPolicy> reach = reach_policy();
  if (!reach.ok()) return reach.status();
  TERSUM_RETURN_IF_ERROR(open_trace(state, options, rank, size));
  HostTransportOptions transport_options;
  transport_options.clock = &state.clock;
  transport_options.random = &state.random;
  transport_options.tcp_streams = options.tcp_streams;
  transport_options.stores = stores.value();
  transport_options.reach = reach.value();
  auto transport = make_host_transport(transport_options);
  if (!transport.ok()) return transport.status();
  auto node = std::make_unique<Node>(state.clock, std::move(transport).value());
  if (state.trace != nullptr) node->set_trace(&state.trace->recorder());
  const std::shared_ptr<Progress> made(new Progress(std::move(node)), end_engine);
  state.current = made;
  state.engine_exists = true;
  return made;
}

std::shared_ptr<Progress> current_process_node() {
  ProcessState& state = process_state();
  const std::lock_guard lock(state.mutex);
  return state.current.lock();
}

}  // namespace tersum
