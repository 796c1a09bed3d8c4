// Is a slice of an element format one that an encoder writes?
//
// Thread safety: pure functions.
#pragma once

#include <cstddef>

#include "codec/kernels/element_format.h"
#include "tersum/status.h"

namespace tersum {

// kInvalidArgument names the first scale or code that none does: a scale that is negative, infinite
// or another NaN than the format's, a code that stands for no level, the most negative integer, a
// value that its scale takes beyond the largest number of the value type. `wire` has the slice's
// length.
Status check_elements(const ElementFormat& format, const std::byte* wire, size_t count);

}  // namespace tersum
