#include "codec/kernels/element_slice.h"

#include <algorithm>
#include <cstring>

#include "codec/kernels/code_groups.h"
#include "codec/kernels/shift_sum.h"
#include "codec/kernels/slice_tiles.h"

namespace tersum {
namespace {

// One call's work on a slice, tile by tile.
class SlicePass : public SliceTiles {
 public:
  using SliceTiles::SliceTiles;

  // `is_sum`: of values that were added up in their transformed form. `maxima`: of their blocks;
  // null: not known yet.
  void encode(const float* values, size_t tile, float tensor_scale, bool is_sum, TileMemory& memory,
              std::byte* wire, const uint32_t* maxima = nullptr) const {
    write_scales(values, tile, tensor_scale, is_sum, maxima, memory, scales_of(tile, wire));
    if (coding_.clip != nullptr && tile % kTilesPerMeasured == 0) {
      measure_clip(kernels_, values, padded(tile), *coding_.clip);
    }
    Tile limited;
    if (format_.rule == ScaleRule::kSlice) values = limit_to_levels(values, tile, limited);
    uint8_t* const own_codes = memory.own_codes();
    if (coding_.is_random) {
      const RoundingPlace place = rounding_place(coding_.rounding, coding_.first + first(tile));
      kernels_.quantize_random(format_, place, values, padded(tile), memory.scales, own_codes);
    } else {
      kernels_.quantize(format_, values, padded(tile), memory.scales, own_codes);
    }
    memory.read = own_codes;
    std::byte* const codes = codes_of(tile, wire);
    const size_t groups = values_in(tile) / group_values(format_.packing);
    kernels_.pack(format_, own_codes, groups, codes);
    const size_t packed = groups * group_values(format_.packing);
    if (packed == values_in(tile)) return;
    pack_group(format_, own_codes + packed, values_in(tile) - packed,
               codes + code_bytes(format_, packed));
  }

  // What encode() would send of integers under powers of two: `scales`, and codes in `memory`.
  void quantize(const float* values, size_t tile, TileMemory& memory, std::byte* scales) const {
    write_scales(values, tile, 0, false, nullptr, memory, scales);
    uint8_t* const own_codes = memory.own_codes();
    memory.read = own_codes;
    kernels_.quantize(format_, values, padded(tile), memory.scales, own_codes);
  }

  // As decode_codes(), added to `values`.
  void add_codes(size_t tile, const TileMemory& memory, float* values) const {
    kernels_.dequantize_add(format_, memory.read, padded(tile), memory.scales, values);
  }

  void read(const std::byte* wire, size_t tile, TileMemory& memory) const {
    read_scales(wire, tile, memory);
    read_codes(wire, tile, memory);
  }
  void read_codes(const std::byte* wire, size_t tile, TileMemory& memory) const {
    const std::byte* const codes = codes_of(tile, wire);
    if (format_.packing == Packing::kBytes && padded(tile) == values_in(tile)) {
      memory.read = reinterpret_cast<const uint8_t*>(codes);
      return;
    }
    uint8_t* const own_codes = memory.own_codes();
    memory.read = own_codes;
    const size_t groups = values_in(tile) / group_values(format_.packing);
    kernels_.unpack(format_, codes, groups, own_codes);
    const size_t unpacked = groups * group_values(format_.packing);
    if (unpacked == values_in(tile)) return;
    unpack_group(format_, codes + code_bytes(format_, unpacked), values_in(tile) - unpacked,
                 own_codes + unpacked);
  }

  // What a payload stands for, to an array of values. Loses the values of `work`.
  void decode(const std::byte* wire, size_t tile, TileMemory& memory, float* work,
              void* values) const {
    read_scales(wire, tile, memory);
    if (decodes_nibbles(memory, tile)) {
      return decode_nibbles(codes_of(tile, wire), memory, nullptr, tile, values);
    }
    read_codes(wire, tile, memory);
    store_coded(memory, work, tile, values);
  }

  // The same added to the values of the array `own`, where adds_straight() says so and there is no
  // transform.
  void decode_sum(const std::byte* wire, size_t tile, TileMemory& memory, const void* own,
                  void* values) const {
    read_scales(wire, tile, memory);
    if (has_whole_nibbles(tile)) {
      return decode_nibbles(codes_of(tile, wire), memory, own, tile, values);
    }
    read_codes(wire, tile, memory);
    store_straight(memory, own, tile, values);
  }

  // The largest finite magnitude of a tile, as float32 bits; and to `maxima` that of each block,
  // finite or not.
  uint32_t find_maxima(const float* values, size_t tile, uint32_t (&maxima)[kTileBlocksMax]) const {
    constexpr uint32_t kBeyondNan = kFloatSignBit;
    const size_t blocks = padded(tile) / format_.block;
    kernels_.maxima(values, format_.block, blocks, maxima);
    const size_t filled = round_up(blocks, kMaximaStep);
    std::fill(maxima + blocks, maxima + filled, 0U);
    const auto* const magnitudes = reinterpret_cast<const float*>(maxima);
    const uint32_t largest = kernels_.finite_maximum(magnitudes, filled, kBeyondNan);
    if (largest < format_.overflow_bits) return largest;
    return kernels_.finite_maximum(values, padded(tile), format_.overflow_bits);
  }

  void read_scales(const std::byte* wire, size_t tile, TileMemory& memory) const {
    const bool has_one = tensor_scale_bytes(format_.rule) > 0 && count_ > 0;
    const float tensor_scale = has_one ? read_tensor_scale(wire) : 0.0F;
    const size_t blocks = block_count(format_, values_in(tile));
    kernels_.read_scales(format_, scales_of(tile, wire), blocks, tensor_scale, memory.scales);
    pad_scales(tile, blocks, memory);
  }

  template <class Byte>
  [[nodiscard]] Byte* scales_of(size_t tile, Byte* wire) const {
    return wire + scales_offset(format_) + first(tile) / format_.block * scale_bytes(format_.rule);
  }

  [[nodiscard]] bool needs_tensor_scale() const {
    return format_.rule == ScaleRule::kE4M3Tensor && count_ > 0;
  }

  // Of a slice under one scale, once all its tiles are coded: one that holds something not finite
  // is NaN, and says nothing else. True for such a one.
  [[nodiscard]] bool close_slice(std::byte* wire) const {
    if (format_.rule != ScaleRule::kSlice || count_ == 0) return false;
    const bool is_nan = !coding_.clip->is_finite;
    store_unaligned(wire, is_nan ? float_from_bits(kFloatNan) : coding_.clip->scale);
    if (is_nan) std::memset(wire + codes_offset(format_, count_), 0, code_bytes(format_, count_));
    return is_nan;
  }

 private:
  // Where all levels reach, the values themselves.
  const float* limit_to_levels(const float* values, size_t tile, Tile& limited) const {
    const float most = format_.level_max * coding_.clip->scale;
    if (float_bits(most) >= coding_.clip->absmax_bits) return values;
    std::copy_n(values, padded(tile), limited.values);
    kernels_.limit(most, padded(tile), limited.values);
    return limited.values;
  }

  template <class Byte>
  [[nodiscard]] Byte* codes_of(size_t tile, Byte* wire) const {
    return wire + codes_offset(format_, count_) + code_bytes(format_, first(tile));
  }

  void write_scales(const float* values, size_t tile, float tensor_scale, bool is_sum,
                    const uint32_t* known_maxima, TileMemory& memory, std::byte* to) const {
    uint32_t maxima[kTileBlocksMax];
    const size_t blocks = block_count(format_, values_in(tile));
    if (known_maxima != nullptr) {
      std::copy_n(known_maxima, blocks, maxima);
    } else {
      kernels_.maxima(values, format_.block, padded(tile) / format_.block, maxima);
    }
    const TileTransform& transform = coding_.transform;
    if (transform.is_any() && (is_sum || coding_.added.is_any() || transform.looks_at_values)) {
      find_overflows(values, tile, maxima);
    }
    if (coding_.clip != nullptr) {
      measure_maxima(maxima, blocks, format_.overflow_bits, *coding_.clip);
    }
    if (format_.rule == ScaleRule::kSlice) {
      std::fill_n(memory.scales, blocks, make_block_scale(coding_.clip->scale));
    } else if (format_.rule == ScaleRule::kBf16Mean) {
      // The zeros behind a short block add nothing to its sum.
      float sums[kTileBlocksMax];
      kernels_.magnitudes(values, format_.block, blocks, sums);
      kernels_.choose_means(format_, maxima, sums, values_in(tile), to, memory.scales);
    } else {
      kernels_.choose_scales(format_, maxima, blocks, tensor_scale, to, memory.scales);
    }
    pad_scales(tile, blocks, memory);
  }

  // Blocks that only the granule has.
  void pad_scales(size_t tile, size_t blocks, TileMemory& memory) const {
    for (size_t b = blocks; b < padded(tile) / format_.block; ++b) memory.scales[b] = {};
  }
};

// The sum of a combine, tile by tile, in the order of the contributions.
class SliceSum {
 public:
  SliceSum(const SlicePass& pass, const SliceCoding& coding, const CombineArgs& args)
      : pass_(pass), coding_(coding), args_(args) {}

  // Transformed, as it is coded again.
  void tile(size_t tile, TileMemory& memory, float* term, float* sum) const {
    const size_t count = pass_.values_in(tile);
    if (coding_.format.sums_codes) {
      add_shifted(tile, memory, term, sum);
    } else {
      add_in_order(tile, memory, term, sum);
    }
    coding_.kernels.finish(args_.finish, round_up(count, kTilePad), sum);
    std::fill(sum + count, sum + round_up(round_up(count, coding_.format.granule), kTilePad), 0.0F);
  }

  // To the array of values: with a transform the wires' sum is turned back, and own values are
  // added as they are, which saves turning those there and back.
  void store(size_t tile, TileMemory& memory, float* term, float* sum) const {
    if (!coding_.transform.is_any()) return store_without(tile, memory, term, sum);
    if (coding_.format.sums_codes) {
      const SumRange scales = add_shifted(tile, memory, term, sum);
      return pass_.store_sum(sum, scales, nullptr, args_.finish, tile, args_.values_out);
    }
    if (args_.wire_count == 0) {
      return pass_.store_own(args_.own, args_.finish, tile, sum, args_.values_out);
    }
    if (args_.wire_count == 1) {
      pass_.read(args_.wires[0], tile, memory);
      return pass_.store_one(memory, pass_.range_of(memory, tile), sum, args_.own, args_.finish,
                             tile, args_.values_out);
    }
    bool begun = false;
    SumRange scales;
    for (size_t w = 0; w < args_.wire_count; ++w) {
      add_wire(w, tile, memory, begun, sum);
      scales.add(pass_.range_of(memory, tile));
    }
    pass_.store_sum(sum, scales, args_.own, args_.finish, tile, args_.values_out);
  }

 private:
  // The same without a transform.
  void store_without(size_t tile, TileMemory& memory, float* term, float* sum) const {
    if (args_.wire_count == 1 && args_.own != nullptr && !coding_.format.sums_codes &&
        pass_.adds_straight(args_.own, args_.finish, tile)) {
      return pass_.decode_sum(args_.wires[0], tile, memory, args_.own, args_.values_out);
    }
    this->tile(tile, memory, term, sum);
    pass_.store_plain(sum, {}, tile, args_.values_out);
  }

  void add_in_order(size_t tile, TileMemory& memory, float* term, float* sum) const {
    bool begun = false;
    for (size_t w = 0; w <= args_.wire_count; ++w) {
      if (args_.own != nullptr && w == args_.own_index) add_own(tile, begun, term, sum);
      if (w < args_.wire_count) add_wire(w, tile, memory, begun, sum);
    }
  }

  // Own values are quantized as a wire's are: who owns a chunk makes no difference then.
  SumRange add_shifted(size_t tile, TileMemory& memory, float* term, float* sum) const {
    const size_t contributions = args_.wire_count + (args_.own != nullptr ? 1 : 0);
    ShiftSum total(coding_.format, coding_.kernels, contributions);
    TileMemory own(coding_.format, args_.count);
    std::byte own_scales[kTileBlocksMax];
    total.begin(pass_.padded(tile));
    if (args_.own != nullptr) {
      pass_.quantize(pass_.load(args_.own, tile, term), tile, own, own_scales);
      total.align(own_scales);
    }
    for (size_t w = 0; w < args_.wire_count; ++w) {
      total.align(pass_.scales_of(tile, args_.wires[w]));
    }
    if (args_.own != nullptr) total.add(own.read, own_scales);
    for (size_t w = 0; w < args_.wire_count; ++w) {
      pass_.read_codes(args_.wires[w], tile, memory);
      total.add(memory.read, pass_.scales_of(tile, args_.wires[w]));
    }
    const float largest = total.largest_scale();
    SumRange scales;
    scales.largest = static_cast<double>(contributions) * double{largest};
    scales.has_nan = largest != largest;
    total.finish(sum);
    return scales;
  }

  void add_wire(size_t wire, size_t tile, TileMemory& memory, bool& begun, float* sum) const {
    pass_.read(args_.wires[wire], tile, memory);
    if (begun) {
      pass_.add_codes(tile, memory, sum);
    } else {
      pass_.decode_codes(tile, memory, sum);
    }
    begun = true;
  }

  void add_own(size_t tile, bool& begun, float* term, float* sum) const {
    const size_t count = round_up(pass_.values_in(tile), kTilePad);
    const float* const own = pass_.load(args_.own, tile, begun ? term : sum);
    if (begun) {
      coding_.kernels.add(own, count, sum);
    } else if (own != sum) {
      std::memcpy(sum, own, count * sizeof(float));
    }
    begun = true;
  }

  const SlicePass& pass_;
  const SliceCoding& coding_;
  const CombineArgs& args_;
};

// A slice under a tensor scale is gone through twice: the scale follows from all values. What was
// made of its last tiles is kept for the second time; most slices have no others.
class ScaledSlice {
 public:
  ScaledSlice(const SlicePass& pass, size_t tiles) : pass_(pass), tiles_(tiles) {}

  // `make`(t, to): the values of tile t, at `to` or where they lie already.
  template <class Make>
  float tensor_scale(const ElementFormat& format, const Make& make, std::byte* wire) {
    uint32_t maximum = 0;
    for (size_t t = 0; t < tiles_; ++t) {
      const float* const values = make(t, kept_[t % kKept].values);
      made_[t % kKept] = values;
      maximum = std::max(maximum, pass_.find_maxima(values, t, maxima_[t % kMaximaKept]));
    }
    const float scale = choose_tensor_scale(format, maximum);
    store_unaligned(wire, scale);
    return scale;
  }

  template <class Make>
  const float* values(size_t t, const Make& make, float* to) const {
    return t + kKept >= tiles_ ? made_[t % kKept] : make(t, to);
  }
  // Of those; null: not kept.
  [[nodiscard]] const uint32_t* maxima(size_t t) const {
    return t + kMaximaKept >= tiles_ ? maxima_[t % kMaximaKept] : nullptr;
  }

 private:
  static constexpr size_t kKept = 12;        // 36,864 values
  static constexpr size_t kMaximaKept = 24;  // of 73,728 values

  const SlicePass& pass_;
  size_t tiles_;
  Tile kept_[kKept];
  const float* made_[kKept] = {};
  uint32_t maxima_[kMaximaKept][kTileBlocksMax];
};

// Not inlined, here and below: what is kept would be on the stack of every other format, too.
[[gnu::noinline]] void encode_scaled(const SliceCoding& coding, const SlicePass& pass,
                                     TileMemory& memory, const void* values, std::byte* wire) {
  const auto make = [&](size_t t, float* to) { return pass.load(values, t, to); };
  ScaledSlice slice(pass, pass.tiles());
  const float tensor_scale = slice.tensor_scale(coding.format, make, wire);
  Tile tile;
  for (size_t t = 0; t < pass.tiles(); ++t) {
    pass.encode(slice.values(t, make, tile.values), t, tensor_scale, false, memory, wire,
                slice.maxima(t));
  }
}

// The sums of combine_elements() to the wire, and to values, if there are any.
[[gnu::noinline]] void combine_scaled(const SliceCoding& coding, const CombineArgs& args,
                                      const SlicePass& pass, const SliceSum& sum,
                                      TileMemory& memory) {
  Tile term;
  const auto make = [&](size_t t, float* to) {
    sum.tile(t, memory, term.values, to);
    return to;
  };
  ScaledSlice slice(pass, pass.tiles());
  const float tensor_scale = slice.tensor_scale(coding.format, make, args.wire_out);
  Tile tile;
  for (size_t t = 0; t < pass.tiles(); ++t) {
    pass.encode(slice.values(t, make, tile.values), t, tensor_scale, true, memory, args.wire_out,
                slice.maxima(t));
    if (args.values_out != nullptr) pass.store_coded(memory, tile.values, t, args.values_out);
  }
}

}  // namespace

void encode_elements(const SliceCoding& coding, const void* values, size_t count, std::byte* wire) {
  const SlicePass pass(coding, count);
  TileMemory memory(coding.format, count);
  if (pass.needs_tensor_scale()) return encode_scaled(coding, pass, memory, values, wire);
  Tile tile;
  for (size_t t = 0; t < pass.tiles(); ++t) {
    pass.encode(pass.load(values, t, tile.values), t, 0, false, memory, wire);
  }
  static_cast<void>(pass.close_slice(wire));
}

void try_elements(std::span<const SliceTrial> trials, const float* values, size_t count) {
  const ElementFormat& format = trials.front().coding.format;
  TileMemory memory(format, count);
  Tile turned;
  Tile work;
  Tile decoded;
  uint32_t maxima[kTileBlocksMax];
  for (size_t begin = 0; begin < count; begin += kTileValues) {
    const size_t part = std::min(kTileValues, count - begin);
    const float* const from = values + begin;
    const SlicePass shared(trials.front().coding, count, begin, part);
    const float* const to_code = shared.load(from, 0, turned.values);
    shared.find_maxima(to_code, 0, maxima);
    for (const SliceTrial& trial : trials) {
      const SlicePass pass(trial.coding, count, begin, part);
      pass.encode(to_code, 0, 0, false, memory, trial.wire, maxima);
      pass.store_coded(memory, work.values, 0, decoded.values);
      trial.coding.kernels.squared_errors(from, decoded.values, format.block, part / format.block,
                                          trial.errors + begin / format.block);
    }
  }
}

void decode_elements(const SliceCoding& coding, const std::byte* wire, size_t count, size_t begin,
                     size_t part, void* values) {
  const SlicePass pass(coding, count, begin, part);
  TileMemory memory(coding.format, part);
  Tile tile;
  for (size_t t = 0; t < pass.tiles(); ++t) {
    pass.decode(wire, t, memory, tile.values, values);
  }
}

void combine_elements(const SliceCoding& coding, const CombineArgs& args) {
  const SlicePass pass(coding, args.count);
  const SliceSum sum(pass, coding, args);
  TileMemory memory(coding.format, args.count);
  if (args.wire_out != nullptr && pass.needs_tensor_scale()) {
    return combine_scaled(coding, args, pass, sum, memory);
  }
  Tile term;
  Tile result;
  for (size_t t = 0; t < pass.tiles(); ++t) {
    if (args.wire_out == nullptr) {
      sum.store(t, memory, term.values, result.values);
      continue;
    }
    sum.tile(t, memory, term.values, result.values);
    pass.encode(result.values, t, 0, true, memory, args.wire_out);
    if (args.values_out == nullptr) continue;
    pass.store_coded(memory, result.values, t, args.values_out);
  }
  if (args.wire_out == nullptr || !pass.close_slice(args.wire_out)) return;
  for (size_t t = 0; t < pass.tiles() && args.values_out != nullptr; ++t) {
    pass.store_nan(t, result.values, args.values_out);
  }
}

}  // namespace tersum
