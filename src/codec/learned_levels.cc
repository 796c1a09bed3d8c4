#include "codec/learned_levels.h"

#include <xxhash.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "base/bytes.h"
#include "base/check.h"
#include "base/mix_bits.h"
#include "codec/best_levels.h"
#include "codec/kernels/element_kernels.h"
#include "codec/kernels/numbers.h"
#include "codec/value_kind.h"

namespace tersum {
namespace {

// A block's scale: bfloat16, rounded up, below infinity.
double scale_above(float absmax) {
  constexpr uint32_t kLargest = 0x7f7f0000;
  return float_from_bits(std::min((float_bits(absmax) + 0xffff) & 0xffff0000, kLargest));
}

// The blocks of an array, which begin anew with every row.
class ArrayBlocks {
 public:
  ArrayBlocks(const LevelLesson& lesson, size_t count)
      : block_(lesson.block), row_(lesson.rows == 0 ? count : lesson.rows), count_(count) {}

  [[nodiscard]] size_t size() const { return count_ / row_ * in_row(row_) + in_row(count_ % row_); }
  // Of the block's values.
  [[nodiscard]] size_t begin(size_t index) const {
    return index / in_row(row_) * row_ + index % in_row(row_) * block_;
  }
  [[nodiscard]] size_t end(size_t index) const {
    const size_t row_end = (index / in_row(row_) + 1) * row_;
    return std::min({begin(index) + block_, row_end, count_});
  }

 private:
  [[nodiscard]] size_t in_row(size_t values) const { return (values + block_ - 1) / block_; }

  size_t block_;
  size_t row_;
  size_t count_;
};

// How many values other than 0 were added: none where there is nothing to learn from.
size_t add_block(const float* values, size_t count, LevelHistogram& histogram) {
  float absmax = 0;
  size_t found = 0;
  for (size_t i = 0; i < count; ++i) {
    if (!std::isfinite(values[i])) return 0;
    absmax = std::max(absmax, std::abs(values[i]));
    found += values[i] == 0 ? 0 : 1;
  }
  if (absmax == 0) return 0;
  const double scale = scale_above(absmax);
  // An error of a part is multiplied by the scale.
  for (size_t i = 0; i < count; ++i) {
    histogram.add(std::clamp(values[i] / scale, -1.0, 1.0), scale * scale);
  }
  return found;
}

// One of each of `parts` runs of blocks, at a place that has nothing to do with the length of rows.
size_t chosen_block(size_t part, size_t parts, size_t blocks) {
  const size_t begin = part * blocks / parts;
  const size_t end = (part + 1) * blocks / parts;
  return begin + mix_bits(part) % (end - begin);
}

}  // namespace

void LearnedLevels::learn(const LevelLesson& lesson, const void* sums, size_t count, DataType type,
                          const OutlierPlaces& outliers) {
  if (known() || count == 0) return;
  const ArrayBlocks blocks(lesson, count);
  const size_t most = kValuesObserved / lesson.block;
  const size_t parts = std::min(blocks.size(), most);
  LevelHistogram histogram;
  alignas(64) std::array<float, kTileMemory> tile;
  size_t seen = 0;
  for (size_t part = 0; part < parts; ++part) {
    const size_t index = chosen_block(part, parts, blocks.size());
    const size_t begin = blocks.begin(index);
    const size_t values = blocks.end(index) - begin;
    TERSUM_CHECK(values <= kTileValues);
    element_kernels().load(value_kind(type), sums, begin, values, tile.data());
    // Those travel apart; one that is not finite becomes NaN by this.
    outliers.for_each(begin, begin + values, [&](size_t place) { tile[place] *= 0; });
    seen += add_block(tile.data(), values, histogram);
  }
  if (seen >= kValuesMin) keep(histogram.best_levels(lesson.levels));
}

void LearnedLevels::keep(std::vector<float> levels) {
  levels_ = std::move(levels);
  table_ = 0;
  digest_ = 0;
  if (!known()) return;
  std::array<std::byte, kSavedBytes> saved{};
  save(saved);
  digest_ = XXH3_64bits(saved.data(), saved.size());
}

uint16_t LearnedLevels::table() {
  if (table_ == 0 && known()) {
    const Result<uint16_t> registered = register_level_table(levels_);
    if (registered.ok()) table_ = registered.value();
  }
  return table_;
}

void LearnedLevels::save(std::span<std::byte> to) const {
  TERSUM_CHECK(to.size() == kSavedBytes);
  store_le(to.data(), uint64_t{levels_.size()});
  for (size_t i = 0; i < kTableLevelsMax; ++i) {
    store_le(to.data() + 8 + 4 * i, i < levels_.size() ? levels_[i] : 0.0F);
  }
}

bool LearnedLevels::load(std::span<const std::byte> from) {
  if (from.size() != kSavedBytes) return false;
  const auto count = load_le<uint64_t>(from.data());
  if (count > kTableLevelsMax) return false;
  std::vector<float> levels(kTableLevelsMax);
  for (size_t i = 0; i < kTableLevelsMax; ++i) {
    levels[i] = load_le<float>(from.data() + 8 + 4 * i);
    if (i >= count && float_bits(levels[i]) != 0) return false;
  }
  levels.resize(count);
  if (count > 0 && !check_levels(levels).ok()) return false;
  keep(std::move(levels));
  return true;
}

}  // namespace tersum
