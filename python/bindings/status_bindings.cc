// Status -> Python exceptions, and names -> enumerators. The classes live in tersum/errors.py, so
// that they are typed and importable without the extension.

#include <nanobind/nanobind.h>

#include <optional>
#include <string>
#include <string_view>

#include "bindings.h"

namespace tersum::python {

namespace nb = nanobind;

void throw_status(const Status& status) {
  // A text may quote a peer, a file or the environment: bytes that are no UTF-8 are replaced.
  const std::string_view message = status.message();
  const nb::object text = nb::steal(
      PyUnicode_DecodeUTF8(message.data(), static_cast<Py_ssize_t>(message.size()), "replace"));
  nb::object error = nb::module_::import_("tersum.errors")
                         .attr("error_from_status")(static_cast<int>(status.code()), text);
  PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(error.ptr())), error.ptr());
  throw nb::python_error();
}

namespace {

template <typename T>
T parsed_or_throw(std::optional<T> parsed, const char* what, const std::string& text,
                  const char* allowed) {
  if (parsed.has_value()) return *parsed;
  throw_status(invalid_argument(std::string("unknown ") + what + " \"" + text + "\": use one of " +
                                allowed));
}

}  // namespace

DataType data_type_or_throw(const std::string& text) {
  return parsed_or_throw(parse_data_type(text), "dtype", text,
                         "float32, bfloat16, float16, float64, int32, int64, uint8");
}

ReduceOp reduce_op_or_throw(const std::string& text) {
  return parsed_or_throw(parse_reduce_op(text), "op", text, "sum, avg, max, min");
}

PlanKind plan_kind_or_throw(const std::string& text) {
  return parsed_or_throw(parse_plan_kind(text), "plan", text,
                         "auto, two_step, ring, one_shot, bidirectional_ring, halving_doubling, "
                         "torus, tree, hierarchical");
}

Collective collective_or_throw(const std::string& text) {
  return parsed_or_throw(parse_collective(text), "collective", text,
                         "all_reduce, reduce_scatter, all_gather, broadcast, barrier, all_to_all, "
                         "gather, scatter");
}

TransportKind transport_kind_or_throw(const std::string& text) {
  return parsed_or_throw(parse_transport_kind(text), "transport", text, "auto, tcp, shm");
}

}  // namespace tersum::python
