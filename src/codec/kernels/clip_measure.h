// ClipMeasure: what a coding gains and loses by one scale for all of a slice instead of one for
// each block, measured on some of its tiles.
//
// Thread safety: plain values; pure functions. Sums are float64 in a fixed order, so that they
// depend on the values and the clip alone.
#pragma once

#include <cstddef>
#include <cstdint>

#include "codec/kernels/element_kernels.h"

namespace tersum {

// Of every so many tiles the first is measured: a bound on what measuring costs.
inline constexpr size_t kTilesPerMeasured = 4;

struct ClipMeasure {
  // Integers in blocks, what the clip is compared with; null: nothing is measured.
  const ElementFormat* blocks_format = nullptr;
  float scale = 0;  // of the slice: the clip's part of a level; 0: there is none yet

  // What came out. Of all tiles:
  uint32_t absmax_bits = 0;
  bool is_finite = true;
  // Of those measured, in squared steps of the clip, as ClipPart says.
  double pull = 0;
  double clipped = 0;
  double blocks = 0;
};

// Adds what `values` say, a tile of `padded` values in whole blocks, zeros behind the last.
void measure_clip(const ElementKernels& kernels, const float* values, size_t padded,
                  ClipMeasure& clip);

// The same for nothing but the maxima of a tile's blocks.
void measure_maxima(const uint32_t* maxima, size_t blocks, uint32_t overflow_bits,
                    ClipMeasure& clip);

}  // namespace tersum
