#include "codec/kernels/clip_measure.h"

#include <algorithm>
#include <array>

namespace tersum {
namespace {

// What one tile is coded in.
struct MeasureMemory {
  alignas(64) float values[kTileMemory];
  alignas(64) float decoded[kTileMemory];
  alignas(64) uint8_t codes[kTileMemory];
  BlockScale scales[kTileBlocksMax];
  uint32_t maxima[kTileBlocksMax];
  double errors[kTileBlocksMax];
  std::byte wire[2 * kTileBlocksMax];
};

// To memory.decoded, what `coded` becomes under memory.scales; the squared error of `values`.
double coded_error(const ElementFormat& format, const ElementKernels& kernels, const float* coded,
                   const float* values, size_t padded, MeasureMemory& memory) {
  const size_t blocks = padded / format.block;
  kernels.quantize(format, coded, padded, memory.scales, memory.codes);
  kernels.dequantize(format, memory.codes, padded, memory.scales, memory.decoded);
  kernels.squared_errors(values, memory.decoded, format.block, blocks, memory.errors);
  double sum = 0;
  for (size_t b = 0; b < blocks; ++b) sum += memory.errors[b];
  return sum;
}

// Several sums side by side, which the compiler takes at once.
double sum_of_pulls(const float* values, const float* decoded, size_t count) {
  constexpr size_t kLanes = 8;
  std::array<double, kLanes> sums{};
  for (size_t i = 0; i + kLanes <= count; i += kLanes) {
    for (size_t lane = 0; lane < kLanes; ++lane) {
      const double level = decoded[i + lane];
      sums[lane] += (values[i + lane] - level) * level;
    }
  }
  double sum = 0;
  for (const double lane : sums) sum += lane;
  return sum;
}

}  // namespace

void measure_maxima(const uint32_t* maxima, size_t blocks, uint32_t overflow_bits,
                    ClipMeasure& clip) {
  for (size_t b = 0; b < blocks; ++b) clip.absmax_bits = std::max(clip.absmax_bits, maxima[b]);
  clip.is_finite = clip.is_finite && clip.absmax_bits < overflow_bits;
}

void measure_clip(const ElementKernels& kernels, const float* values, size_t padded,
                  ClipMeasure& clip) {
  if (clip.blocks_format == nullptr || !(clip.scale > 0) || !clip.is_finite) return;
  const ElementFormat& format = *clip.blocks_format;
  const size_t blocks = padded / format.block;
  const double step = double{clip.scale} * double{clip.scale};
  MeasureMemory memory;
  kernels.maxima(values, format.block, blocks, memory.maxima);
  kernels.choose_scales(format, memory.maxima, blocks, 0, memory.wire, memory.scales);
  clip.blocks += coded_error(format, kernels, values, values, padded, memory) / step;
  std::fill_n(memory.scales, blocks, make_block_scale(clip.scale));
  std::copy_n(values, padded, memory.values);
  kernels.limit(format.level_max * clip.scale, padded, memory.values);
  clip.clipped += coded_error(format, kernels, memory.values, values, padded, memory) / step;
  clip.pull += sum_of_pulls(values, memory.decoded, padded) / step;
}

}  // namespace tersum
