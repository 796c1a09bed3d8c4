#include "plain_array.h"

#define NPY_NO_DEPRECATED_API NPY_2_0_API_VERSION
#define NPY_TARGET_VERSION NPY_2_0_API_VERSION
#include <numpy/arrayobject.h>

#include <algorithm>

#include "tersum/data_type.h"

namespace tersum::python {
namespace {

static_assert(sizeof(npy_intp) == sizeof(intptr_t));
static_assert(sizeof(npy_int) == 4 && sizeof(npy_long) == 8 && sizeof(npy_longlong) == 8);

std::optional<DataType> type_of(int number) {
  switch (number) {
    case NPY_FLOAT:
      return DataType::kFloat32;
    case NPY_HALF:
      return DataType::kFloat16;
    case NPY_DOUBLE:
      return DataType::kFloat64;
    case NPY_INT:
      return DataType::kInt32;
    case NPY_LONG:
    case NPY_LONGLONG:
      return DataType::kInt64;
    case NPY_UBYTE:
      return DataType::kUint8;
    default:
      return std::nullopt;
  }
}

}  // namespace

void import_numpy() {
  if (_import_array() < 0) throw nanobind::python_error();
}

PlainArray::PlainArray(nanobind::handle object, bool writable) {
  if (!PyArray_CheckExact(object.ptr())) return;
  auto* const array = reinterpret_cast<PyArrayObject*>(object.ptr());
  const int needed =
      NPY_ARRAY_C_CONTIGUOUS | NPY_ARRAY_ALIGNED | (writable ? NPY_ARRAY_WRITEABLE : 0);
  if (!PyArray_CHKFLAGS(array, needed) || !PyArray_ISNOTSWAPPED(array)) return;
  type_ = type_of(PyArray_TYPE(array));
  if (!type_) return;
  data_ = PyArray_DATA(array);
  shape_ = {PyArray_DIMS(array), static_cast<size_t>(PyArray_NDIM(array))};
  count_ = 1;
  for (const intptr_t length : shape_) count_ *= static_cast<size_t>(length);
}

bool PlainArray::same_shape(const PlainArray& other) const {
  return std::ranges::equal(shape_, other.shape_);
}

bool PlainArray::overlaps(const PlainArray& other) const {
  const auto* const begin = static_cast<const std::byte*>(data_);
  const auto* const others = static_cast<const std::byte*>(other.data_);
  const auto bytes = [](const PlainArray& array) {
    return array.type_ ? array.count_ * element_bytes(*array.type_) : 0;
  };
  return begin != others && begin < others + bytes(other) && others < begin + bytes(*this);
}

}  // namespace tersum::python
