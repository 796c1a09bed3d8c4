// Scales of a byte each, for blocks beside each other: how far a scale lies below a power of two
// that a group of blocks shares, in steps of 1/16 octave.
//
// A scale is a bf16 number, whose bits, read as an integer, are its *pattern*: 128 patterns make an
// octave, and adding to one is adding to the other. The group's byte e says 128 e, a block's byte k
// the pattern 128 e - 8 k; 16 octaves below it at most. kStepZero is the scale 0, kStepNan is NaN.
// What leaves a pattern that is no positive finite number stands for NaN.
//
// Thread safety: pure functions. No allocation.
#pragma once

#include <cstddef>
#include <cstdint>

#include "codec/kernels/element_format.h"

namespace tersum {

inline constexpr uint32_t kPatternsInOctave = 128;
inline constexpr uint32_t kPatternsInStep = 8;
inline constexpr uint8_t kStepMost = 253;
inline constexpr uint8_t kStepZero = 254;
inline constexpr uint8_t kStepNan = 255;

// How a pattern becomes one of the grid.
struct ScaleGrid {
  // Patterns that a scale may go down by: half a step where the largest value of a block then comes
  // out within half a gap of its level; else none, and scales are rounded up.
  uint32_t down = 0;
  uint32_t up = 0;
  uint32_t most = 0;  // the largest pattern whose levels are finite numbers of the value type
};
// `format`: under ScaleRule::kBf16Up.
ScaleGrid scale_grid(const ElementFormat& format);

// The patterns between which a scale of `pattern`, positive and at most grid.most, becomes one of
// the grid in any group: `least` may be 0.
struct PatternRange {
  uint32_t least = 0;
  uint32_t most = 0;
};
PatternRange rounded_range(const ScaleGrid& grid, uint32_t pattern);

// Of a group of `blocks` blocks: its byte, theirs at `steps`, and what these stand for at `scales`.
// `bf16`: the scales of ScaleRule::kBf16Up, 2 bytes each.
void write_steps(const ScaleGrid& grid, const std::byte* bf16, size_t blocks, std::byte* exponent,
                 std::byte* steps, BlockScale* scales);

// The pattern of a block; that of the canonical NaN.
uint16_t read_step(std::byte exponent, std::byte step);
// True for bytes that stand for a scale, or for NaN by its own byte.
bool is_written_step(std::byte exponent, std::byte step);

inline float scale_of_pattern(uint32_t pattern) { return float_from_bits(pattern << 16); }

}  // namespace tersum
