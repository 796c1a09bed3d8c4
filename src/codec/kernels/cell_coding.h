// Blocks of one to 32 cells each, of different sizes beside each other: what +adaptive cuts a
// section into. A block is a slice of its own, its scale and then its codes.
//
// A code depends on a value and a scale, wherever the block ends; so the cells of a tile are coded
// together, each under its block's scale, and then put where they belong.
//
// Thread safety: pure functions. No allocation; about 12 KiB of stack.
#pragma once

#include <cstddef>
#include <cstdint>

#include "codec/kernels/block_cuts.h"
#include "codec/kernels/element_kernels.h"

namespace tersum {

// Cells first..first+count-1 of a section, whole ones, with a block beginning at the first; both
// `first` and `count`, but at the section's end, are multiples of kCellsInBlockMax.
struct CellRange {
  const uint8_t* cells = nullptr;  // of the section, as block_cuts.h has them
  size_t first = 0;
  size_t count = 0;
};

// `format`: of float32 in blocks of a cell, under ScaleRule::kBf16Up, in groups of a cell.
// `values`: of the range, with kTilePad values behind it that may be read. `absmax_bits`: of all
// cells of the section. Returns the end of what it wrote.
std::byte* encode_cells(const ElementFormat& format, const ElementKernels& kernels,
                        const CellRange& range, const float* values, const uint32_t* absmax_bits,
                        std::byte* wire);
// `wire`: where the section's first block begins. `values`: of the range, aligned as a tile.
void decode_cells(const ElementFormat& format, const ElementKernels& kernels,
                  const CellRange& range, const std::byte* wire, float* values);
// Bytes of the blocks in the range.
size_t cell_bytes(const ElementFormat& format, const CellRange& range);

}  // namespace tersum
