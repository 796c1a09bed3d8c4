#include "codec/kernels/element_slice.h"

#include <algorithm>
#include <cstring>
#include <limits>

#include "codec/kernels/element_reference.h"
#include "codec/kernels/shift_sum.h"

namespace tersum {
namespace {

// What one tile of a slice is coded in. Cleared as far as slices of `count` values reach: for one
// short block the rest would take longer than the block.
struct TileMemory {
  TileMemory(const ElementFormat& format, size_t count) {
    const size_t used = std::min(round_up(count, format.granule), kTileValues) + kTilePad;
    std::memset(codes, 0, used);
    std::fill_n(scales, used / format.block, BlockScale());
  }

  alignas(64) uint8_t codes[kTileMemory];
  BlockScale scales[kTileBlocksMax];
};
struct Tile {
  alignas(64) float values[kTileMemory];
};

// Bounds on what a sum of decoded blocks may hold.
struct ScaleRange {
  double largest = 0;  // of each contribution, added up
  bool has_nan = false;

  void add(const TileMemory& memory, size_t blocks) {
    float most = 0;
    for (size_t b = 0; b < blocks; ++b) {
      const float scale = memory.scales[b].scale;
      has_nan = has_nan || scale != scale;
      most = std::max(most, scale);
    }
    largest += most;
  }
};

// One call's work on a slice, tile by tile.
class SlicePass {
 public:
  SlicePass(const SliceCoding& coding, size_t count) : SlicePass(coding, count, 0, count) {}
  // Of values begin..begin+part-1 only, which is all that arrays of values hold then.
  SlicePass(const SliceCoding& coding, size_t count, size_t begin, size_t part)
      : coding_(coding),
        format_(coding.format),
        kernels_(coding.kernels),
        count_(count),
        begin_(begin),
        part_(part) {}

  [[nodiscard]] size_t tiles() const { return (part_ + kTileValues - 1) / kTileValues; }
  // Where a tile's values are in their array, and in the slice.
  [[nodiscard]] size_t place(size_t tile) const { return tile * kTileValues; }
  [[nodiscard]] size_t first(size_t tile) const { return begin_ + place(tile); }
  [[nodiscard]] size_t values_in(size_t tile) const {
    return std::min(kTileValues, part_ - place(tile));
  }

  // The values of the array, transformed, with zeros behind them: in `tile`, or where they lie if
  // nothing has to be done to them.
  const float* load(const void* values, size_t tile, float* to) const {
    const size_t count = values_in(tile);
    const TileTransform& transform = coding_.transform;
    const bool plain = format_.kind == ValueKind::kFloat32 && padded(tile) % kTilePad == 0 &&
                       padded(tile) == count && !coding_.added.is_any();
    const float* from = to;
    if (plain) {
      from = static_cast<const float*>(values) + place(tile);
    } else {
      kernels_.load(format_.kind, values, place(tile), count, to);
      add_to(tile, to);
      std::fill(to + count, to + round_up(padded(tile), kTilePad), 0.0F);
    }
    if (!transform.is_any()) return from;
    const size_t whole = whole_blocks(tile);
    const float* const diagonal = at_phase(transform.diagonal, tile);
    if (transform.product != nullptr) {
      kernels_.multiply_blocks(*transform.product, {diagonal}, from, whole, to);
    } else {
      kernels_.rotate({transform.signs, diagonal}, from, format_.block, whole, to);
    }
    multiply_rest(diagonal, tile, to);
    return to;
  }

  // Stores the sum of `from` with the transform undone, the values of the array `own` (null: none),
  // divided as `finish` says. `scales`: sum of the largest scales of what was added up in `from`.
  void store_sum(float* from, const ScaleRange& scales, const void* own, const Finish& finish,
                 size_t tile, void* values) const {
    const bool safe = is_safe(scales);
    const bool as_is = own == nullptr || !coding_.added.is_any();
    if (safe && as_is && goes_straight(tile) && !finish.divides()) {
      unrotate(from, tile, static_cast<const float*>(own), static_cast<float*>(values));
      return;
    }
    if (safe) {
      undo(tile, nullptr, 1, from);
    } else {
      undo_careful(from, tile);
    }
    add_plain(own, tile, from);
    store_plain(from, finish, tile, values);
  }

  // The same where there is nothing but the array.
  void store_own(const void* own, const Finish& finish, size_t tile, float* work,
                 void* values) const {
    load_plain(own, tile, work);
    store_plain(work, finish, tile, values);
  }

  // A sum of what needs no undoing.
  void store_plain(float* from, const Finish& finish, size_t tile, void* values) const {
    kernels_.finish(finish, round_up(values_in(tile), kTilePad), from);
    kernels_.store(format_.kind, from, values_in(tile), values, place(tile));
  }

  // The same for what the scales and codes in `memory` stand for: it was finite in the value type,
  // or is NaN, and the error of a code must not take it beyond.
  void store_coded(const TileMemory& memory, float* from, size_t tile, void* values) const {
    if (!coding_.transform.is_any()) return store_plain(from, {}, tile, values);
    ScaleRange scales;
    scales.add(memory, block_count(format_, values_in(tile)));
    if (is_safe(scales) && goes_straight(tile)) {
      return unrotate(from, tile, nullptr, static_cast<float*>(values));
    }
    if (is_safe(scales)) {
      undo(tile, nullptr, 1, from);
    } else {
      undo_careful(from, tile);
      kernels_.limit(float_from_bits(format_.overflow_bits - 1), padded(tile), from);
    }
    kernels_.store(format_.kind, from, values_in(tile), values, place(tile));
  }

  // `is_sum`: of values that were added up in their transformed form.
  void encode(const float* values, size_t tile, float tensor_scale, bool is_sum, TileMemory& memory,
              std::byte* wire) const {
    write_scales(values, tile, tensor_scale, is_sum, memory, scales_of(tile, wire));
    if (coding_.clip != nullptr && tile % kTilesPerMeasured == 0) {
      measure_clip(kernels_, values, padded(tile), *coding_.clip);
    }
    Tile limited;
    if (format_.rule == ScaleRule::kSlice) values = limit_to_levels(values, tile, limited);
    if (coding_.is_random) {
      const RoundingPlace place = rounding_place(coding_.rounding, coding_.first + first(tile));
      kernels_.quantize_random(format_, place, values, padded(tile), memory.scales, memory.codes);
    } else {
      kernels_.quantize(format_, values, padded(tile), memory.scales, memory.codes);
    }
    std::byte* const codes = codes_of(tile, wire);
    const size_t groups = values_in(tile) / group_values(format_.packing);
    kernels_.pack(format_, memory.codes, groups, codes);
    const size_t packed = groups * group_values(format_.packing);
    if (packed == values_in(tile)) return;
    pack_group(format_, memory.codes + packed, values_in(tile) - packed,
               codes + code_bytes(format_, packed));
  }

  // What encode() would send of integers under powers of two: `scales`, and codes in `memory`.
  void quantize(const float* values, size_t tile, TileMemory& memory, std::byte* scales) const {
    write_scales(values, tile, 0, false, memory, scales);
    kernels_.quantize(format_, values, padded(tile), memory.scales, memory.codes);
  }

  // What the codes in `memory` stand for.
  void decode_codes(size_t tile, const TileMemory& memory, float* values) const {
    kernels_.dequantize(format_, memory.codes, padded(tile), memory.scales, values);
  }
  void add_codes(size_t tile, const TileMemory& memory, float* values) const {
    kernels_.dequantize_add(format_, memory.codes, padded(tile), memory.scales, values);
  }

  void read(const std::byte* wire, size_t tile, TileMemory& memory) const {
    read_scales(wire, tile, memory);
    read_codes(wire, tile, memory);
  }
  void read_codes(const std::byte* wire, size_t tile, TileMemory& memory) const {
    const std::byte* const codes = codes_of(tile, wire);
    const size_t groups = values_in(tile) / group_values(format_.packing);
    kernels_.unpack(format_, codes, groups, memory.codes);
    const size_t unpacked = groups * group_values(format_.packing);
    if (unpacked == values_in(tile)) return;
    unpack_group(format_, codes + code_bytes(format_, unpacked), values_in(tile) - unpacked,
                 memory.codes + unpacked);
  }

  // The largest finite magnitude of a tile, as float32 bits.
  [[nodiscard]] uint32_t finite_maximum(const float* values, size_t tile) const {
    uint32_t maxima[kTileBlocksMax];
    const size_t blocks = padded(tile) / format_.block;
    kernels_.maxima(values, format_.block, blocks, maxima);
    uint32_t largest = 0;
    for (size_t b = 0; b < blocks; ++b) {
      const float* const block = values + b * format_.block;
      largest = std::max(largest,
                         maxima[b] < format_.overflow_bits ? maxima[b] : finite_maximum_of(block));
    }
    return largest;
  }
  [[nodiscard]] uint32_t finite_maximum_of(const float* block) const {
    uint32_t largest = 0;
    for (size_t i = 0; i < format_.block; ++i) {
      const uint32_t bits = float_bits(block[i]) & ~kFloatSignBit;
      if (bits < format_.overflow_bits) largest = std::max(largest, bits);
    }
    return largest;
  }

  void read_scales(const std::byte* wire, size_t tile, TileMemory& memory) const {
    const bool has_one = tensor_scale_bytes(format_.rule) > 0 && count_ > 0;
    const float tensor_scale = has_one ? read_tensor_scale(wire) : 0.0F;
    const size_t blocks = block_count(format_, values_in(tile));
    tersum::read_scales(format_, scales_of(tile, wire), blocks, tensor_scale, memory.scales);
    pad_scales(tile, blocks, memory);
  }

  template <class Byte>
  [[nodiscard]] Byte* scales_of(size_t tile, Byte* wire) const {
    return wire + scales_offset(format_) + first(tile) / format_.block * scale_bytes(format_.rule);
  }
  // Values of the blocks that a tile's values are in.
  [[nodiscard]] size_t padded(size_t tile) const {
    return round_up(values_in(tile), format_.granule);
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
  void store_nan(size_t tile, float* work, void* values) const {
    std::fill_n(work, round_up(values_in(tile), kTilePad), float_from_bits(kFloatNan));
    kernels_.store(format_.kind, work, values_in(tile), values, place(tile));
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

  // A partial block is not rotated: all of its transform would have to travel.
  [[nodiscard]] size_t whole_blocks(size_t tile) const {
    return values_in(tile) / format_.block * format_.block;
  }
  [[nodiscard]] size_t phase(size_t tile) const {
    return (coding_.first + first(tile)) % coding_.transform.period;
  }
  template <class Byte>
  [[nodiscard]] Byte* codes_of(size_t tile, Byte* wire) const {
    return wire + codes_offset(format_, count_) + code_bytes(format_, first(tile));
  }

  // Whole blocks of float32: they need no more than the transform.
  [[nodiscard]] bool goes_straight(size_t tile) const {
    return format_.kind == ValueKind::kFloat32 && whole_blocks(tile) == values_in(tile);
  }
  // No NaN, and no overflow on the way back.
  [[nodiscard]] bool is_safe(const ScaleRange& scales) const {
    const double limit = float_from_bits(format_.overflow_bits - 1);
    return format_.finite_levels && !scales.has_nan &&
           coding_.transform.reach * format_.level_max * scales.largest < limit / 2;
  }

  [[nodiscard]] const float* at_phase(const float* diagonal, size_t tile) const {
    return diagonal == nullptr ? nullptr : diagonal + phase(tile);
  }
  // The diagonal alone, where a partial block is not rotated.
  void multiply_rest(const float* diagonal, size_t tile, float* values) const {
    const size_t whole = whole_blocks(tile);
    if (diagonal == nullptr || whole == padded(tile)) return;
    kernels_.multiply(diagonal + whole, padded(tile) - whole, values + whole);
  }
  // Whole blocks to `values`, and `terms` of them added; both are arrays as the caller's.
  void unrotate(float* from, size_t tile, const float* terms, float* values) const {
    turn_back(from, tile, terms == nullptr ? nullptr : terms + place(tile), values + place(tile));
  }

  // Whole blocks, without what +flatten does to the rest.
  void turn_back(float* from, size_t tile, const float* terms, float* to) const {
    const TileTransform& transform = coding_.transform;
    const float* const diagonal = at_phase(transform.undo_diagonal, tile);
    const size_t whole = whole_blocks(tile);
    if (transform.undo_product != nullptr) {
      kernels_.multiply_blocks(*transform.undo_product, {nullptr, diagonal, terms}, from, whole,
                               to);
    } else {
      kernels_.unrotate({transform.undo_signs, diagonal, terms}, from, format_.block, whole, to);
    }
  }

  void add_to(size_t tile, float* values) const {
    if (!coding_.added.is_any()) return;
    add_terms(kernels_, format_.kind, coding_.added, coding_.first + first(tile), values_in(tile),
              values);
  }
  void load_plain(const void* own, size_t tile, float* values) const {
    kernels_.load(format_.kind, own, place(tile), values_in(tile), values);
    add_to(tile, values);
    const size_t count = values_in(tile);
    std::fill(values + count, values + round_up(count, kTilePad), 0.0F);
  }
  void add_plain(const void* own, size_t tile, float* values) const {
    if (own == nullptr) return;
    alignas(64) float terms[kTileMemory];
    load_plain(own, tile, terms);
    kernels_.add(terms, round_up(values_in(tile), kTilePad), values);
  }

  void undo_careful(float* values, size_t tile) const {
    uint32_t maxima[kTileBlocksMax];
    kernels_.maxima(values, format_.block, padded(tile) / format_.block, maxima);
    undo(tile, maxima, 1 / coding_.transform.damp, values);
  }

  // Sums on the way back reach `reach` times the largest magnitude: where float32 could overflow,
  // they are taken of smaller numbers, lest an infinity become a NaN.
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

  // `maxima`: of the blocks of `values`, null where none has to be damped. Damped blocks end
  // multiplied by `undamp`.
  void undo(size_t tile, const uint32_t* maxima, float undamp, float* values) const {
    const TileTransform& transform = coding_.transform;
    if (maxima != nullptr) scale_damped(tile, maxima, transform.damp, values);
    turn_back(values, tile, nullptr, values);
    multiply_rest(at_phase(transform.undo_diagonal, tile), tile, values);
    if (maxima != nullptr) scale_damped(tile, maxima, undamp, values);
  }

  // A sum may be finite here and no finite number of the value type once the transform is undone;
  // that block counts as one with an infinity. Only blocks of the largest numbers are looked at.
  void find_overflows(const float* values, size_t tile, uint32_t* maxima) const {
    const double largest = float_from_bits(format_.overflow_bits - 1);
    // The transform's own rounding is no overflow.
    const double limit = largest * (1 + coding_.transform.slack);
    const size_t blocks = block_count(format_, values_in(tile));
    const auto risky = [&](uint32_t bits) {
      return bits < kFloatInfinity &&
             coding_.transform.reach * double{float_from_bits(bits)} > largest;
    };
    if (std::none_of(maxima, maxima + blocks, risky)) return;
    alignas(64) float undone[kTileMemory];
    std::copy_n(values, round_up(padded(tile), kTilePad), undone);
    undo(tile, maxima, 1, undone);
    for (size_t b = 0; b < blocks; ++b) {
      uint32_t found = 0;
      kernels_.maxima(undone + b * format_.block, format_.block, 1, &found);
      const double undamp = is_damped(maxima[b]) ? 1 / double{coding_.transform.damp} : 1;
      if (risky(maxima[b]) && undamp * double{float_from_bits(found)} > limit) {
        maxima[b] = kFloatInfinity;
      }
    }
  }

  void write_scales(const float* values, size_t tile, float tensor_scale, bool is_sum,
                    TileMemory& memory, std::byte* to) const {
    uint32_t maxima[kTileBlocksMax];
    const size_t blocks = block_count(format_, values_in(tile));
    kernels_.maxima(values, format_.block, padded(tile) / format_.block, maxima);
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

  const SliceCoding& coding_;
  const ElementFormat& format_;
  const ElementKernels& kernels_;
  size_t count_;
  size_t begin_;
  size_t part_;
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
    if (!coding_.transform.is_any()) {
      this->tile(tile, memory, term, sum);
      return pass_.store_plain(sum, {}, tile, args_.values_out);
    }
    if (coding_.format.sums_codes) {
      const ScaleRange scales = add_shifted(tile, memory, term, sum);
      return pass_.store_sum(sum, scales, nullptr, args_.finish, tile, args_.values_out);
    }
    if (args_.wire_count == 0) {
      return pass_.store_own(args_.own, args_.finish, tile, sum, args_.values_out);
    }
    bool begun = false;
    ScaleRange scales;
    for (size_t w = 0; w < args_.wire_count; ++w) {
      add_wire(w, tile, memory, begun, sum);
      scales.add(memory, block_count(coding_.format, pass_.values_in(tile)));
    }
    pass_.store_sum(sum, scales, args_.own, args_.finish, tile, args_.values_out);
  }

 private:
  void add_in_order(size_t tile, TileMemory& memory, float* term, float* sum) const {
    bool begun = false;
    for (size_t w = 0; w <= args_.wire_count; ++w) {
      if (args_.own != nullptr && w == args_.own_index) add_own(tile, begun, term, sum);
      if (w < args_.wire_count) add_wire(w, tile, memory, begun, sum);
    }
  }

  // Own values are quantized as a wire's are: who owns a chunk makes no difference then.
  ScaleRange add_shifted(size_t tile, TileMemory& memory, float* term, float* sum) const {
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
    if (args_.own != nullptr) total.add(own.codes, own_scales);
    for (size_t w = 0; w < args_.wire_count; ++w) {
      pass_.read_codes(args_.wires[w], tile, memory);
      total.add(memory.codes, pass_.scales_of(tile, args_.wires[w]));
    }
    const float largest = total.largest_scale();
    ScaleRange scales;
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

float store_tensor_scale(const ElementFormat& format, uint32_t maximum, std::byte* wire) {
  const float scale = choose_tensor_scale(format, maximum);
  store_unaligned(wire, scale);
  return scale;
}

}  // namespace

void encode_elements(const SliceCoding& coding, const void* values, size_t count, std::byte* wire) {
  const SlicePass pass(coding, count);
  TileMemory memory(coding.format, count);
  Tile tile;
  float tensor_scale = 0;
  if (pass.needs_tensor_scale()) {
    uint32_t maximum = 0;
    for (size_t t = 0; t < pass.tiles(); ++t) {
      maximum = std::max(maximum, pass.finite_maximum(pass.load(values, t, tile.values), t));
    }
    tensor_scale = store_tensor_scale(coding.format, maximum, wire);
  }
  for (size_t t = 0; t < pass.tiles(); ++t) {
    pass.encode(pass.load(values, t, tile.values), t, tensor_scale, false, memory, wire);
  }
  static_cast<void>(pass.close_slice(wire));
}

void decode_elements(const SliceCoding& coding, const std::byte* wire, size_t count, size_t begin,
                     size_t part, void* values) {
  const SlicePass pass(coding, count, begin, part);
  TileMemory memory(coding.format, part);
  Tile tile;
  for (size_t t = 0; t < pass.tiles(); ++t) {
    pass.read(wire, t, memory);
    pass.decode_codes(t, memory, tile.values);
    pass.store_coded(memory, tile.values, t, values);
  }
}

void combine_elements(const SliceCoding& coding, const CombineArgs& args) {
  const SlicePass pass(coding, args.count);
  const SliceSum sum(pass, coding, args);
  TileMemory memory(coding.format, args.count);
  Tile term;
  Tile result;
  float tensor_scale = 0;
  if (args.wire_out != nullptr && pass.needs_tensor_scale()) {
    uint32_t maximum = 0;
    for (size_t t = 0; t < pass.tiles(); ++t) {
      sum.tile(t, memory, term.values, result.values);
      maximum = std::max(maximum, pass.finite_maximum(result.values, t));
    }
    tensor_scale = store_tensor_scale(coding.format, maximum, args.wire_out);
  }
  for (size_t t = 0; t < pass.tiles(); ++t) {
    if (args.wire_out == nullptr) {
      sum.store(t, memory, term.values, result.values);
      continue;
    }
    sum.tile(t, memory, term.values, result.values);
    pass.encode(result.values, t, tensor_scale, true, memory, args.wire_out);
    if (args.values_out == nullptr) continue;
    pass.decode_codes(t, memory, result.values);
    pass.store_coded(memory, result.values, t, args.values_out);
  }
  if (args.wire_out == nullptr || !pass.close_slice(args.wire_out)) return;
  for (size_t t = 0; t < pass.tiles() && args.values_out != nullptr; ++t) {
    pass.store_nan(t, result.values, args.values_out);
  }
}

}  // namespace tersum
