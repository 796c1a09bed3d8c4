#include "plain_array.h"

#include <algorithm>
#include <cstdint>
#include <string_view>

namespace tersum::python {
namespace {

// The struct module's letters, in native order; "l" and "q" are both 64 bits where tersum runs.
std::optional<DataType> type_of(std::string_view format) {
  if (format == "f") return DataType::kFloat32;
  if (format == "e") return DataType::kFloat16;
  if (format == "d") return DataType::kFloat64;
  if (format == "i") return DataType::kInt32;
  if (format == "l" || format == "q") return DataType::kInt64;
  if (format == "B") return DataType::kUint8;
  return std::nullopt;
}

}  // namespace

PlainArray::PlainArray(nanobind::handle object, bool writable) {
  const int flags = PyBUF_C_CONTIGUOUS | PyBUF_FORMAT | (writable ? PyBUF_WRITABLE : 0);
  if (PyObject_GetBuffer(object.ptr(), &view_, flags) != 0) {
    PyErr_Clear();
    return;
  }
  held_ = true;
  if (view_.format == nullptr || view_.itemsize <= 0) return;
  const auto address = reinterpret_cast<uintptr_t>(view_.buf);
  if (address % static_cast<uintptr_t>(view_.itemsize) != 0) return;
  type_ = type_of(view_.format);
  if (type_ && element_bytes(*type_) != static_cast<size_t>(view_.itemsize)) type_.reset();
}

size_t PlainArray::count() const { return static_cast<size_t>(view_.len / view_.itemsize); }

bool PlainArray::same_shape(const PlainArray& other) const {
  return view_.ndim == other.view_.ndim &&
         std::equal(view_.shape, view_.shape + view_.ndim, other.view_.shape);
}

bool PlainArray::overlaps(const PlainArray& other) const {
  const auto* const begin = static_cast<const std::byte*>(view_.buf);
  const auto* const others = static_cast<const std::byte*>(other.view_.buf);
  return begin != others && begin < others + other.view_.len && others < begin + view_.len;
}

}  // namespace tersum::python
