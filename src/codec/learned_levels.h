// LearnedLevels: the levels of "kmeans:K" at one call site, learned from one sum and then kept.
//
// Every rank holds the same sums, bit for bit, so every rank learns the same levels, with no
// exchange. They are learned once: from the first sum with enough values, which has travelled in a
// finer format.
//
// Thread safety: none. Invariants: as of LevelHistogram, the levels' bits depend on the observed
// bits alone; what is known never changes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "codec/codec.h"
#include "codec/level_tables.h"
#include "codec/outlier_places.h"
#include "tersum/data_type.h"

namespace tersum {

class LearnedLevels {
 public:
  // With fewer values the levels would follow those, and not what they are drawn from.
  static constexpr size_t kValuesMin = 1024;
  // Looked at, in blocks spread over the array: a bound on what learning costs.
  static constexpr size_t kValuesObserved = size_t{1} << 16;

  [[nodiscard]] bool known() const { return !levels_.empty(); }
  [[nodiscard]] std::span<const float> levels() const { return levels_; }

  // Learns from a call's result of `count` values, unless levels are known already. Blocks with
  // something that is not finite are left out; the values at `outliers` count as 0. Leaves the
  // state as it is where fewer than kValuesMin of the values looked at are other than 0.
  void learn(const LevelLesson& lesson, const void* sums, size_t count, DataType type,
             const OutlierPlaces& outliers = {});

  // 64 bits of the levels; 0 while there are none.
  [[nodiscard]] uint64_t digest() const { return digest_; }
  // Their number in level_tables.h; 0 while there are none, or this process has no room for them.
  [[nodiscard]] uint16_t table();

  // Their number (8 bytes, little-endian), and kTableLevelsMax float32, 0 behind the last.
  static constexpr size_t kSavedBytes = 8 + 4 * kTableLevelsMax;
  void save(std::span<std::byte> to) const;
  // False, and the state untouched, if `from` is nothing that save() writes.
  [[nodiscard]] bool load(std::span<const std::byte> from);

 private:
  void keep(std::vector<float> levels);

  std::vector<float> levels_;
  uint16_t table_ = 0;
  uint64_t digest_ = 0;
};

}  // namespace tersum
