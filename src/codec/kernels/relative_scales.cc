#include "codec/kernels/relative_scales.h"

#include <algorithm>

#include "base/check.h"

namespace tersum {
namespace {

constexpr uint32_t kPatternInfinity = kFloatInfinity >> 16;
// In steps of a group whose byte is 1.
constexpr uint32_t kStepsInOctave = kPatternsInOctave / kPatternsInStep;

// `exponent` >= 1, 0 < pattern <= 128 * exponent.
uint32_t step_of(const ScaleGrid& grid, uint32_t exponent, uint32_t pattern) {
  const uint32_t below = exponent * kPatternsInOctave - pattern;
  uint32_t step = (below + grid.down) / kPatternsInStep;
  // At the ends of the grid, and never down to 0.
  step = std::min({step, uint32_t{kStepMost}, exponent * kStepsInOctave - 1});
  const bool beyond = exponent * kPatternsInOctave - step * kPatternsInStep > grid.most;
  return step + (beyond ? 1 : 0);
}

uint32_t pattern_of(std::byte exponent, std::byte step) {
  const uint32_t top = static_cast<uint32_t>(exponent) * kPatternsInOctave;
  const uint32_t below = static_cast<uint32_t>(step) * kPatternsInStep;
  const bool is_number = below < top && top - below < kPatternInfinity;
  return is_number ? top - below : kBf16Nan;
}

}  // namespace

ScaleGrid scale_grid(const ElementFormat& format) {
  TERSUM_CHECK(format.rule == ScaleRule::kBf16Up);
  // Half a step takes at most 1/32 from a scale, and so from the largest level.
  const bool to_nearest = format.gap_max * 16 >= format.level_max;
  ScaleGrid grid;
  grid.down = to_nearest ? kPatternsInStep / 2 : 0;
  grid.up = kPatternsInStep - 1 - grid.down;
  grid.most = float_bits(format.scale_max) >> 16;
  return grid;
}

PatternRange rounded_range(const ScaleGrid& grid, uint32_t pattern) {
  PatternRange range{pattern - std::min(pattern, grid.down), pattern + grid.up};
  // One step down where the nearest is too large; one step where there is none below.
  if (range.most > grid.most) range.least = pattern - std::min(pattern, kPatternsInStep);
  range.most = std::max(std::min(range.most, grid.most), kPatternsInStep);
  return range;
}

void write_steps(const ScaleGrid& grid, const std::byte* bf16, size_t blocks, std::byte* exponent,
                 std::byte* steps, BlockScale* scales) {
  uint32_t top = 0;
  for (size_t b = 0; b < blocks; ++b) {
    const uint32_t pattern = load_unaligned<uint16_t>(bf16 + kScaleBytes * b);
    if (pattern != kBf16Nan) top = std::max(top, pattern);
  }
  const uint32_t shared = (top + kPatternsInOctave - 1) / kPatternsInOctave;
  *exponent = static_cast<std::byte>(shared);
  for (size_t b = 0; b < blocks; ++b) {
    const uint32_t pattern = load_unaligned<uint16_t>(bf16 + kScaleBytes * b);
    uint32_t step = pattern == kBf16Nan ? kStepNan : kStepZero;
    if (pattern != kBf16Nan && pattern != 0) step = step_of(grid, shared, pattern);
    steps[b] = static_cast<std::byte>(step);
    scales[b] = make_block_scale(scale_of_pattern(read_step(*exponent, steps[b])));
  }
}

uint16_t read_step(std::byte exponent, std::byte step) {
  if (step == std::byte{kStepZero}) return 0;
  if (step == std::byte{kStepNan}) return kBf16Nan;
  return static_cast<uint16_t>(pattern_of(exponent, step));
}

bool is_written_step(std::byte exponent, std::byte step) {
  const bool named = step == std::byte{kStepZero} || step == std::byte{kStepNan};
  return named || pattern_of(exponent, step) != kBf16Nan;
}

}  // namespace tersum
