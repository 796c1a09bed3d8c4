// Sums of integer codes under power-of-two scales, taken in integers: exact, and the same whatever
// the order of the contributions.
//
// The codes of a block are brought to one exponent by shifts. R codes of b bits fit an int32 after
// shifts of up to s = 32 - b - ceil(log2 R): R * 2^(b-1) * 2^s <= 2^31. So the block's unit is
// 2^(top - s), top the largest exponent of its R scales, but not below the least scale there is. A
// code whose scale is smaller than the unit is rounded to units, to nearest, ties to even, on its
// own: what a contribution adds depends on the set of scales and not on its place among them.
//
// Thread safety: one thread per object. About 14 KiB.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "codec/kernels/element_kernels.h"

namespace tersum {

class ShiftSum {
 public:
  // `format`: integers with E8M0 scales. `contributions`: how many will be added to each tile.
  ShiftSum(const ElementFormat& format, const ElementKernels& kernels, size_t contributions);

  // For a tile of `count` values, in whole blocks: begin, then align() with the scales of every
  // contribution, then add() of every contribution, then finish(). `scales`: as on the wire.
  void begin(size_t count);
  void align(const std::byte* scales);
  void add(const uint8_t* codes, const std::byte* scales);
  // The sums as float32, each rounded once. A block with a NaN scale is NaN.
  void finish(float* tile);
  // Of all that was aligned; NaN if one is.
  [[nodiscard]] float largest_scale() const;

 private:
  [[nodiscard]] size_t blocks() const { return count_ / format_.block; }
  // Of the unit of a block, as a scale on the wire.
  [[nodiscard]] int32_t unit(size_t block) const {
    return std::max(int32_t{tops_[block]} - shift_max_, 0);
  }

  const ElementFormat& format_;
  const ElementKernels& kernels_;
  int32_t shift_max_;
  size_t count_ = 0;
  uint8_t tops_[kTileBlocksMax];  // NaN is the largest of all
  alignas(64) int32_t sums_[kTileMemory];
};

}  // namespace tersum
