#include "codec/kernels/cell_coding.h"

#include <algorithm>

#include "base/check.h"
#include "codec/kernels/code_groups.h"
#include "codec/kernels/element_reference.h"
#include "codec/kernels/relative_scales.h"

namespace tersum {
namespace {

constexpr size_t kCellsInTile = kTileValues / kCell;
static_assert(kCellsInTile % kCellsInBlockMax == 0, "no group straddles two tiles");

// What one tile is coded in.
struct CellMemory {
  alignas(64) uint8_t codes[kTileMemory] = {};
  std::byte bf16[kCellsInTile * kScaleBytes];
  BlockScale block_scales[kCellsInTile];
  BlockScale cell_scales[kCellsInTile];
};

// Calls visit(cell, block) for each of `count` cells; returns how many blocks there are. Cell by
// cell, as no branch is foretold that a block's size decides.
template <class Visit>
size_t for_each_cell(const uint8_t* cells, size_t count, const Visit& visit) {
  size_t begun = 0;
  for (size_t cell = 0; cell < count; ++cell) {
    begun += cells[cell] != 0 ? 1 : 0;
    visit(cell, begun - 1);
  }
  return begun;
}

size_t blocks_in(const uint8_t* cells, size_t count) {
  return count - static_cast<size_t>(std::count(cells, cells + count, uint8_t{0}));
}

// Returns how many blocks there are.
size_t find_maxima(const uint8_t* cells, size_t count, const uint32_t* absmax_bits,
                   uint32_t* maxima) {
  uint32_t most = 0;
  return for_each_cell(cells, count, [&](size_t cell, size_t block) {
    most = std::max(cells[cell] != 0 ? 0 : most, absmax_bits[cell]);
    maxima[block] = most;
  });
}

void spread_scales(const uint8_t* cells, size_t count, CellMemory& memory) {
  for_each_cell(cells, count, [&](size_t cell, size_t block) {
    memory.cell_scales[cell] = memory.block_scales[block];
  });
}

// Calls visit(group, block, blocks) for each group of `count` cells, `block` its first; returns how
// many blocks there are.
template <class Visit>
size_t for_each_group(const uint8_t* cells, size_t count, const Visit& visit) {
  size_t block = 0;
  for (size_t at = 0; at < count; at += kCellsInBlockMax) {
    const size_t here = blocks_in(cells + at, std::min(kCellsInBlockMax, count - at));
    visit(at / kCellsInBlockMax, block, here);
    block += here;
  }
  return block;
}

}  // namespace

void encode_cells(const ElementFormat& format, const ElementKernels& kernels,
                  const CellRange& range, const float* values, const uint32_t* absmax_bits,
                  const CellWire<std::byte>& wire) {
  TERSUM_CHECK(format.block == kCell && range.first == 0);
  const ScaleGrid grid = scale_grid(format);
  CellMemory memory;
  std::byte* steps = wire.steps;
  for (size_t done = 0; done < range.count; done += kCellsInTile) {
    const size_t here = std::min(kCellsInTile, range.count - done);
    const uint8_t* const cells = range.cells + done;
    uint32_t maxima[kCellsInTile];
    const size_t blocks = find_maxima(cells, here, absmax_bits + done, maxima);
    kernels.choose_scales(format, maxima, blocks, 0, memory.bf16, memory.block_scales);
    std::byte* const exponents = wire.exponents + done / kCellsInBlockMax;
    for_each_group(cells, here, [&](size_t group, size_t block, size_t in_group) {
      write_steps(grid, memory.bf16 + block * kScaleBytes, in_group, exponents + group,
                  steps + block, memory.block_scales + block);
    });
    steps += blocks;
    spread_scales(cells, here, memory);
    const size_t first = done * kCell;
    const size_t count = std::min(here * kCell, range.values - first);
    const size_t whole = count / kCell;
    std::byte* const codes = wire.codes + code_bytes(format, first);
    kernels.quantize(format, values + first, whole * kCell, memory.cell_scales, memory.codes);
    kernels.pack(format, memory.codes, whole, codes);
    if (whole == here) continue;
    const size_t packed = whole * kCell;
    std::transform(values + first + packed, values + first + count, memory.codes + packed,
                   [&](float x) { return quantize_element(format, x, memory.cell_scales[whole]); });
    pack_group(format, memory.codes + packed, count - packed, codes + code_bytes(format, packed));
  }
}

void decode_cells(const ElementFormat& format, const ElementKernels& kernels,
                  const CellRange& range, const CellWire<const std::byte>& wire, float* values) {
  TERSUM_CHECK(format.block == kCell);
  CellMemory memory;
  const std::byte* steps = wire.steps + blocks_in(range.cells, range.first);
  for (size_t done = 0; done < range.count; done += kCellsInTile) {
    const size_t here = std::min(kCellsInTile, range.count - done);
    const uint8_t* const cells = range.cells + range.first + done;
    const std::byte* const exponents = wire.exponents + (range.first + done) / kCellsInBlockMax;
    steps += for_each_group(cells, here, [&](size_t group, size_t block, size_t in_group) {
      for (size_t b = block; b < block + in_group; ++b) {
        memory.block_scales[b].scale = scale_of_pattern(read_step(exponents[group], steps[b]));
      }
    });
    spread_scales(cells, here, memory);
    const size_t count = std::min(here * kCell, range.values - done * kCell);
    const size_t whole = count / kCell;
    const std::byte* const codes = wire.codes + code_bytes(format, (range.first + done) * kCell);
    kernels.unpack(format, codes, whole, memory.codes);
    if (whole < here) {
      unpack_group(format, codes + code_bytes(format, whole * kCell), count - whole * kCell,
                   memory.codes + whole * kCell);
    }
    kernels.dequantize(format, memory.codes, here * kCell, memory.cell_scales,
                       values + done * kCell);
  }
}

}  // namespace tersum
