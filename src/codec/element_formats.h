// The descriptions of the element formats. `kind`, `block` and what follows from them are set by
// make_element_codec.
//
// Thread safety: pure functions.
#pragma once

#include <span>

#include "codec/kernels/element_format.h"

namespace tersum {

// Symmetric integers of kBits: codes -(2^(kBits-1) - 1) to 2^(kBits-1) - 1, bf16 scale rounded up.
template <int kBits>
ElementFormat integer_format();
extern template ElementFormat integer_format<8>();
extern template ElementFormat integer_format<7>();
extern template ElementFormat integer_format<6>();
extern template ElementFormat integer_format<5>();
extern template ElementFormat integer_format<4>();
extern template ElementFormat integer_format<3>();
extern template ElementFormat integer_format<2>();

// int1: the sign times the block's mean magnitude.
ElementFormat sign_format();
// Five levels, -2 to 2; three codes in seven bits.
ElementFormat five_format();

// -1 and 1, of which a scale is made that no value is beyond.
ElementFormat unit_format();

// Four levels, -3, -1, 1 and 3 halves.
ElementFormat halves_format();

// OCP OFP8 elements under a bf16 scale.
ElementFormat fp8e4m3_format();
ElementFormat fp8e5m2_format();

// OCP MX v1.0: blocks of 32 under a power of two, rounded up.
ElementFormat mxfp8e4m3_format();
ElementFormat mxfp8e5m2_format();
ElementFormat mxfp6e2m3_format();
ElementFormat mxfp6e3m2_format();
ElementFormat mxfp4_format();
ElementFormat mxint8_format();

// e2m1 elements in blocks of 16 under an e4m3 scale, under a float32 of the slice.
ElementFormat nvfp4_format();

// NormalFloat: 16 levels, the quantiles of a normal distribution.
ElementFormat nf4_format();
// `levels`: as level_tables.h has them, parts of a block's largest magnitude.
ElementFormat table_format(std::span<const float> levels);

}  // namespace tersum
