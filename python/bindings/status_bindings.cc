// Status -> Python exceptions. The classes live in tersum/errors.py, so that they are typed and
// importable without the extension.

#include <nanobind/nanobind.h>

#include <string>

#include "bindings.h"

namespace tersum::python {

namespace nb = nanobind;

void throw_status(const Status& status) {
  nb::object error = nb::module_::import_("tersum.errors")
                         .attr("error_from_status")(static_cast<int>(status.code()),
                                                    nb::str(status.message().data(),
                                                            status.message().size()));
  PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(error.ptr())), error.ptr());
  throw nb::python_error();
}

}  // namespace tersum::python
