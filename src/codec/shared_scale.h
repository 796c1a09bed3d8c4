// What the formats of shared_sums.h have in common: scales that ranks agree on, and values under
// them.
//
// Thread safety: pure functions. Tiles are those of kernels/element_kernels.h.
#pragma once

#include <cstddef>
#include <cstdint>

#include "codec/codec.h"
#include "codec/hadamard_signs.h"
#include "codec/kernels/element_format.h"
#include "codec/kernels/numbers.h"

namespace tersum {

// One of a peer that is no number stands for NaN.
inline float shared_scale(uint16_t bits) {
  constexpr auto kMagnitudeEnd = static_cast<uint16_t>(kFloatInfinity >> 16);
  return bits < kMagnitudeEnd ? bf16_to_float(bits) : float_from_bits(kFloatNan);
}

// Values first.. of a slice with what is added to them, then zeros up to whole blocks and
// kTilePad.
void load_shared_values(const ElementFormat& format, const void* values, size_t first, size_t count,
                        const SlicePlace& place, float* tile);

// What +hadamard does to blocks before they are coded.
struct BlockTurn {
  const HadamardSigns* signs = nullptr;  // of each whole block; null: nothing is done
  // A shorter last block is multiplied by it: a transformed one is smaller by the root of its
  // length, and where both are under one scale that root must not cost it its levels.
  float rest = 1;
};

// Values of a tile become what is coded of them.
void turn_blocks(const ElementFormat& format, const BlockTurn& turn, size_t count, float* tile);

// What is not finite has made its block's scale NaN, and nothing is beyond the last level, unless a
// peer's bytes say otherwise: then the former is 0 and the latter limited, the same on every
// instruction set.
void limit_to_scales(const ElementFormat& format, const BlockScale* scales, size_t blocks,
                     float* tile);

// SharedSums::measure() of such a format; `one_scale`: of all blocks.
void measure_scales(const ElementFormat& format, const void* values, size_t count,
                    const SlicePlace& place, bool one_scale, uint16_t* scales,
                    const BlockTurn& turn = {});

}  // namespace tersum
