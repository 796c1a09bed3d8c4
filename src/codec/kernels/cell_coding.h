// Blocks of one to 32 cells each, of different sizes beside each other: what +adaptive cuts a
// section into. Scales are those of relative_scales.h, a group being 32 cells; codes follow each
// other as if there were no blocks, every group of them a cell.
//
// A code depends on a value and a scale, wherever the block ends; so the cells of a tile are coded
// together, each under its block's scale.
//
// Thread safety: pure functions. No allocation; about 12 KiB of stack.
#pragma once

#include <cstddef>
#include <cstdint>

#include "codec/kernels/block_cuts.h"
#include "codec/kernels/element_kernels.h"

namespace tersum {

// Cells first..first+count-1 of a section, the last of which may be shorter, with a block beginning
// at the first; both `first` and `count`, but at the section's end, are multiples of
// kCellsInBlockMax.
struct CellRange {
  const uint8_t* cells = nullptr;  // of the section, as block_cuts.h has them
  size_t first = 0;
  size_t count = 0;
  size_t values = 0;  // in these cells
};

// Where the parts of a section lie.
template <class Byte>
struct CellWire {
  Byte* exponents = nullptr;  // one for each kCellsInBlockMax cells
  Byte* steps = nullptr;      // one for each block
  Byte* codes = nullptr;
};

// `format`: of float32 in blocks of a cell, under ScaleRule::kBf16Up, in groups of a cell. The
// range is the whole section. `absmax_bits`: of all its cells.
void encode_cells(const ElementFormat& format, const ElementKernels& kernels,
                  const CellRange& range, const float* values, const uint32_t* absmax_bits,
                  const CellWire<std::byte>& wire);
// `values`: of the range, aligned as a tile, with kCell behind them that may be written.
void decode_cells(const ElementFormat& format, const ElementKernels& kernels,
                  const CellRange& range, const CellWire<const std::byte>& wire, float* values);

}  // namespace tersum
