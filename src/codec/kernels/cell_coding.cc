#include "codec/kernels/cell_coding.h"

#include <algorithm>
#include <cstring>

#include "base/check.h"

namespace tersum {
namespace {

constexpr size_t kCellsInTile = kTileValues / kCell;
static_assert(kCellsInTile % kCellsInBlockMax == 0, "no block straddles two tiles");

// What one tile is coded in.
struct CellMemory {
  alignas(64) uint8_t codes[kTileMemory] = {};
  std::byte packed[kTileMemory];
  std::byte scale_wire[kCellsInTile * kScaleBytes];
  BlockScale block_scales[kCellsInTile];
  BlockScale cell_scales[kCellsInTile];
};

// Calls visit(block, cell, cells) for each block of `count` cells.
template <class Visit>
size_t for_each_block(const uint8_t* cells, size_t count, const Visit& visit) {
  size_t block = 0;
  for (size_t cell = 0; cell < count; cell += cells[cell], ++block) {
    visit(block, cell, size_t{cells[cell]});
  }
  return block;
}

void spread_scales(const uint8_t* cells, size_t count, CellMemory& memory) {
  for_each_block(cells, count, [&](size_t block, size_t cell, size_t width) {
    std::fill_n(memory.cell_scales + cell, width, memory.block_scales[block]);
  });
}

}  // namespace

size_t cell_bytes(const ElementFormat& format, const CellRange& range) {
  const size_t blocks =
      for_each_block(range.cells + range.first, range.count, [](size_t, size_t, size_t) {});
  return blocks * kScaleBytes + range.count * code_bytes(format, kCell);
}

std::byte* encode_cells(const ElementFormat& format, const ElementKernels& kernels,
                        const CellRange& range, const float* values, const uint32_t* absmax_bits,
                        std::byte* wire) {
  TERSUM_CHECK(format.block == kCell && format.rule == ScaleRule::kBf16Up);
  CellMemory memory;
  const size_t codes = code_bytes(format, kCell);
  for (size_t done = 0; done < range.count; done += kCellsInTile) {
    const size_t here = std::min(kCellsInTile, range.count - done);
    const uint8_t* const cells = range.cells + range.first + done;
    const uint32_t* const absmax = absmax_bits + range.first + done;
    uint32_t maxima[kCellsInTile];
    const size_t blocks = for_each_block(cells, here, [&](size_t block, size_t cell, size_t width) {
      maxima[block] = *std::max_element(absmax + cell, absmax + cell + width);
    });
    kernels.choose_scales(format, maxima, blocks, 0, memory.scale_wire, memory.block_scales);
    spread_scales(cells, here, memory);
    kernels.quantize(format, values + done * kCell, here * kCell, memory.cell_scales, memory.codes);
    kernels.pack(format, memory.codes, here, memory.packed);
    for_each_block(cells, here, [&](size_t block, size_t cell, size_t width) {
      std::memcpy(wire, memory.scale_wire + block * kScaleBytes, kScaleBytes);
      std::memcpy(wire + kScaleBytes, memory.packed + cell * codes, width * codes);
      wire += kScaleBytes + width * codes;
    });
  }
  return wire;
}

void decode_cells(const ElementFormat& format, const ElementKernels& kernels,
                  const CellRange& range, const std::byte* wire, float* values) {
  TERSUM_CHECK(format.block == kCell && format.rule == ScaleRule::kBf16Up);
  CellMemory memory;
  const size_t codes = code_bytes(format, kCell);
  wire += cell_bytes(format, {range.cells, 0, range.first});
  for (size_t done = 0; done < range.count; done += kCellsInTile) {
    const size_t here = std::min(kCellsInTile, range.count - done);
    const uint8_t* const cells = range.cells + range.first + done;
    const size_t blocks = for_each_block(cells, here, [&](size_t block, size_t cell, size_t width) {
      std::memcpy(memory.scale_wire + block * kScaleBytes, wire, kScaleBytes);
      std::memcpy(memory.packed + cell * codes, wire + kScaleBytes, width * codes);
      wire += kScaleBytes + width * codes;
    });
    read_scales(format, memory.scale_wire, blocks, 0, memory.block_scales);
    spread_scales(cells, here, memory);
    kernels.unpack(format, memory.packed, here, memory.codes);
    kernels.dequantize(format, memory.codes, here * kCell, memory.cell_scales,
                       values + done * kCell);
  }
}

}  // namespace tersum
