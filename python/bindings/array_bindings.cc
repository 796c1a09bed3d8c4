// DLPack -> NumPy views, for every element type that tersum knows: NumPy itself cannot name
// bfloat16.

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>

#include <string>
#include <utility>
#include <vector>

#include "bindings.h"

namespace tersum::python {

namespace nb = nanobind;

namespace {

// NumPy's name of a DLPack element type, or one that says what it is ("bool", "complex64", …).
std::string dtype_name(nb::dlpack::dtype type) {
  using Code = nb::dlpack::dtype_code;
  const std::string bits = std::to_string(type.bits);
  switch (static_cast<Code>(type.code)) {
    case Code::Float:
      return "float" + bits;
    case Code::Bfloat:
      return "bfloat" + bits;
    case Code::Int:
      return "int" + bits;
    case Code::UInt:
      return "uint" + bits;
    case Code::Bool:
      return "bool";
    case Code::Complex:
      return "complex" + bits;
    default:
      return "dlpack type " + std::to_string(type.code) + " of " + bits + " bits";
  }
}

// The array as a NumPy view of the same memory (kept alive by the view) and its element type's
// name. bfloat16 is viewed as uint16. Types NumPy has no word for give an empty view, with the
// name.
template <typename Array>
std::pair<nb::object, std::string> view_of(const Array& array) {
  const std::string name = dtype_name(array.dtype());
  nb::dlpack::dtype seen = array.dtype();
  if (name == "bfloat16") seen = nb::dtype<uint16_t>();
  if (seen.lanes != 1 || name.starts_with("dlpack")) return {nb::none(), name};

  std::vector<size_t> shape(array.ndim());
  std::vector<int64_t> strides(array.ndim());
  for (size_t i = 0; i < array.ndim(); ++i) {
    shape[i] = array.shape(i);
    strides[i] = array.stride(i);
  }
  constexpr bool kReadOnly = Array::ReadOnly;
  using View =
      std::conditional_t<kReadOnly, nb::ndarray<nb::numpy, nb::ro>, nb::ndarray<nb::numpy>>;
  nb::object owner = nb::cast(array, nb::rv_policy::reference);
  View view(array.data(), array.ndim(), shape.data(), owner, strides.data(), seen,
            nb::device::cpu::value, 0);
  return {nb::cast(view, nb::rv_policy::reference), name};
}

// DLPack's kinds of memory that a CPU reads and writes like any other: its own, and what CUDA or
// ROCm have page-locked for copies to a GPU.
bool is_host_memory(int device_type) {
  constexpr int kCudaHost = 3;
  constexpr int kRocmHost = 11;
  return device_type == nb::device::cpu::value || device_type == kCudaHost ||
         device_type == kRocmHost;
}

template <typename Array>
std::pair<nb::object, std::string> view_capsule(const nb::object& capsule) {
  const Array array = nb::cast<Array>(capsule);
  if (!is_host_memory(array.device_type())) throw nb::type_error("is not in CPU memory");
  return view_of(array);
}

}  // namespace

void bind_arrays(nb::module_& module) {
  module.def("is_host_memory", is_host_memory, nb::arg("device_type"),
             "Whether a CPU reads and writes memory of that DLPack device type: its own, and what "
             "CUDA or ROCm have page-locked, as torch's pinned tensors.");
  module.def(
      "view_dlpack",
      [](nb::object capsule, bool writable) {
        return writable ? view_capsule<nb::ndarray<>>(capsule)
                        : view_capsule<nb::ndarray<nb::ro>>(capsule);
      },
      nb::arg("capsule"), nb::arg("writable"),
      "A NumPy view of a DLPack capsule in CPU memory, page-locked or not, and the name of its "
      "element type; bfloat16 is viewed as uint16. TypeError when `writable` and the memory is "
      "not.");
}

}  // namespace tersum::python
