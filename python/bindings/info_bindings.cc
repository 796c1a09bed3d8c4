// What this build and this CPU can do.

#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/vector.h>

#include "bindings.h"
#include "tersum/isa.h"
#include "tersum/version.h"

namespace tersum::python {

namespace nb = nanobind;

void bind_info(nb::module_& module) {
  module.attr("version") = TERSUM_VERSION;
  module.attr("wire_version") = static_cast<int>(kWireVersion);
  module.def("active_isa", &active_isa, "The instruction set in use, e.g. \"avx3\".");
  module.def("available_isas", &available_isas, "All that this CPU can run, best first.");
}

}  // namespace tersum::python
