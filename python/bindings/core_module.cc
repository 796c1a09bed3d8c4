// tersum._core: the extension module behind the Python package. Thin: arguments in, status out;
// what Python callers see (types, conversions, messages about arrays) is made in python/tersum.

#include <nanobind/nanobind.h>

#include "bindings.h"
#include "plain_array.h"

namespace {

namespace nb = nanobind;

NB_MODULE(_core, module) {
  module.doc() = "Compiled core of tersum; use the names of the package `tersum` instead.";
  tersum::python::import_numpy();
  tersum::python::bind_arrays(module);
  tersum::python::bind_stores(module);
  tersum::python::bind_communicator(module);
  tersum::python::bind_info(module);
  tersum::python::bind_metrics(module);
  tersum::python::bind_plans(module);
  tersum::python::bind_xla(module);
}

}  // namespace
