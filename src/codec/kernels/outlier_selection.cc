#include "codec/kernels/outlier_selection.h"

#include <algorithm>
#include <functional>

#include "base/check.h"
#include "codec/kernels/dispatch.h"
#include "codec/kernels/element_kernels.h"
#include "codec/kernels/numbers.h"

namespace tersum {
namespace {

static_assert(kSectionValues % kTileValues == 0 && kSectionValues <= 0x10000);

// Groups of values whose maxima are looked at first: at least a vector, and so many groups that
// most of them have no outlier.
constexpr size_t kGroupMin = 16;
constexpr size_t kGroupMax = 256;
constexpr size_t kGroupsPerOutlier = 4;

// Greater is taken first: by magnitude, then by lower index. No two are equal.
uint64_t outlier_key(uint32_t magnitude, size_t index) {
  return uint64_t{magnitude} << 16 | (0xffff - index);
}
uint16_t index_of(uint64_t key) { return static_cast<uint16_t>(0xffff - (key & 0xffff)); }

uint32_t magnitude_at(std::span<const float> values, size_t index, uint32_t overflow_bits) {
  const uint32_t bits = load_unaligned<uint32_t>(values.data() + index) & ~kFloatSignBit;
  return bits < overflow_bits ? bits : 0;
}

size_t choose_group(size_t count, size_t wanted) {
  size_t group = kGroupMax;
  while (group > kGroupMin && count / group < kGroupsPerOutlier * wanted) group /= 2;
  return group;
}

void find_group_maxima(std::span<const float> values, uint32_t overflow_bits, size_t group,
                       std::vector<uint32_t>& maxima) {
  maxima.resize(values.size() / group);
  element_kernels().maxima(values.data(), group, maxima.size(), maxima.data());
  for (size_t g = 0; g < maxima.size(); ++g) {
    if (maxima[g] < overflow_bits) continue;
    maxima[g] = 0;
    for (size_t i = g * group; i < (g + 1) * group; ++i) {
      maxima[g] = std::max(maxima[g], magnitude_at(values, i, overflow_bits));
    }
  }
}

// A magnitude that at least `wanted` values reach, by how many there are of each exponent and its
// three highest bits of mantissa.
uint32_t magnitude_by_counts(std::span<const float> values, uint32_t overflow_bits, size_t wanted) {
  constexpr uint32_t kShift = 20;
  uint32_t counts[(kFloatInfinity >> kShift) + 1] = {};
  for (size_t i = 0; i < values.size(); ++i) {
    ++counts[magnitude_at(values, i, overflow_bits) >> kShift];
  }
  uint32_t bin = kFloatInfinity >> kShift;
  for (size_t reached = counts[bin]; reached < wanted; reached += counts[bin]) --bin;
  return bin << kShift;
}

// The same where that many groups hold a value so large.
uint32_t magnitude_by_groups(size_t wanted, OutlierScratch& scratch) {
  scratch.ranked_maxima = scratch.maxima;
  const auto last = scratch.ranked_maxima.begin() + static_cast<std::ptrdiff_t>(wanted - 1);
  std::nth_element(scratch.ranked_maxima.begin(), last, scratch.ranked_maxima.end(),
                   std::greater<>());
  return *last;
}

// In ascending order of their indices.
void collect_candidates(std::span<const float> values, uint32_t overflow_bits, size_t group,
                        uint32_t least, OutlierScratch& scratch) {
  scratch.candidates.resize(values.size());
  uint64_t* next = scratch.candidates.data();
  const auto collect = [&](size_t begin, size_t end) {
    for (size_t i = begin; i < end; ++i) {
      const uint32_t magnitude = magnitude_at(values, i, overflow_bits);
      *next = outlier_key(magnitude, i);
      next += magnitude >= least ? 1 : 0;
    }
  };
  for (size_t g = 0; g < scratch.maxima.size(); ++g) {
    if (scratch.maxima[g] >= least) collect(g * group, (g + 1) * group);
  }
  const size_t grouped = scratch.maxima.size() * group;
  // One key is written beyond those that count, but never beyond the array.
  if (grouped < values.size()) collect(grouped, values.size());
  scratch.candidates.resize(static_cast<size_t>(next - scratch.candidates.data()));
}

}  // namespace

void select_outliers(std::span<const float> values, uint32_t overflow_bits, size_t wanted,
                     OutlierScratch& scratch, uint16_t* indices) {
  if (wanted == 0) return;
  if (active_target() == kReferenceTarget) {
    select_outliers_reference(values, overflow_bits, wanted, scratch, indices);
    return;
  }
  TERSUM_CHECK(wanted <= values.size() && values.size() <= kSectionValues);
  const size_t group = choose_group(values.size(), wanted);
  find_group_maxima(values, overflow_bits, group, scratch.maxima);
  const uint32_t least_magnitude = wanted <= scratch.maxima.size()
                                       ? magnitude_by_groups(wanted, scratch)
                                       : magnitude_by_counts(values, overflow_bits, wanted);
  collect_candidates(values, overflow_bits, group, least_magnitude, scratch);
  uint64_t least = 0;
  if (scratch.candidates.size() > wanted) {
    scratch.ranked_candidates = scratch.candidates;
    const auto last = scratch.ranked_candidates.begin() + static_cast<std::ptrdiff_t>(wanted - 1);
    std::nth_element(scratch.ranked_candidates.begin(), last, scratch.ranked_candidates.end(),
                     std::greater<>());
    least = *last;
  }
  for (const uint64_t key : scratch.candidates) {
    if (key >= least) *indices++ = index_of(key);
  }
}

void select_outliers_reference(std::span<const float> values, uint32_t overflow_bits, size_t wanted,
                               OutlierScratch& scratch, uint16_t* indices) {
  TERSUM_CHECK(wanted <= values.size() && values.size() <= kSectionValues);
  std::vector<uint64_t>& keys = scratch.candidates;
  keys.resize(values.size());
  for (size_t i = 0; i < keys.size(); ++i) {
    keys[i] = outlier_key(magnitude_at(values, i, overflow_bits), i);
  }
  std::sort(keys.begin(), keys.end(), std::greater<>());
  std::transform(keys.begin(), keys.begin() + static_cast<std::ptrdiff_t>(wanted), indices,
                 index_of);
  std::sort(indices, indices + wanted);
}

}  // namespace tersum
