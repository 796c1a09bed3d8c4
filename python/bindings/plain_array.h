// PlainArray: the memory of a NumPy array, if collectives can use it as it lies: C-contiguous,
// aligned, of a native type.
//
// Reads the array object itself, which takes a few nanoseconds; the buffer protocol describes it
// anew at every look, in a tenth of a microsecond.
//
// Thread safety: made and compared with the GIL; the memory stays valid without it as long as
// somebody holds the array. Invariant: all is empty unless type() has a value.
#pragma once

#include <nanobind/nanobind.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "tersum/data_type.h"

namespace tersum::python {

// Once, before any PlainArray is made. Raises if this is no NumPy that the module can read.
void import_numpy();

class PlainArray {
 public:
  // Never raises: an object that does not fit, or is no numpy.ndarray itself, has no type.
  PlainArray(nanobind::handle object, bool writable);

  [[nodiscard]] std::optional<DataType> type() const { return type_; }
  [[nodiscard]] void* data() const { return data_; }
  [[nodiscard]] size_t count() const { return count_; }
  // Elements of the last of two or more dimensions; 0 with fewer: CallOptions::channels.
  [[nodiscard]] size_t channels() const {
    return shape_.size() > 1 ? static_cast<size_t>(shape_.back()) : 0;
  }
  [[nodiscard]] bool same_shape(const PlainArray& other) const;
  // Shares memory with `other` without being the very same memory.
  [[nodiscard]] bool overlaps(const PlainArray& other) const;

 private:
  std::optional<DataType> type_;
  void* data_ = nullptr;
  size_t count_ = 0;
  std::span<const intptr_t> shape_;  // the array's own
};

}  // namespace tersum::python
