// Integers of 8 to 15 bits on the wire, and sums of them: two's complement, the low byte of each,
// then the bits above as bit planes (as Packing::kPlanes of element_format.h).
//
// Thread safety: immutable. Slices of n values: n bytes, then for each group of 32 values (the last
// may be shorter: r values, (r + 7) / 8 bytes) bit 8 of all, bit 9 of all, …
#pragma once

#include <cstddef>
#include <cstdint>

#include "codec/kernels/element_kernels.h"

namespace tersum {

class WideCodes {
 public:
  static constexpr uint32_t kBitsMin = 8;
  static constexpr uint32_t kBitsMax = 15;

  explicit WideCodes(uint32_t bits);

  [[nodiscard]] size_t slice_bytes(size_t count) const {
    return count + code_bytes(planes_, count);
  }
  // sums[i] += number begin + i of a slice of `count`, for i < part <= kTileValues. `begin`: a
  // multiple of kPlaneGroup.
  void add(const std::byte* wire, size_t count, size_t begin, size_t part, int32_t* sums) const;
  // Writes sums[0..part-1] there, modulo 2^bits.
  void write(const int32_t* sums, size_t begin, size_t part, size_t count, std::byte* wire) const;

 private:
  ElementFormat planes_;  // of the upper bits, if there are any
};

}  // namespace tersum
