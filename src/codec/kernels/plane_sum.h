// Exact sums of integer codes that lie in bit planes, taken plane by plane: 32 codes to a word, a
// carry from each plane to the next, and no code is ever unpacked.
//
// Codes are two's complement in the groups of Packing::kPlanes (element_format.h). The sum of codes
// of b and c bits has max(b, c) + 1, so that nothing is lost; what fills up a last group is 0 in
// it, too, if it was.
//
// Thread safety: pure functions. Every pointer may be unaligned. No allocation.
#pragma once

#include <cstddef>
#include <cstdint>

namespace tersum {

// Of `count` codes.
size_t plane_bytes(size_t bits, size_t count);

// sum[i] = a[i] + b[i] for `count` codes; `sum` overlaps neither. a_bits, b_bits: 1 to 31.
void add_planes(const std::byte* a, size_t a_bits, const std::byte* b, size_t b_bits, size_t count,
                std::byte* sum);

// The same code by code, in obvious scalar code.
void add_planes_reference(const std::byte* a, size_t a_bits, const std::byte* b, size_t b_bits,
                          size_t count, std::byte* sum);

}  // namespace tersum
