// Which values of a section are its outliers: those of the largest magnitudes, so many of them.
//
// Thread safety: pure functions, with a scratch of the caller's own. The set is defined by
// magnitudes and indices alone, so every instruction set and the reference find the same one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace tersum {

// What fits 16-bit indices and is a multiple of every granule (kTileValues).
inline constexpr size_t kSectionValues = 64512;

struct OutlierScratch {
  std::vector<uint32_t> maxima;
  std::vector<uint32_t> ranked_maxima;
  std::vector<uint64_t> candidates;
  std::vector<uint64_t> ranked_candidates;
};

// Writes the indices of the `wanted` largest magnitudes, ascending. Of equal magnitudes the lower
// index wins; what has `overflow_bits` or more of float32 bits, NaN too, counts as 0.
// wanted <= values.size() <= kSectionValues. `values` may be unaligned.
void select_outliers(std::span<const float> values, uint32_t overflow_bits, size_t wanted,
                     OutlierScratch& scratch, uint16_t* indices);

// The same by sorting everything.
void select_outliers_reference(std::span<const float> values, uint32_t overflow_bits, size_t wanted,
                               OutlierScratch& scratch, uint16_t* indices);

}  // namespace tersum
