// Stands in for xla_bindings.cc in a build without XLA's FFI headers (no jaxlib at build time).

#include <nanobind/nanobind.h>

#include "bindings.h"

namespace tersum::python {

void bind_xla(nanobind::module_& module) { module.attr("has_xla") = false; }

}  // namespace tersum::python
