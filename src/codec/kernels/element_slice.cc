#include "codec/kernels/element_slice.h"

#include <algorithm>
#include <limits>

#include "codec/kernels/element_reference.h"

namespace tersum {
namespace {

// What one tile of a slice is coded in.
struct TileMemory {
  alignas(64) float values[kTileMemory];
  alignas(64) uint8_t codes[kTileMemory] = {};
  BlockScale scales[kTileBlocksMax];
};

constexpr size_t round_up(size_t count, size_t to) { return (count + to - 1) / to * to; }

// One call's work on a slice, tile by tile.
class SlicePass {
 public:
  SlicePass(const SliceCoding& coding, size_t count)
      : coding_(coding), format_(coding.format), kernels_(coding.kernels), count_(count) {}

  [[nodiscard]] size_t tiles() const { return (count_ + kTileValues - 1) / kTileValues; }
  [[nodiscard]] size_t first(size_t tile) const { return tile * kTileValues; }
  [[nodiscard]] size_t values_in(size_t tile) const {
    return std::min(kTileValues, count_ - first(tile));
  }

  // The values of the array, transformed; zeros behind them.
  void load(const void* values, size_t tile, float* to) const {
    const size_t count = values_in(tile);
    kernels_.load(format_.kind, values, first(tile), count, to);
    std::fill(to + count, to + round_up(padded(tile), kTilePad), 0.0F);
    const TileTransform& transform = coding_.transform;
    if (transform.diagonal != nullptr) {
      kernels_.multiply(transform.diagonal + phase(tile), padded(tile), to);
      std::fill(to + count, to + padded(tile), 0.0F);
    }
    if (transform.signs != nullptr) {
      kernels_.rotate(transform.signs, format_.block, whole_blocks(tile), to);
    }
  }

  // Undoes the transform, in place. What was `coded` was finite in the value type, or is NaN: the
  // error of a code must not take it beyond.
  void store(float* from, size_t tile, bool coded, void* values) const {
    if (coding_.transform.is_any()) {
      uint32_t maxima[kTileBlocksMax];
      kernels_.maxima(from, format_.block, padded(tile) / format_.block, maxima);
      undo(tile, maxima, kUndamp, from);
      if (coded) {
        kernels_.limit(float_from_bits(format_.overflow_bits - 1), padded(tile), from);
      }
    }
    kernels_.store(format_.kind, from, values_in(tile), values, first(tile));
  }

  void encode(size_t tile, float tensor_scale, TileMemory& memory, std::byte* wire) const {
    write_scales(tile, tensor_scale, memory, wire);
    kernels_.quantize(format_, memory.values, padded(tile), memory.scales, memory.codes);
    std::byte* const codes = codes_of(tile, wire);
    const size_t groups = values_in(tile) / group_values(format_.packing);
    kernels_.pack(format_, memory.codes, groups, codes);
    const size_t packed = groups * group_values(format_.packing);
    if (packed == values_in(tile)) return;
    pack_group(format_, memory.codes + packed, values_in(tile) - packed,
               codes + code_bytes(format_, packed));
  }

  // What the codes in `memory` stand for, to its values.
  void decode_codes(size_t tile, TileMemory& memory) const {
    kernels_.dequantize(format_, memory.codes, padded(tile), memory.scales, memory.values);
  }

  void decode(const std::byte* wire, size_t tile, TileMemory& memory) const {
    read_scales(wire, tile, memory);
    const std::byte* const codes = codes_of(tile, wire);
    const size_t groups = values_in(tile) / group_values(format_.packing);
    kernels_.unpack(format_, codes, groups, memory.codes);
    const size_t unpacked = groups * group_values(format_.packing);
    if (unpacked < values_in(tile)) {
      unpack_group(format_, codes + code_bytes(format_, unpacked), values_in(tile) - unpacked,
                   memory.codes + unpacked);
    }
    decode_codes(tile, memory);
  }

  // The largest finite magnitude of a tile, as float32 bits.
  [[nodiscard]] uint32_t finite_maximum(const float* values, size_t tile) const {
    uint32_t largest = 0;
    for (size_t i = 0; i < values_in(tile); ++i) {
      const uint32_t bits = float_bits(values[i]) & ~kFloatSignBit;
      if (bits < format_.overflow_bits) largest = std::max(largest, bits);
    }
    return largest;
  }

  [[nodiscard]] bool needs_tensor_scale() const {
    return format_.rule == ScaleRule::kE4M3Tensor && count_ > 0;
  }

 private:
  [[nodiscard]] size_t padded(size_t tile) const {
    return round_up(values_in(tile), format_.granule);
  }
  // A partial block is not rotated: all of its transform would have to travel.
  [[nodiscard]] size_t whole_blocks(size_t tile) const {
    return values_in(tile) / format_.block * format_.block;
  }
  [[nodiscard]] size_t phase(size_t tile) const {
    return (coding_.first + first(tile)) % coding_.transform.period;
  }
  template <class Byte>
  [[nodiscard]] Byte* scales_of(size_t tile, Byte* wire) const {
    return wire + scales_offset(format_) + first(tile) / format_.block * scale_bytes(format_.rule);
  }
  template <class Byte>
  [[nodiscard]] Byte* codes_of(size_t tile, Byte* wire) const {
    return wire + codes_offset(format_, count_) + code_bytes(format_, first(tile));
  }

  // Sums on the way back reach `reach` times the largest magnitude: where float32 could overflow,
  // they are taken of smaller numbers, lest an infinity become a NaN.
  static constexpr float kDamp = 0x1p-12F;
  static constexpr float kUndamp = 0x1p12F;
  [[nodiscard]] bool is_damped(uint32_t maximum) const {
    constexpr double kLargest = std::numeric_limits<float>::max();
    return maximum < kFloatInfinity &&
           coding_.transform.reach * double{float_from_bits(maximum)} > kLargest / 2;
  }
  void scale_damped(size_t tile, const uint32_t* maxima, float factor, float* values) const {
    for (size_t b = 0; b < padded(tile) / format_.block; ++b) {
      if (!is_damped(maxima[b])) continue;
      float* const block = values + b * format_.block;
      std::transform(block, block + format_.block, block, [=](float x) { return x * factor; });
    }
  }

  // `maxima`: of the blocks of `values`. Damped blocks end multiplied by `undamp`.
  void undo(size_t tile, const uint32_t* maxima, float undamp, float* values) const {
    const TileTransform& transform = coding_.transform;
    scale_damped(tile, maxima, kDamp, values);
    if (transform.undo_signs != nullptr) {
      kernels_.unrotate(transform.undo_signs, format_.block, whole_blocks(tile), values);
    }
    if (transform.undo_diagonal != nullptr) {
      kernels_.multiply(transform.undo_diagonal + phase(tile), padded(tile), values);
    }
    scale_damped(tile, maxima, undamp, values);
  }

  // A sum may be finite here and no finite number of the value type once the transform is undone;
  // that block counts as one with an infinity. Only blocks of the largest numbers are looked at.
  void find_overflows(size_t tile, const TileMemory& memory, uint32_t* maxima) const {
    const double largest = float_from_bits(format_.overflow_bits - 1);
    // The transform's own rounding is no overflow.
    const double limit = largest * (1 + 0x1p-18);
    const size_t blocks = block_count(format_, values_in(tile));
    const auto risky = [&](uint32_t bits) {
      return bits < kFloatInfinity &&
             coding_.transform.reach * double{float_from_bits(bits)} > largest;
    };
    if (std::none_of(maxima, maxima + blocks, risky)) return;
    alignas(64) float undone[kTileMemory];
    std::copy_n(memory.values, round_up(padded(tile), kTilePad), undone);
    undo(tile, maxima, 1, undone);
    for (size_t b = 0; b < blocks; ++b) {
      uint32_t found = 0;
      kernels_.maxima(undone + b * format_.block, format_.block, 1, &found);
      const double undamp = is_damped(maxima[b]) ? kUndamp : 1;
      if (risky(maxima[b]) && undamp * double{float_from_bits(found)} > limit) {
        maxima[b] = kFloatInfinity;
      }
    }
  }

  void write_scales(size_t tile, float tensor_scale, TileMemory& memory, std::byte* wire) const {
    uint32_t maxima[kTileBlocksMax];
    const size_t blocks = block_count(format_, values_in(tile));
    kernels_.maxima(memory.values, format_.block, padded(tile) / format_.block, maxima);
    if (coding_.transform.is_any()) find_overflows(tile, memory, maxima);
    std::byte* to = scales_of(tile, wire);
    for (size_t b = 0; b < blocks; ++b, to += scale_bytes(format_.rule)) {
      const size_t at = b * format_.block;
      const float scale =
          format_.rule == ScaleRule::kBf16Mean
              ? choose_mean_scale(format_, maxima[b], memory.values + at,
                                  std::min<size_t>(format_.block, values_in(tile) - at), to)
              : choose_scale(format_, maxima[b], tensor_scale, to);
      memory.scales[b] = make_block_scale(scale);
    }
    pad_scales(tile, blocks, memory);
  }

  void read_scales(const std::byte* wire, size_t tile, TileMemory& memory) const {
    const float tensor_scale = needs_tensor_scale() ? read_tensor_scale(wire) : 0.0F;
    const size_t blocks = block_count(format_, values_in(tile));
    const std::byte* from = scales_of(tile, wire);
    for (size_t b = 0; b < blocks; ++b, from += scale_bytes(format_.rule)) {
      memory.scales[b].scale = read_scale(format_, from, tensor_scale);
    }
    pad_scales(tile, blocks, memory);
  }

  // Blocks that only the granule has.
  void pad_scales(size_t tile, size_t blocks, TileMemory& memory) const {
    for (size_t b = blocks; b < padded(tile) / format_.block; ++b) memory.scales[b] = {};
  }

  const SliceCoding& coding_;
  const ElementFormat& format_;
  const ElementKernels& kernels_;
  size_t count_;
};

// The sum of a combine, tile by tile, in the order of the contributions.
class SliceSum {
 public:
  SliceSum(const SlicePass& pass, const SliceCoding& coding, const CombineArgs& args)
      : pass_(pass), coding_(coding), args_(args) {}

  void tile(size_t tile, TileMemory& term, float* sum) const {
    bool begun = false;
    const size_t count = pass_.values_in(tile);
    const auto take = [&](const float* values) {
      if (begun) {
        coding_.kernels.add(values, round_up(count, kTilePad), sum);
      } else {
        std::copy_n(values, round_up(count, kTilePad), sum);
      }
      begun = true;
    };
    for (size_t w = 0; w <= args_.wire_count; ++w) {
      if (args_.own != nullptr && w == args_.own_index) {
        pass_.load(args_.own, tile, term.values);
        take(term.values);
      }
      if (w == args_.wire_count) break;
      pass_.decode(args_.wires[w], tile, term);
      take(term.values);
    }
    coding_.kernels.finish(args_.finish, round_up(count, kTilePad), sum);
    std::fill(sum + count, sum + round_up(round_up(count, coding_.format.granule), kTilePad), 0.0F);
  }

 private:
  const SlicePass& pass_;
  const SliceCoding& coding_;
  const CombineArgs& args_;
};

float store_tensor_scale(const ElementFormat& format, uint32_t maximum, std::byte* wire) {
  const float scale = choose_tensor_scale(format, maximum);
  store_unaligned(wire, scale);
  return scale;
}

}  // namespace

void encode_elements(const SliceCoding& coding, const void* values, size_t count, std::byte* wire) {
  const SlicePass pass(coding, count);
  TileMemory memory;
  float tensor_scale = 0;
  if (pass.needs_tensor_scale()) {
    uint32_t maximum = 0;
    for (size_t t = 0; t < pass.tiles(); ++t) {
      pass.load(values, t, memory.values);
      maximum = std::max(maximum, pass.finite_maximum(memory.values, t));
    }
    tensor_scale = store_tensor_scale(coding.format, maximum, wire);
  }
  for (size_t t = 0; t < pass.tiles(); ++t) {
    pass.load(values, t, memory.values);
    pass.encode(t, tensor_scale, memory, wire);
  }
}

void decode_elements(const SliceCoding& coding, const std::byte* wire, size_t count, void* values) {
  const SlicePass pass(coding, count);
  TileMemory memory;
  for (size_t t = 0; t < pass.tiles(); ++t) {
    pass.decode(wire, t, memory);
    pass.store(memory.values, t, true, values);
  }
}

void combine_elements(const SliceCoding& coding, const CombineArgs& args) {
  const SlicePass pass(coding, args.count);
  const SliceSum sum(pass, coding, args);
  TileMemory term;
  TileMemory result;
  float tensor_scale = 0;
  if (args.wire_out != nullptr && pass.needs_tensor_scale()) {
    uint32_t maximum = 0;
    for (size_t t = 0; t < pass.tiles(); ++t) {
      sum.tile(t, term, result.values);
      maximum = std::max(maximum, pass.finite_maximum(result.values, t));
    }
    tensor_scale = store_tensor_scale(coding.format, maximum, args.wire_out);
  }
  for (size_t t = 0; t < pass.tiles(); ++t) {
    sum.tile(t, term, result.values);
    if (args.wire_out != nullptr) {
      pass.encode(t, tensor_scale, result, args.wire_out);
      if (args.values_out == nullptr) continue;
      pass.decode_codes(t, result);
    }
    pass.store(result.values, t, args.wire_out != nullptr, args.values_out);
  }
}

}  // namespace tersum
