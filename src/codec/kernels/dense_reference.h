// Dense formats in obvious scalar code: what the vector kernels must agree with bit for bit, and
// what serves the last few elements of a slice and the operations that vectors have no instruction
// for.
//
// Thread safety: pure functions. Every pointer may be unaligned.
#pragma once

#include <cstddef>
#include <cstdint>

#include "codec/kernels/combine_args.h"
#include "codec/kernels/dense_format.h"

namespace tersum {

void reference_encode(const DenseFormat& format, const void* values, size_t count, std::byte* wire);
void reference_decode(const DenseFormat& format, const std::byte* wire, size_t count, void* values);
// Elements begin..args.count-1 of a combine.
void reference_combine_from(const DenseFormat& format, const CombineArgs& args, size_t begin);
void reference_combine(const DenseFormat& format, const CombineArgs& args);

}  // namespace tersum
