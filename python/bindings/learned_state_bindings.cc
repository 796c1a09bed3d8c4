// What a group measures and what its calls have learned, for Python.

#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <optional>
#include <span>
#include <string>
#include <tuple>
#include <vector>

#include "bindings.h"
#include "py_communicator.h"
#include "tersum/communicator.h"

namespace tersum::python {
namespace {

void tune(PyCommunicator& self, bool fresh) {
  const Status tuned = [&] {
    nb::gil_scoped_release release;
    return self.get().tune(fresh);
  }();
  if (!tuned.ok()) throw_status(tuned);
}

nb::bytes save_flatten(PyCommunicator& self) {
  const std::vector<std::byte> saved = value_or_throw([&] {
    nb::gil_scoped_release release;
    return self.get().save_flatten();
  }());
  return nb::bytes(saved.data(), saved.size());
}

void load_flatten(PyCommunicator& self, const nb::bytes& saved) {
  const std::span bytes(static_cast<const std::byte*>(saved.data()), saved.size());
  throw_if_error([&] {
    nb::gil_scoped_release release;
    return self.get().load_flatten(bytes);
  }());
}

nb::bytes save_feedback(PyCommunicator& self) {
  const std::vector<std::byte> saved = value_or_throw([&] {
    nb::gil_scoped_release release;
    return self.get().save_feedback();
  }());
  return nb::bytes(saved.data(), saved.size());
}

void load_feedback(PyCommunicator& self, const nb::bytes& saved) {
  const std::span bytes(static_cast<const std::byte*>(saved.data()), saved.size());
  throw_if_error([&] {
    nb::gil_scoped_release release;
    return self.get().load_feedback(bytes);
  }());
}

void reset_feedback(PyCommunicator& self) {
  throw_if_error([&] {
    nb::gil_scoped_release release;
    return self.get().reset_feedback();
  }());
}

void reset_flatten(PyCommunicator& self, const std::optional<std::string>& site) {
  throw_if_error([&] {
    nb::gil_scoped_release release;
    return site ? self.get().reset_flatten(*site) : self.get().reset_flatten();
  }());
}

using PathOptionParts = std::tuple<std::string, std::string, double>;
using PathParts =
    std::tuple<std::string, std::string, double, std::string, std::vector<PathOptionParts>>;

std::optional<std::tuple<double, double>> link_speed(PyCommunicator& self) {
  const std::optional<LinkSpeed> speed = self.get().link_speed();
  if (!speed) return std::nullopt;
  return std::tuple(speed->latency_seconds, speed->bytes_per_second);
}

PathParts choose(PyCommunicator& self, const std::string& collective, size_t count,
                 const std::string& dtype, const std::string& op, const PyCallOptions& how) {
  CallOptions options;
  options.codec = how.codec;
  options.plan = how.plan;
  options.max_rel_error = how.max_rel_error;
  options.site = how.site;
  options.channels = how.channels;
  const PathChoice choice =
      value_or_throw(self.get().choose(collective_or_throw(collective), count,
                                       data_type_or_throw(dtype), reduce_op_or_throw(op), options));
  std::vector<PathOptionParts> weighed;
  for (const PathOption& option : choice.options) {
    weighed.emplace_back(option.codec, std::string(plan_kind_name(option.plan)), option.seconds);
  }
  return {choice.codec, std::string(plan_kind_name(choice.plan)), choice.seconds, choice.reason,
          std::move(weighed)};
}

}  // namespace

void bind_learned_state(nb::class_<PyCommunicator>& type) {
  type.def("tune", &tune, nb::arg("fresh"))
      .def("save_flatten", &save_flatten)
      .def("load_flatten", &load_flatten, nb::arg("saved"))
      .def("save_feedback", &save_feedback)
      .def("load_feedback", &load_feedback, nb::arg("saved"))
      .def("reset_feedback", &reset_feedback)
      .def("reset_flatten", &reset_flatten, nb::arg("site").none())
      .def("link_speed", &link_speed)
      .def("choose", &choose, nb::arg("collective"), nb::arg("count"), nb::arg("dtype"),
           nb::arg("op"), nb::arg("how"));
}

}  // namespace tersum::python
