// The signs of the modifier +hadamard, with the division that belongs to them (docs/codecs.md).
//
// Thread safety: any thread. One table for each block size there is, kept for ever.
#pragma once

#include <array>
#include <cstdint>

#include "codec/kernels/block_format.h"

namespace tersum {

// H H = B, so one of the two ways divides by B: the way there, whose sums then cannot overflow.
// Dividing by a power of two is exact.
struct alignas(64) HadamardSigns {
  explicit HadamardSigns(uint32_t block);

  std::array<float, kBlockMax> forward{};
  std::array<float, kBlockMax> undo{};  // 1 and -1
};

// `block`: a power of two from 16 to kBlockMax.
const HadamardSigns& hadamard_signs(uint32_t block);

}  // namespace tersum
