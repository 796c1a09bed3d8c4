// Communicator and Work for Python: buffers kept alive, signals seen, the GIL released.

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <array>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <tuple>
#include <vector>

#include "bindings.h"
#include "plain_array.h"
#include "py_communicator.h"
#include "tersum/communicator.h"

namespace tersum::python {

namespace nb = nanobind;

namespace {

// A wait is cut into slices, so that a signal (Ctrl-C) is answered within one.
constexpr int64_t kSignalSliceMs = 50;

// Waits for the end in slices; a signal whose handler raises (Ctrl-C) aborts the communicator, so
// that the other ranks learn of it and no buffer stays in use, and then raises. False: `timeout_ms`
// (>= 0) passed first and the call goes on. Needs the GIL, released while waiting.
bool wait_for_end(PyCommunicator& owner, Work& work, int64_t timeout_ms, Status* end) {
  for (int64_t left_ms = timeout_ms;;) {
    const int64_t slice_ms =
        timeout_ms < 0 ? kSignalSliceMs : std::min<int64_t>(left_ms, kSignalSliceMs);
    {
      nb::gil_scoped_release release;
      *end = work.wait(slice_ms);
    }
    if (end->code() != StatusCode::kTimeout) return true;
    // A call's own deadline is kTimeout, too, and a call may end right after its slice: what an
    // ended call says when asked again is final.
    if (work.done()) {
      *end = work.wait();
      return true;
    }
    if (PyErr_CheckSignals() != 0) {
      nb::python_error raised;
      {
        nb::gil_scoped_release release;
        owner.get().abort("interrupted by a signal (Ctrl-C)");
        (void)work.wait();
      }
      owner.sweep();
      throw raised;
    }
    if (timeout_ms >= 0 && (left_ms -= slice_ms) <= 0) return false;
  }
}

// A call in flight as Python holds it; keeps its communicator open.
class PyWork {
 public:
  PyWork(PyCommunicatorPtr owner, std::shared_ptr<PendingCall> call)
      : owner_(std::move(owner)), call_(std::move(call)), work_(call_->work) {}

  bool done() {
    if (!work_.done()) return false;
    release();
    return true;
  }

  // True when the call has ended well; raises when it failed; false when `timeout_ms` passed first.
  bool wait(int64_t timeout_ms) {
    Status end;
    if (!wait_for_end(*owner_, work_, timeout_ms, &end)) return false;
    release();
    throw_if_error(end);
    return true;
  }

 private:
  void release() {
    call_.reset();
    owner_->sweep();
  }

  PyCommunicatorPtr owner_;
  std::shared_ptr<PendingCall> call_;
  Work work_;
};

// The Work of a call that has just started. With `attended` it has ended when this returns:
// starting and waiting are one step, so that no signal can come between and leave the caller's
// arrays in use.
std::shared_ptr<PyWork> make_work(PyCommunicatorPtr owner, std::shared_ptr<PendingCall> call,
                                  bool attended) {
  auto work = std::make_shared<PyWork>(std::move(owner), std::move(call));
  if (attended) (void)work->wait(-1);
  return work;
}

CommunicatorOptions make_options(int64_t timeout_ms, const std::string& listen, int port,
                                 const std::string& transport, int streams, int64_t slice_bytes,
                                 int64_t window_bytes, const std::string& trace_file,
                                 const std::string& topology, const std::string& tuning_rules) {
  CommunicatorOptions options;
  options.trace_file = trace_file;
  options.timeout_ms = timeout_ms;
  options.listen_address = listen;
  options.listen_port = static_cast<uint16_t>(port);
  options.transport = transport_kind_or_throw(transport);
  options.tcp_streams = streams;
  if (slice_bytes > 0) options.slice_bytes = static_cast<size_t>(slice_bytes);
  if (window_bytes > 0) options.window_bytes = static_cast<size_t>(window_bytes);
  options.topology = topology;
  options.tuning_rules = tuning_rules;
  return options;
}

PyCommunicatorPtr create(int rank, int size, nb::object source, const std::string& name,
                         int64_t timeout_ms, const std::string& listen, int port,
                         const std::string& transport, int streams, int64_t slice_bytes,
                         int64_t window_bytes, const std::string& trace_file,
                         const std::string& topology, const std::string& tuning_rules,
                         bool tune_at_start, uint32_t flatten_every, uint64_t rounding_seed) {
  CommunicatorOptions options =
      make_options(timeout_ms, listen, port, transport, streams, slice_bytes, window_bytes,
                   trace_file, topology, tuning_rules);
  options.tune_at_start = tune_at_start;
  options.flatten_every = flatten_every;
  options.rounding_seed = rounding_seed;
  std::shared_ptr<Store> store = store_from_python(std::move(source), rank, timeout_ms);
  auto waiting = std::make_shared<InterruptibleStore>(store);
  Result<Communicator> made = [&] {
    nb::gil_scoped_release release;
    return Communicator::create(rank, size, waiting, options, name);
  }();
  waiting->throw_interrupt();
  return std::make_shared<PyCommunicator>(value_or_throw(std::move(made)), std::move(store));
}

// Starts a call by `start(communicator, options)` and keeps its arrays.
template <typename Start>
std::shared_ptr<PendingCall> start_call(PyCommunicator& self, const PyCallOptions& how, Input input,
                                        Output output, const Start& start) {
  auto call = std::make_shared<PendingCall>();
  call->codec = how.codec;
  call->site = how.site;
  call->input = std::move(input);
  call->output = std::move(output);
  CallOptions options;
  options.codec = call->codec;
  options.plan = how.plan;
  options.timeout_ms = how.timeout_ms;
  options.max_rel_error = how.max_rel_error;
  options.attended = how.attended;
  options.channels = how.channels;
  options.site = call->site;
  {
    nb::gil_scoped_release release;
    call->work = start(self.get(), options);
  }
  if (!how.attended) self.hold(call);
  return call;
}

std::shared_ptr<PyWork> start_all_reduce(PyCommunicatorPtr self, Input input, Output output,
                                         const std::string& dtype, const std::string& op,
                                         const PyCallOptions& how, const Input& residual,
                                         const Input& bias) {
  const DataType type = data_type_or_throw(dtype);
  const ReduceOp reduce = reduce_op_or_throw(op);
  auto call =
      start_call(*self, how, input, output, [&](Communicator& communicator, CallOptions options) {
        // Empty arrays stand for none.
        if (residual.size() > 0) options.residual = residual.data();
        if (bias.size() > 0) options.bias = bias.data();
        options.bias_count = bias.size();
        return communicator.start_all_reduce(input.data(), output.data(), input.size(), type,
                                             reduce, options);
      });
  call->added = {residual, bias};
  return make_work(std::move(self), std::move(call), how.attended);
}

// all_reduce for the common case: two C-contiguous, aligned arrays of one native type and shape
// that are the same memory or do not overlap. False: they are not such, and nothing was done. It
// has ended when this returns, so the caller's references keep the arrays alive, and neither a Work
// nor an array object is made: 2 us a call instead of 12.
bool all_reduce_plain(PyCommunicatorPtr self, nb::handle input, nb::handle output,
                      const std::string& op, const std::string& codec, const std::string& plan,
                      int64_t timeout_ms, double max_rel_error, const std::string& site) {
  const PlainArray from(input, false);
  const PlainArray to(output, true);
  const std::optional<DataType> type = from.type();
  if (!type || type != to.type() || !from.same_shape(to) || from.overlaps(to)) return false;
  CallOptions options;
  options.codec = codec;
  options.plan = plan_kind_or_throw(plan);
  options.timeout_ms = timeout_ms;
  options.max_rel_error = max_rel_error;
  options.attended = true;
  options.channels = from.channels();
  options.site = site;
  const ReduceOp reduce = reduce_op_or_throw(op);
  Work work;
  {
    nb::gil_scoped_release release;
    work =
        self->get().start_all_reduce(from.data(), to.data(), from.count(), *type, reduce, options);
  }
  Status end;
  wait_for_end(*self, work, -1, &end);
  throw_if_error(end);
  return true;
}

// Lists of arrays, contiguous and of one length pair by pair; nobody else may change the lists.
// With an empty `dtype` they are looked at here, and null is returned if that does not suffice.
std::shared_ptr<PyWork> start_all_reduce_coalesced(PyCommunicatorPtr self, const nb::list& inputs,
                                                   const nb::list& outputs,
                                                   const std::string& dtype, const std::string& op,
                                                   const PyCallOptions& how) {
  const ReduceOp reduce = reduce_op_or_throw(op);
  std::vector<TensorRef> tensors;
  std::optional<DataType> seen;
  if (dtype.empty()) {
    seen = plain_tensors(inputs, outputs, &tensors);
    if (!seen) return nullptr;
  } else {
    seen = data_type_or_throw(dtype);
    tensors = tensors_or_throw(inputs, outputs, *seen);
  }
  const DataType type = *seen;
  auto call = start_call(
      *self, how, Input(), Output(), [&](Communicator& communicator, const CallOptions& options) {
        return communicator.start_all_reduce_coalesced(tensors, type, reduce, options);
      });
  call->lists = nb::make_tuple(inputs, outputs);
  return make_work(std::move(self), std::move(call), how.attended);
}

std::shared_ptr<PyWork> start_reduce_scatter(PyCommunicatorPtr self, Input input, Output output,
                                             const std::string& dtype, const std::string& op,
                                             const PyCallOptions& how) {
  const DataType type = data_type_or_throw(dtype);
  const ReduceOp reduce = reduce_op_or_throw(op);
  auto call = start_call(*self, how, input, output,
                         [&](Communicator& communicator, const CallOptions& options) {
                           return communicator.start_reduce_scatter(
                               input.data(), output.data(), output.size(), type, reduce, options);
                         });
  return make_work(std::move(self), std::move(call), how.attended);
}

std::shared_ptr<PyWork> start_all_gather(PyCommunicatorPtr self, Input input, Output output,
                                         const std::string& dtype, const PyCallOptions& how) {
  const DataType type = data_type_or_throw(dtype);
  auto call = start_call(*self, how, input, output,
                         [&](Communicator& communicator, const CallOptions& options) {
                           return communicator.start_all_gather(input.data(), output.data(),
                                                                input.size(), type, options);
                         });
  return make_work(std::move(self), std::move(call), how.attended);
}

std::shared_ptr<PyWork> start_broadcast(PyCommunicatorPtr self, Output data,
                                        const std::string& dtype, int root,
                                        const PyCallOptions& how) {
  const DataType type = data_type_or_throw(dtype);
  auto call = start_call(
      *self, how, Input(), data, [&](Communicator& communicator, const CallOptions& options) {
        return communicator.start_broadcast(data.data(), data.size(), type, root, options);
      });
  return make_work(std::move(self), std::move(call), how.attended);
}

// What moves between single ranks, by name; `input` or `output` is not used where that name has no
// such thing. `peer` is the root, or the other end.
std::shared_ptr<PyWork> start_move(PyCommunicatorPtr self, const std::string& name, Input input,
                                   Output output, const std::string& dtype, int peer, int tag,
                                   const PyCallOptions& how) {
  const DataType type = data_type_or_throw(dtype);
  const void* const from = input.data();
  void* const to = output.data();
  auto call =
      start_call(*self, how, input, output, [&](Communicator& group, const CallOptions& options) {
        if (name == "send") return group.start_send(from, input.size(), type, peer, tag, options);
        if (name == "recv") return group.start_recv(to, output.size(), type, peer, tag, options);
        if (name == "gather") {
          return group.start_gather(from, to, input.size(), type, peer, options);
        }
        if (name == "scatter") {
          return group.start_scatter(from, to, output.size(), type, peer, options);
        }
        const size_t count = input.size() / static_cast<size_t>(group.size());
        return group.start_all_to_all(from, to, count, type, options);
      });
  return make_work(std::move(self), std::move(call), how.attended);
}

std::shared_ptr<PyWork> start_barrier(PyCommunicatorPtr self, const PyCallOptions& how) {
  auto call = start_call(*self, how, Input(), Output(),
                         [&](Communicator& communicator, const CallOptions& options) {
                           return communicator.start_barrier(options.timeout_ms, options.attended);
                         });
  return make_work(std::move(self), std::move(call), how.attended);
}

PyCommunicatorPtr split(PyCommunicator& self, int color, int key) {
  Result<Communicator> part = [&] {
    nb::gil_scoped_release release;
    return self.get().split(color, key);
  }();
  Communicator communicator = value_or_throw(std::move(part));
  if (communicator.impl() == nullptr) return nullptr;
  return std::make_shared<PyCommunicator>(std::move(communicator), self.store());
}

std::tuple<uint64_t, uint64_t, uint64_t, uint64_t, double> stats(PyCommunicator& self) {
  const CommunicatorStats stats = self.get().stats();
  return {stats.calls, stats.values, stats.wire_bytes_sent, stats.wire_bytes_received,
          stats.seconds};
}

using Doubles = nb::ndarray<const double, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

// One bound per pair of `absmax` and `sum_absmax`, written to `bounds`: the blocks of one array.
void error_bounds(PyCommunicator& self, const std::string& collective, const std::string& codec,
                  const std::string& plan, size_t count, const std::string& dtype, Doubles absmax,
                  Doubles sum_absmax,
                  nb::ndarray<double, nb::ndim<1>, nb::c_contig, nb::device::cpu> bounds) {
  if (absmax.size() != sum_absmax.size() || absmax.size() != bounds.size()) {
    throw_status(invalid_argument("absmax, sum_absmax and bounds must have equal lengths"));
  }
  const Collective summing = collective_or_throw(collective);
  const PlanKind kind = plan_kind_or_throw(plan);
  const DataType type = data_type_or_throw(dtype);
  for (size_t i = 0; i < absmax.size(); ++i) {
    bounds.data()[i] = value_or_throw(self.get().error_bound(
        codec, kind, count, type, absmax.data()[i], sum_absmax.data()[i], summing));
  }
}

void bind_work(nb::module_& module) {
  nb::class_<PyWork>(module, "Work", "A collective in flight.")
      .def("done", &PyWork::done, "True once the call has ended; never blocks.")
      .def("wait", &PyWork::wait, nb::arg("timeout_ms"),
           "Waits for the end. False when `timeout_ms` (>= 0) passed first; raises if it failed.");
}

void bind_options(nb::module_& module) {
  nb::class_<PyCallOptions>(module, "CallOptions", "How a call is made.")
      .def(
          "__init__",
          [](PyCallOptions* self, const std::string& codec, const std::string& plan,
             int64_t timeout_ms, double max_rel_error, bool attended, const std::string& site) {
            new (self) PyCallOptions{
                codec, plan_kind_or_throw(plan), timeout_ms, max_rel_error, attended, 0, site};
          },
          nb::arg("codec"), nb::arg("plan"), nb::arg("timeout_ms"), nb::arg("max_rel_error"),
          nb::arg("attended"), nb::arg("site") = "")
      .def_rw("attended", &PyCallOptions::attended)
      .def_rw("channels", &PyCallOptions::channels);
}

void bind_calls(nb::class_<PyCommunicator>& type) {
  type.def("all_reduce_plain", &all_reduce_plain, nb::arg("input"), nb::arg("output"),
           nb::arg("op"), nb::arg("codec"), nb::arg("plan"), nb::arg("timeout_ms"),
           nb::arg("max_rel_error") = 0.0, nb::arg("site") = "");
  type.def("start_all_reduce", &start_all_reduce, nb::arg("input").noconvert(),
           nb::arg("output").noconvert(), nb::arg("dtype"), nb::arg("op"), nb::arg("how"),
           nb::arg("residual").noconvert(), nb::arg("bias").noconvert())
      .def("start_all_reduce_coalesced", &start_all_reduce_coalesced, nb::arg("inputs"),
           nb::arg("outputs"), nb::arg("dtype"), nb::arg("op"), nb::arg("how"))
      .def("start_reduce_scatter", &start_reduce_scatter, nb::arg("input").noconvert(),
           nb::arg("output").noconvert(), nb::arg("dtype"), nb::arg("op"), nb::arg("how"))
      .def("start_all_gather", &start_all_gather, nb::arg("input").noconvert(),
           nb::arg("output").noconvert(), nb::arg("dtype"), nb::arg("how"))
      .def("start_broadcast", &start_broadcast, nb::arg("data").noconvert(), nb::arg("dtype"),
           nb::arg("root"), nb::arg("how"))
      .def("start_move", &start_move, nb::arg("name"), nb::arg("input").noconvert(),
           nb::arg("output").noconvert(), nb::arg("dtype"), nb::arg("peer"), nb::arg("tag"),
           nb::arg("how"))
      .def("start_barrier", &start_barrier, nb::arg("how"));
}

}  // namespace

void bind_communicator(nb::module_& module) {
  bind_work(module);
  bind_options(module);
  nb::class_<PyCommunicator> type(module, "Communicator",
                                  "A group of ranks; see tersum.Communicator.");
  type.def_static("create", &create, nb::arg("rank"), nb::arg("size"), nb::arg("store"),
                  nb::arg("name"), nb::arg("timeout_ms"), nb::arg("listen"), nb::arg("port"),
                  nb::arg("transport"), nb::arg("streams"), nb::arg("slice_bytes"),
                  nb::arg("window_bytes"), nb::arg("trace_file"), nb::arg("topology"),
                  nb::arg("tuning_rules"), nb::arg("tune_at_start"), nb::arg("flatten_every"),
                  nb::arg("rounding_seed"))
      .def_prop_ro("rank", [](PyCommunicator& self) { return self.get().rank(); })
      .def_prop_ro("size", [](PyCommunicator& self) { return self.get().size(); })
      .def_prop_ro("hosts", [](PyCommunicator& self) { return self.get().hosts(); })
      .def("split", &split, nb::arg("color"), nb::arg("key"))
      .def(
          "abort",
          [](PyCommunicator& self, const std::string& reason) {
            nb::gil_scoped_release release;
            self.get().abort(reason);
          },
          nb::arg("reason"))
      .def("close", &PyCommunicator::close)
      .def("stats", &stats)
      .def("error_bounds", &error_bounds, nb::arg("collective"), nb::arg("codec"), nb::arg("plan"),
           nb::arg("count"), nb::arg("dtype"), nb::arg("absmax"), nb::arg("sum_absmax"),
           nb::arg("bounds"));
  bind_calls(type);
  bind_learned_state(type);
}

}  // namespace tersum::python
