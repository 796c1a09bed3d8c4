#include "codec/kernels/block_cuts.h"

#include <algorithm>
#include <bit>
#include <limits>

#include "codec/kernels/numbers.h"

namespace tersum {
namespace {

size_t cells_of(size_t count) { return (count + kCell - 1) / kCell; }

// The largest block that may begin at `cell`, in cells: aligned, and whole. `whole`: cells that
// are.
size_t widest_at(size_t cell, size_t whole) {
  size_t cells = kCellsInBlockMax;
  while (cells > 1 && (cell % cells != 0 || cell + cells > whole)) cells /= 2;
  return cells;
}

using Merge = CutScratch::Merge;

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

class Merging {
 public:
  Merging(size_t whole, CutScratch& scratch, uint8_t* cells)
      : whole_(whole), scratch_(scratch), cells_(cells) {}

  // The block of `cells` cells at `cell`, if it and its other half can become one.
  void offer(size_t cell, size_t cells) {
    const size_t first = cell & ~(2 * cells - 1);
    const size_t second = first + cells;
    if (2 * cells > kCellsInBlockMax || second + cells > whole_) return;
    if (cells_[first] != cells || cells_[second] != cells) return;
    const double cost = merge_cost(scratch_.absmax[first], scratch_.absmax[second], cells);
    scratch_.heap[size_++] = {cost, static_cast<uint16_t>(first), static_cast<uint16_t>(cells)};
    std::push_heap(scratch_.heap, scratch_.heap + size_, comes_later);
  }

  void merge_cheapest() {
    std::pop_heap(scratch_.heap, scratch_.heap + size_, comes_later);
    const auto [cost, first, cells] = scratch_.heap[--size_];
    float* const absmax = scratch_.absmax;
    absmax[first] = std::max(absmax[first], absmax[first + cells]);
    cells_[first + cells] = 0;
    cells_[first] = static_cast<uint8_t>(2 * cells);
    offer(first, size_t{2} * cells);
  }

 private:
  size_t whole_;
  CutScratch& scratch_;
  uint8_t* cells_;
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
  Merging merging(count / kCell, scratch, cells);
  for (size_t c = 0; c < all; c += 2) merging.offer(c, 1);
  for (size_t left = all; left > blocks; --left) merging.merge_cheapest();
}

void write_cuts(const uint8_t* cells, size_t count, size_t blocks, std::byte* bits) {
  std::fill_n(bits, (blocks + 3) / 4, std::byte{0});
  size_t bit = 0;
  const auto put = [&](bool is_set) {
    if (is_set) bits[bit / 8] |= static_cast<std::byte>(1U << (bit % 8));
    ++bit;
  };
  for (size_t cell = 0; cell < cells_of(count); cell += cells[cell]) {
    for (size_t size = widest_at(cell, count / kCell); size > 1; size /= 2) {
      put(size > cells[cell]);
      if (size == cells[cell]) break;
    }
  }
}

bool read_cuts(const std::byte* bits, size_t count, size_t blocks, uint8_t* cells) {
  const size_t all = cells_of(count);
  std::fill_n(cells, all, uint8_t{0});
  size_t bit = 0;
  size_t found = 0;
  for (size_t cell = 0; cell < all; cell += cells[cell]) {
    if (++found > blocks) return false;
    size_t size = widest_at(cell, count / kCell);
    for (; size > 1; size /= 2, ++bit) {
      if (bit == 2 * blocks) return false;
      const bool is_cut = (static_cast<uint8_t>(bits[bit / 8]) >> (bit % 8) & 1U) != 0;
      if (is_cut) continue;
      ++bit;
      break;
    }
    cells[cell] = static_cast<uint8_t>(size);
  }
  return found == blocks;
}

}  // namespace tersum
