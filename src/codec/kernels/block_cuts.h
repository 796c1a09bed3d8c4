// Where +adaptive cuts a section into blocks: the choice, and its bits.
//
// Values are looked at in cells of 32, of which only the last may be shorter. A block is 1, 2, 4, …
// 32 cells that begin at a multiple of their number; a cell that is shorter is a block of its own.
//
// Thread safety: pure functions. No allocation.
#pragma once

#include <cstddef>
#include <cstdint>

namespace tersum {

inline constexpr size_t kCell = 32;
inline constexpr size_t kCellsInBlockMax = 32;
inline constexpr size_t kCellsMax = 2048;

// The fewest blocks that `count` values can be cut into.
size_t fewest_blocks(size_t count);

// A merge joins two halves of 2^level cells; merges of one level lie side by side.
inline constexpr size_t kMergeLevels = 5;
inline constexpr size_t kMergesMax = kCellsMax;  // fewer: 1024 + 512 + … + 64

struct CutScratch {
  struct Merge {
    double cost;
    uint16_t cell;
    uint16_t level;
  };
  Merge heap[kMergesMax];
  float absmax[2 * kCellsMax];  // of all blocks that there may be, level by level
  double cost[kMergesMax];
  // The most of a merge's cost and of those of all merges within it: it is made when the costs that
  // are paid have come to that.
  double due[kMergesMax];
  double ranked[kMergesMax];
  bool is_made[kMergesMax];
};

// Cuts `count` values into `blocks` blocks, of a number from fewest_blocks() to that of the cells:
// starting from single cells, halves of a block are joined where that makes the sum of size *
// absmax^2 over the blocks grow the least. `absmax_bits`: of each cell, as float32 bits; from
// kFloatInfinity on the cell has something that is not finite. `cells`: 0 or, at the first cell of
// a block, the number of its cells.
void choose_cuts(const uint32_t* absmax_bits, size_t count, size_t blocks, CutScratch& scratch,
                 uint8_t* cells);

// 2 * blocks bits, what is left of them 0. `bits` has room for (blocks + 3) / 4 bytes.
void write_cuts(const uint8_t* cells, size_t count, size_t blocks, std::byte* bits);
// False for bits that cut otherwise than into `blocks`; `cells` is then undefined.
[[nodiscard]] bool read_cuts(const std::byte* bits, size_t count, size_t blocks, uint8_t* cells);

}  // namespace tersum
