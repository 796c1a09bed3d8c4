// PlainArray: the memory of a Python object that has the buffer protocol, if collectives can use it
// as it lies: C-contiguous, aligned, of a native type.
//
// Thread safety: made and destroyed with the GIL; the memory stays valid without it. Invariant:
// data() is null unless type() has a value, or the array is empty.
#pragma once

#include <nanobind/nanobind.h>

#include <cstddef>
#include <optional>

#include "tersum/data_type.h"

namespace tersum::python {

class PlainArray {
 public:
  // Never raises: an object that does not fit has no type.
  PlainArray(nanobind::handle object, bool writable);
  ~PlainArray() {
    if (held_) PyBuffer_Release(&view_);
  }
  PlainArray(const PlainArray&) = delete;
  PlainArray& operator=(const PlainArray&) = delete;

  [[nodiscard]] std::optional<DataType> type() const { return type_; }
  [[nodiscard]] void* data() const { return view_.buf; }
  [[nodiscard]] size_t count() const;
  [[nodiscard]] bool same_shape(const PlainArray& other) const;
  // Shares memory with `other` without being the very same memory.
  [[nodiscard]] bool overlaps(const PlainArray& other) const;

 private:
  Py_buffer view_{};
  bool held_ = false;
  std::optional<DataType> type_;
};

}  // namespace tersum::python
