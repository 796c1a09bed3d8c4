// Element kernels in obvious scalar code: what the vector kernels must agree with bit for bit, and
// what serves the rare cases inside them (blocks whose scale is NaN, 0 or tiny).
//
// Thread safety: pure functions.
#pragma once

#include "codec/kernels/element_kernels.h"

namespace tersum {

const ElementKernels& element_reference();

// The code of one value of a block, and the value of one code.
uint8_t quantize_element(const ElementFormat& format, float value, const BlockScale& scale);
// By the bits of rounding_half().
uint8_t round_element(const ElementFormat& format, float value, const BlockScale& scale,
                      uint32_t half);
float dequantize_element(const ElementFormat& format, uint8_t code, float scale);

}  // namespace tersum
