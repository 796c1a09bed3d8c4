#include "codec/kernels/block_cuts.h"

#include <algorithm>
#include <bit>
#include <limits>

#include "codec/kernels/numbers.h"

namespace tersum {
namespace {

size_t cells_of(size_t count) { return (count + kCell - 1) / kCell; }

// The largest block that may begin at `cell`, in cells: aligned, and whole. `whole`: cells that
// are. Without a branch that a block's size decides: nothing foretells those.
size_t widest_at(size_t cell, size_t whole) {
  const size_t aligned = size_t{1} << std::countr_zero(cell | kCellsInBlockMax);
  if (cell + kCellsInBlockMax <= whole) return aligned;
  return cell < whole ? std::min(aligned, std::bit_floor(whole - cell)) : 1;
}

using Merge = CutScratch::Merge;

static_assert(kCellsInBlockMax == size_t{1} << kMergeLevels);

// A heap's order: the cheapest merge first, of equal ones the first in the array.
bool comes_later(const Merge& a, const Merge& b) {
  return a.cost != b.cost ? a.cost > b.cost : a.cell > b.cell;
}

// What the sum of size * absmax^2 grows by, in units of a cell. Squares of float32 are exact here.
double merge_cost(float a, float b, size_t cells) {
  if (a == b) return 0;
  const double most = std::max(a, b);
  const double least = std::min(a, b);
  return static_cast<double>(cells) * (most * most - least * least);
}

// The number that `wanted` - 1 others of `count` come before, none of them below 0. Their bits are
// in their order: a count by exponent leaves few to look at.
double nth_least(const double* numbers, size_t count, size_t wanted, double* work) {
  constexpr size_t kExponents = 2048;
  constexpr int kMantissaBits = 52;
  uint16_t counts[kExponents] = {};
  const auto exponent_of = [](double number) {
    return static_cast<size_t>(std::bit_cast<uint64_t>(number) >> kMantissaBits);
  };
  for (size_t i = 0; i < count; ++i) ++counts[exponent_of(numbers[i])];
  size_t exponent = 0;
  size_t before = 0;
  while (before + counts[exponent] < wanted) before += counts[exponent++];
  size_t alike = 0;
  for (size_t i = 0; i < count; ++i) {
    work[alike] = numbers[i];
    alike += exponent_of(numbers[i]) == exponent ? 1 : 0;
  }
  double* const found = work + (wanted - before - 1);
  std::nth_element(work, found, work + alike);
  return *found;
}

// The cheapest merge that both halves are there for is made first, again and again. A merge whose
// halves come dear is made right behind them, so that what counts is what it is due at: the merges
// made are those that are due the least, and only among those due at the last cost does the order
// matter.
class Merging {
 public:
  Merging(size_t whole, CutScratch& scratch) : whole_(whole), scratch_(scratch) {
    size_t at = 0;
    for (size_t level = 0; level < kMergeLevels; ++level) {
      first_[level] = at;
      at += merges_at(level);
    }
    count_ = at;
    find_costs();
  }

  void make(size_t wanted) {
    if (wanted == 0) {
      std::fill_n(scratch_.is_made, count_, false);
      return;
    }
    const double last = nth_least(scratch_.due, count_, wanted, scratch_.ranked);
    size_t made = 0;
    for (size_t m = 0; m < count_; ++m) {
      scratch_.is_made[m] = scratch_.due[m] < last;
      made += scratch_.is_made[m] ? 1 : 0;
    }
    make_in_order(last, wanted - made);
  }

  void write(uint8_t* cells) const {
    for (size_t level = 0; level < kMergeLevels; ++level) {
      const size_t half = size_t{1} << level;
      for (size_t i = 0; i < merges_at(level); ++i) {
        if (!scratch_.is_made[first_[level] + i]) continue;
        cells[2 * half * i] = static_cast<uint8_t>(2 * half);
        cells[2 * half * i + half] = 0;
      }
    }
  }

 private:
  [[nodiscard]] size_t merges_at(size_t level) const { return whole_ >> (level + 1); }

  // From the magnitudes of the cells at the beginning of scratch_.absmax.
  void find_costs() {
    const float* from = scratch_.absmax;
    for (size_t level = 0; level < kMergeLevels; ++level) {
      float* const to = scratch_.absmax + kCellsMax + first_[level];
      const double* const within = scratch_.due + (level > 0 ? first_[level - 1] : 0);
      for (size_t i = 0; i < merges_at(level); ++i) {
        const float a = from[2 * i];
        const float b = from[2 * i + 1];
        const double cost = merge_cost(a, b, size_t{1} << level);
        to[i] = std::max(a, b);
        scratch_.cost[first_[level] + i] = cost;
        scratch_.due[first_[level] + i] =
            level == 0 ? cost : std::max({cost, within[2 * i], within[2 * i + 1]});
      }
      from = to;
    }
  }

  [[nodiscard]] bool is_ready(size_t level, size_t i) const {
    if (level == 0) return true;
    const bool* const within = scratch_.is_made + first_[level - 1];
    return within[2 * i] && within[2 * i + 1];
  }
  void offer(size_t level, size_t i) {
    const double cost = scratch_.cost[first_[level] + i];
    scratch_.heap[size_++] = {cost, static_cast<uint16_t>(i << (level + 1)),
                              static_cast<uint16_t>(level)};
    std::push_heap(scratch_.heap, scratch_.heap + size_, comes_later);
  }

  // The first `wanted` of those that are due at `last`.
  void make_in_order(double last, size_t wanted) {
    for (size_t level = 0; level < kMergeLevels; ++level) {
      for (size_t i = 0; i < merges_at(level); ++i) {
        const size_t merge = first_[level] + i;
        if (scratch_.cost[merge] == last && !scratch_.is_made[merge] && is_ready(level, i)) {
          offer(level, i);
        }
      }
    }
    for (; wanted > 0; --wanted) {
      std::pop_heap(scratch_.heap, scratch_.heap + size_, comes_later);
      const Merge merge = scratch_.heap[--size_];
      const size_t i = size_t{merge.cell} >> (merge.level + 1);
      scratch_.is_made[first_[merge.level] + i] = true;
      const size_t above = merge.level + size_t{1};
      const bool has_above = above < kMergeLevels && i / 2 < merges_at(above);
      if (has_above && is_ready(above, i / 2)) offer(above, i / 2);
    }
  }

  size_t whole_;
  CutScratch& scratch_;
  size_t first_[kMergeLevels] = {};
  size_t count_ = 0;
  size_t size_ = 0;
};

}  // namespace

size_t fewest_blocks(size_t count) {
  const size_t whole = count / kCell;
  return whole / kCellsInBlockMax + static_cast<size_t>(std::popcount(whole % kCellsInBlockMax)) +
         (count % kCell != 0 ? 1 : 0);
}

void choose_cuts(const uint32_t* absmax_bits, size_t count, size_t blocks, CutScratch& scratch,
                 uint8_t* cells) {
  const size_t all = cells_of(count);
  for (size_t c = 0; c < all; ++c) {
    scratch.absmax[c] = absmax_bits[c] < kFloatInfinity ? float_from_bits(absmax_bits[c])
                                                        : std::numeric_limits<float>::infinity();
    cells[c] = 1;
  }
  Merging merging(count / kCell, scratch);
  merging.make(all - blocks);
  merging.write(cells);
}

void write_cuts(const uint8_t* cells, size_t count, size_t blocks, std::byte* bits) {
  constexpr int kAtOnce = 32;
  const std::byte* const end = bits + (blocks + 3) / 4;
  uint64_t pending = 0;
  int used = 0;
  for (size_t cell = 0; cell < cells_of(count); cell += cells[cell]) {
    const int most = std::countr_zero(widest_at(cell, count / kCell));
    const int cuts = most - std::countr_zero(cells[cell]);
    // A 1 for each cut, and a 0 behind the last if there might be one more.
    pending |= ((uint64_t{1} << cuts) - 1) << used;
    used += cuts + (cuts < most ? 1 : 0);
    if (used < kAtOnce) continue;
    store_unaligned(bits, static_cast<uint32_t>(pending));
    bits += kAtOnce / 8;
    pending >>= kAtOnce;
    used -= kAtOnce;
  }
  for (; bits < end; pending >>= 8) *bits++ = static_cast<std::byte>(pending);
}

bool read_cuts(const std::byte* bits, size_t count, size_t blocks, uint8_t* cells) {
  const size_t all = cells_of(count);
  const size_t bytes = (blocks + 3) / 4;
  std::fill_n(cells, all, uint8_t{0});
  size_t bit = 0;
  size_t found = 0;
  for (size_t cell = 0; cell < all; cell += cells[cell]) {
    if (++found > blocks) return false;
    const size_t widest = widest_at(cell, count / kCell);
    const int most = std::countr_zero(widest);
    // At most five bits, of two bytes.
    const size_t byte = bit / 8;
    uint32_t ahead = byte < bytes ? static_cast<uint32_t>(bits[byte]) : 0;
    if (byte + 1 < bytes) ahead |= static_cast<uint32_t>(bits[byte + 1]) << 8;
    const int cuts = std::min(std::countr_one(ahead >> (bit % 8)), most);
    bit += static_cast<size_t>(cuts) + (cuts < most ? 1 : 0);
    if (bit > 2 * blocks) return false;
    cells[cell] = static_cast<uint8_t>(widest >> cuts);
  }
  return found == blocks;
}

}  // namespace tersum
