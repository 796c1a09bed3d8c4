// tersum._core.xla: the HLO pass and the FFI handlers, for python/tersum/jax.

#include <nanobind/nanobind.h>
#include <nanobind/stl/function.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <cstddef>
#include <cstring>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "bindings.h"
#include "tersum/options.h"
#include "xla/ffi_auto_codec.h"
#include "xla/ffi_call_recorder.h"
#include "xla/ffi_handlers.h"
#include "xla/ffi_invocation.h"
#include "xla/ffi_world_gate.h"
#include "xla/ffi_world_hooks.h"
#include "xla/hlo_hook.h"
#include "xla/hlo_pass.h"

namespace tersum::python {

namespace nb = nanobind;
using xla_ffi::ProcessFacts;
using xla_ffi::WorldGate;

namespace {

// The name by which XLA recognizes a handler in a capsule.
constexpr const char* kCapsuleName = "xla._CUSTOM_CALL_TARGET";

// What Python raised, as a status; an exception of tersum keeps its code. Needs the GIL.
Status status_of(nb::python_error& error) {
  const std::string text = nb::cast<std::string>(nb::str(error.value()));
  int64_t code = 0;
  if (nb::hasattr(error.value(), "code") &&
      nb::try_cast(nb::object(error.value().attr("code")), code)) {
    return {static_cast<StatusCode>(code), text};
  }
  if (error.matches(PyExc_TimeoutError)) return {StatusCode::kTimeout, text};
  return {StatusCode::kUnavailable,
          nb::cast<std::string>(nb::str(error.type().attr("__name__"))) + ": " + text};
}

// The two Python functions that know this process; shared by the gate's hooks. Its end takes the
// GIL.
class PythonFacts {
 public:
  PythonFacts(nb::object describe, nb::object open_store)
      : describe_(std::move(describe)), open_store_(std::move(open_store)) {}
  ~PythonFacts() {
    if (Py_IsInitialized() == 0) {
      (void)describe_.release();
      (void)open_store_.release();
      return;
    }
    const nb::gil_scoped_acquire gil;
    describe_.reset();
    open_store_.reset();
  }

  [[nodiscard]] Result<ProcessFacts> describe() const {
    const nb::gil_scoped_acquire gil;
    try {
      const auto facts = nb::cast<nb::tuple>(describe_());
      return ProcessFacts{nb::cast<int>(facts[0]), nb::cast<int>(facts[1]),
                          nb::cast<std::vector<int64_t>>(facts[2])};
    } catch (nb::python_error& error) {
      return status_of(error);
    } catch (const std::exception& error) {
      return Status(StatusCode::kInternal, error.what());
    }
  }

  [[nodiscard]] Result<std::shared_ptr<Store>> open_store(int rank, int64_t timeout_ms) const {
    const nb::gil_scoped_acquire gil;
    try {
      return store_from_python(open_store_(), rank, timeout_ms);
    } catch (nb::python_error& error) {
      return status_of(error);
    } catch (const std::exception& error) {
      return Status(StatusCode::kInternal, error.what());
    }
  }

 private:
  nb::object describe_;
  nb::object open_store_;
};

// Later calls decide how worlds are made from then on.
void configure(nb::object describe, nb::object open_store, const std::string& name,
               int64_t timeout_ms, const std::string& transport, const std::string& listen_address,
               uint16_t listen_port, int tcp_streams, uint32_t flatten_every,
               const nb::bytes& flatten_state, const nb::bytes& feedback_state,
               uint64_t rounding_seed) {
  CommunicatorOptions options;
  options.timeout_ms = timeout_ms;
  options.listen_address = listen_address;
  options.listen_port = listen_port;
  options.tcp_streams = tcp_streams;
  options.flatten_every = flatten_every;
  options.rounding_seed = rounding_seed;
  const auto copied = [](const nb::bytes& state) {
    const auto* const first = static_cast<const std::byte*>(state.data());
    return std::vector<std::byte>(first, first + state.size());
  };
  const auto kind = parse_transport_kind(transport);
  if (!kind.has_value()) throw_if_error(invalid_argument("no transport is called " + transport));
  options.transport = *kind;
  const auto facts = std::make_shared<PythonFacts>(std::move(describe), std::move(open_store));
  // Only rank 0 of a URL would serve; this store is an object.
  WorldGate::instance().configure(xla_ffi::make_world_hooks(
      {[facts] { return facts->describe(); },
       [facts, timeout_ms] { return facts->open_store(/*rank=*/1, timeout_ms); }, options, name,
       copied(flatten_state), copied(feedback_state)}));
}

nb::dict row_to_dict(const HloReportRow& row) {
  nb::dict out;
  out["program"] = row.module;
  out["operation"] = row.instruction;
  out["opcode"] = row.opcode;
  out["source"] = row.op_name;
  out["element_type"] = row.element_type;
  out["elements"] = row.elements;
  out["bytes"] = row.bytes;
  out["groups"] = row.groups;
  out["outcome"] = std::string(hlo_outcome_name(row.outcome));
  out["codec"] = row.codec;
  out["promoted"] = row.promoted;
  out["wire_bf16"] = row.wire_bf16;
  out["reason"] = row.reason;
  out["fingerprint"] = row.fingerprint;
  out["number"] = row.operation;
  out["channels"] = nb::tuple(nb::cast(row.channels));
  return out;
}

// The process's hook; never destroyed, since XLA may compile while the process exits.
HloHook& hook() {
  static auto* const hook = new HloHook;
  return *hook;
}

void configure_pass(const std::string& codec, const std::string& auto_codec,
                    const std::string& plan, int64_t timeout_ms, int64_t min_bytes,
                    std::vector<std::vector<int64_t>> processes, bool rewrite_local_groups) {
  HloPassOptions options;
  options.codec = codec;
  options.auto_codec = auto_codec;
  options.plan = plan;
  options.timeout_ms = timeout_ms;
  options.min_bytes = min_bytes;
  options.processes = std::move(processes);
  options.rewrite_local_groups = rewrite_local_groups;
  options.canonical_codec = &xla_ffi::check_codec;
  throw_if_error(hook().configure(options));
}

// The GIL is released while the pass runs.
nb::object transform(const nb::bytes& module) {
  const std::string_view bytes(module.c_str(), module.size());
  const std::optional<std::string> changed = [&] {
    const nb::gil_scoped_release no_gil;
    return hook().transform(bytes);
  }();
  if (!changed.has_value()) return nb::none();
  return nb::bytes(changed->data(), changed->size());
}

nb::list report() {
  nb::list rows;
  for (const HloReportRow& row : hook().report()) rows.append(row_to_dict(row));
  return rows;
}

nb::dict handlers() {
  nb::dict out;
  for (const auto& entry : xla_ffi::handler_table()) {
    out[nb::str(entry.target.data(), entry.target.size())] =
        nb::capsule(entry.handler, kCapsuleName);
  }
  return out;
}

// `act` on the world, once nothing that runs uses it. The GIL is released meanwhile.
template <typename Act>
auto with_idle_world(const Act& act) -> decltype(act(std::declval<DeviceWorld&>())) {
  const nb::gil_scoped_release no_gil;
  xla_ffi::wait_until_no_invocations();
  const Result<std::shared_ptr<DeviceWorld>> world = WorldGate::instance().world();
  if (!world.ok()) return world.status();
  return act(*world.value());
}

nb::bytes save_flatten() {
  const std::vector<std::byte> saved =
      value_or_throw(with_idle_world([](DeviceWorld& world) { return world.save_flatten(); }));
  return nb::bytes(saved.data(), saved.size());
}

void load_flatten(const nb::bytes& saved) {
  const std::span bytes(static_cast<const std::byte*>(saved.data()), saved.size());
  throw_if_error(
      with_idle_world([bytes](DeviceWorld& world) { return world.load_flatten(bytes); }));
}

void reset_flatten() {
  throw_if_error(with_idle_world([](DeviceWorld& world) { return world.reset_flatten(); }));
}

nb::bytes save_feedback() {
  const std::vector<std::byte> saved =
      value_or_throw(with_idle_world([](DeviceWorld& world) { return world.save_feedback(); }));
  return nb::bytes(saved.data(), saved.size());
}

void load_feedback(const nb::bytes& saved) {
  const std::span bytes(static_cast<const std::byte*>(saved.data()), saved.size());
  throw_if_error(
      with_idle_world([bytes](DeviceWorld& world) { return world.load_feedback(bytes); }));
}

void reset_feedback() {
  throw_if_error(with_idle_world([](DeviceWorld& world) { return world.reset_feedback(); }));
}

nb::dict stats() {
  const CommunicatorStats sum = [] {
    const nb::gil_scoped_release no_gil;
    return WorldGate::instance().stats();
  }();
  nb::dict out;
  out["calls"] = sum.calls;
  out["values"] = sum.values;
  out["wire_bytes_sent"] = sum.wire_bytes_sent;
  out["wire_bytes_received"] = sum.wire_bytes_received;
  out["seconds"] = sum.seconds;
  return out;
}

nb::list choices() {
  const std::vector<xla_ffi::OperationChoice> found = [] {
    const nb::gil_scoped_release no_gil;
    return xla_ffi::choices_of_operations(WorldGate::instance().choices());
  }();
  nb::list out;
  for (const xla_ffi::OperationChoice& one : found) {
    nb::dict entry;
    entry["fingerprint"] = static_cast<int64_t>(one.operation.fingerprint);
    entry["number"] = one.operation.operation;
    entry["codec"] = std::string(one.choice.codec);
    entry["rel_error"] = one.choice.rel_error;
    entry["calls"] = one.choice.calls;
    out.append(entry);
  }
  return out;
}

nb::bytes as_bytes(const std::vector<std::byte>& data) {
  return nb::bytes(data.data(), data.size());
}

nb::dict recorded_to_dict(const xla_ffi::RecordedCall& call) {
  nb::list operands;
  for (const auto& operand : call.operands) {
    operands.append(nb::make_tuple(std::string(data_type_name(operand.type)),
                                   as_bytes(operand.input), as_bytes(operand.output)));
  }
  nb::dict out;
  out["collective"] = std::string(collective_name(call.collective));
  out["device"] = call.device;
  out["group"] = nb::cast(call.group);
  out["fingerprint"] = static_cast<int64_t>(call.operation.fingerprint);
  out["number"] = call.operation.operation;
  out["occurrence"] = call.occurrence;
  out["key"] = call.key;
  out["codec"] = call.codec;
  out["plan"] = call.plan;
  out["operands"] = operands;
  return out;
}

nb::object take_recorded() {
  std::vector<std::unique_ptr<xla_ffi::RecordedCall>> calls;
  const bool more = [&] {
    const nb::gil_scoped_release no_gil;
    return xla_ffi::CallRecorder::instance().take(calls);
  }();
  if (!more) return nb::none();
  nb::list out;
  for (const auto& call : calls) out.append(recorded_to_dict(*call));
  return out;
}

void bind_recorder(nb::module_& xla) {
  using xla_ffi::CallRecorder;
  xla.def(
      "start_recording",
      [](int64_t calls_per_site, int64_t bytes_max) {
        throw_if_error(CallRecorder::instance().start({calls_per_site, bytes_max}));
      },
      nb::arg("calls_per_site"), nb::arg("bytes_max"),
      "Keeps copies of calls from now on; InvalidArgumentError while a recording is not over.");
  xla.def("take_recorded", &take_recorded,
          "The calls that have ended since, as dicts; waits for some. None when all is over.");
  xla.def(
      "stop_recording", [] { CallRecorder::instance().stop(); },
      "Admits no more calls; take_recorded() then ends with the calls in flight.");
  xla.def(
      "recording_counts",
      [] {
        const auto counts = CallRecorder::instance().counts();
        return nb::make_tuple(counts.beyond_calls, counts.beyond_bytes, counts.failed);
      },
      "Calls left out: beyond the calls per site, beyond the bytes, failed.");
}

}  // namespace

void bind_xla(nb::module_& module) {
  module.attr("has_xla") = true;
  nb::module_ xla = module.def_submodule("xla", "The compiled part of tersum.jax.");
  xla.attr("ffi_api_version") = std::string(xla_ffi::ffi_api_version());
  xla.def(
      "canonical_codec",
      [](const std::string& spec) { return value_or_throw(xla_ffi::check_codec(spec)); },
      nb::arg("spec"), "The canonical form of a codec spec; InvalidArgumentError if it is none.");
  xla.def("handlers", &handlers, "FFI targets by name, as capsules for register_ffi_target.");
  xla.def("configure", &configure, nb::arg("describe"), nb::arg("open_store"), nb::arg("name"),
          nb::arg("timeout_ms"), nb::arg("transport"), nb::arg("listen_address"),
          nb::arg("listen_port"), nb::arg("tcp_streams"), nb::arg("flatten_every"),
          nb::arg("flatten_state"), nb::arg("feedback_state"), nb::arg("rounding_seed"),
          "Sets how the device worlds of this process are made when the first program needs them.");
  xla.def("configure_pass", &configure_pass, nb::kw_only(), nb::arg("codec"), nb::arg("auto_codec"),
          nb::arg("plan"), nb::arg("timeout_ms"), nb::arg("min_bytes"), nb::arg("processes"),
          nb::arg("rewrite_local_groups"), "Sets the options of transform() from now on.");
  xla.def("transform", &transform, nb::arg("module"),
          "Runs the HLO pass on a serialized module: the new bytes, or None to leave it.");
  xla.def("report", &report, "Every collective that transform() saw, as dicts, oldest first.");
  xla.def(
      "prepare",
      [](const std::vector<int64_t>& group) {
        const nb::gil_scoped_release no_gil;
        WorldGate::instance().with_world(group, [](const auto&) {});
      },
      nb::arg("group"), "Begins to make the world that serves `group`; never blocks.");
  bind_recorder(xla);
  xla.def("save_flatten", &save_flatten, "What operations with +flatten have learned.");
  xla.def("load_flatten", &load_flatten, nb::arg("saved"), "Puts that in place.");
  xla.def("reset_flatten", &reset_flatten, "Forgets it.");
  xla.def("save_feedback", &save_feedback, "What operations with +feedback owe here.");
  xla.def("load_feedback", &load_feedback, nb::arg("saved"), "Puts that in place.");
  xla.def("reset_feedback", &reset_feedback, "Forgets what operations with +feedback have lost.");
  xla.def("stats", &stats, "Sums over the calls of this process.");
  xla.def("choices", &choices, "What operations with the codec auto took last, as dicts.");
  xla.def(
      "close",
      [] {
        xla_ffi::wait_until_no_invocations();
        WorldGate::instance().close();
      },
      nb::call_guard<nb::gil_scoped_release>(),
      "Waits for the calls in flight, at most until their deadlines, and closes the worlds.");
}

}  // namespace tersum::python
