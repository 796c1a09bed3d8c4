#include "codec/shared_scale.h"

#include <algorithm>
#include <cmath>

#include "codec/kernels/added_terms.h"
#include "codec/kernels/element_kernels.h"

namespace tersum {
namespace {

// Whole blocks of plain floats are measured where they lie: a copy would cost as much as the
// measuring. Others come by way of `memory`.
const float* values_to_measure(const ElementFormat& format, const void* values, size_t first,
                               size_t count, const SlicePlace& place, float* memory) {
  const bool is_aligned = reinterpret_cast<uintptr_t>(values) % alignof(float) == 0;
  const bool is_whole = count % format.block == 0 && !place.added.is_any();
  if (format.kind == ValueKind::kFloat32 && is_aligned && is_whole) {
    return static_cast<const float*>(values) + first;
  }
  load_shared_values(format, values, first, count, place, memory);
  return memory;
}

// The largest magnitudes of what is coded of the blocks of `tile`, which ends with zeros up to a
// whole one; of one up to `least` any bits up to that. Of a block with something not finite, or no
// number of the type, any bits from overflow_bits on.
void find_maxima(const ElementFormat& format, const BlockTurn& turn, const float* tile,
                 size_t count, uint32_t least, uint32_t* maxima) {
  const ElementKernels& kernels = element_kernels();
  const size_t blocks = round_up(count, format.block) / format.block;
  const size_t turned = turn.signs == nullptr ? 0 : count / format.block;
  // What is not finite stays so when it is turned; a number beyond a shorter type's may get lost.
  const bool shows_all = format.overflow_bits == kFloatInfinity;
  const size_t begin = shows_all ? turned : 0;
  if (begin < blocks) {
    kernels.maxima(tile + begin * format.block, format.block, blocks - begin, maxima + begin);
  }
  if (turned > 0) {
    uint32_t found[kTileBlocksMax];
    kernels.rotated_maxima(turn.signs->forward.data(), tile, format.block, turned, least, found);
    for (size_t b = 0; b < turned; ++b) {
      if (shows_all || maxima[b] < format.overflow_bits) maxima[b] = found[b];
    }
  }
  if (turn.rest != 1 && turned < blocks && maxima[turned] < format.overflow_bits) {
    maxima[turned] = float_bits(float_from_bits(maxima[turned]) * turn.rest);
  }
}

// Bits of a magnitude for which, as for all below it, no scale above `shared` would be chosen: that
// of the last level, which is exact (8 bits times 7), so that divided it is no more than the scale.
uint32_t magnitude_within(const ElementFormat& format, uint16_t shared) {
  return std::min(float_bits(shared_scale(shared) * format.level_max), kFloatInfinity);
}

}  // namespace

void load_shared_values(const ElementFormat& format, const void* values, size_t first, size_t count,
                        const SlicePlace& place, float* tile) {
  load_with_terms(element_kernels(), format.kind, values, place.added, place.first, first, count,
                  tile);
  std::fill(tile + count, tile + round_up(round_up(count, format.block), kTilePad), 0.0F);
}

void turn_blocks(const ElementFormat& format, const BlockTurn& turn, size_t count, float* tile) {
  if (turn.signs == nullptr) return;
  const size_t whole = count / format.block * format.block;
  element_kernels().rotate({turn.signs->forward.data()}, tile, format.block, whole, tile);
  if (turn.rest == 1) return;
  for (size_t i = whole; i < count; ++i) tile[i] *= turn.rest;
}

void limit_to_scales(const ElementFormat& format, const BlockScale* scales, size_t blocks,
                     float* tile) {
  uint32_t maxima[kTileBlocksMax];
  element_kernels().maxima(tile, format.block, blocks, maxima);
  for (size_t b = 0; b < blocks; ++b) {
    const float limit = format.level_max * scales[b].scale;
    // As it is but where peers' bytes lie. (Of a limit that is NaN it is not known.)
    if (maxima[b] < kFloatInfinity && float_from_bits(maxima[b]) <= limit) continue;
    float* const block = tile + b * format.block;
    std::transform(block, block + format.block, block, [=](float x) {
      if (!std::isfinite(x)) return 0.0F;
      const float above = x < -limit ? -limit : x;
      return above > limit ? limit : above;
    });
  }
}

void measure_scales(const ElementFormat& format, const void* values, size_t count,
                    const SlicePlace& place, bool one_scale, uint16_t* scales,
                    const BlockTurn& turn) {
  alignas(64) float memory[kTileMemory];
  uint32_t maxima[kTileBlocksMax];
  uint16_t chosen[kTileBlocksMax];
  BlockScale unused[kTileBlocksMax];
  for (size_t first = 0; first < count; first += kTileValues) {
    const size_t here = std::min(kTileValues, count - first);
    const size_t blocks = round_up(here, format.block) / format.block;
    const float* const tile = values_to_measure(format, values, first, here, place, memory);
    const uint32_t least = one_scale ? magnitude_within(format, scales[0]) : 0;
    find_maxima(format, turn, tile, here, least, maxima);
    auto* const wire = reinterpret_cast<std::byte*>(chosen);
    element_kernels().choose_scales(format, maxima, blocks, 0, wire, unused);
    for (size_t b = 0; b < blocks; ++b) {
      uint16_t& shared = scales[one_scale ? 0 : first / format.block + b];
      shared = std::max(shared, load_unaligned<uint16_t>(wire + 2 * b));
    }
  }
}

}  // namespace tersum
