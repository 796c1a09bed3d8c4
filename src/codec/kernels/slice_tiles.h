// SliceTiles: the tiles of a slice as values: loaded and transformed, turned back and stored. What
// element_slice.cc codes between the two.
//
// Thread safety: plain values and references to the caller's; pure functions of these. Invariant:
// every value of an array is read before it is written, tile by tile, so that the array of results
// may be that of the own values.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>

#include "codec/kernels/element_slice.h"

namespace tersum {

// What one tile of a slice is coded in. Cleared as far as slices of `count` values reach: for one
// short block the rest would take longer than the block.
struct TileMemory {
  TileMemory(const ElementFormat& format, size_t count)
      : used_(std::min(round_up(count, format.granule), kTileValues) + kTilePad) {
    std::fill_n(scales, used_ / format.block, BlockScale());
  }

  TileMemory(const TileMemory&) = delete;
  TileMemory& operator=(const TileMemory&) = delete;

  // For codes that do not stay on the wire. Cleared when they are first asked for: clearing takes a
  // tenth of the time in which a tile of nibbles is decoded from where it lies.
  uint8_t* own_codes() {
    if (!cleared_) std::memset(codes_, 0, used_);
    cleared_ = true;
    return codes_;
  }

  // In a union, which constructs none: only the constructor above does, those in use.
  union {
    BlockScale scales[kTileBlocksMax];
  };
  // The tile's codes: own_codes(), or bytes on the wire, which change no more.
  const uint8_t* read = nullptr;

 private:
  alignas(64) uint8_t codes_[kTileMemory];
  size_t used_;
  bool cleared_ = false;
};
struct Tile {
  alignas(64) float values[kTileMemory];
};

// Bounds on what a sum of decoded blocks may hold.
struct SumRange {
  double largest = 0;    // of each contribution, added up
  bool has_nan = false;  // or an infinity

  void add(const SumRange& other) {
    largest += other.largest;
    has_nan = has_nan || other.has_nan;
  }
};

class SliceTiles {
 public:
  SliceTiles(const SliceCoding& coding, size_t count) : SliceTiles(coding, count, 0, count) {}
  // Of values begin..begin+part-1 only, which is all that arrays of values hold then.
  SliceTiles(const SliceCoding& coding, size_t count, size_t begin, size_t part)
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

  // Values of the blocks that a tile's values are in.
  [[nodiscard]] size_t padded(size_t tile) const {
    return round_up(values_in(tile), format_.granule);
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

  // What the codes in `memory` stand for.
  void decode_codes(size_t tile, const TileMemory& memory, float* values) const {
    kernels_.dequantize(format_, memory.read, padded(tile), memory.scales, values);
  }

  // Of what the scales and codes in `memory` stand for.
  [[nodiscard]] SumRange range_of(const TileMemory& memory, size_t tile) const {
    const uint32_t most = largest_scale_bits(memory, tile);
    const bool all_numbers = kernels_.all_numbers(format_, memory.read, values_in(tile));
    return {float_from_bits(most), most > kFloatInfinity || !all_numbers};
  }

  // Stores the sum of `from` with the transform undone, the values of the array `own` (null: none),
  // divided as `finish` says. `scales`: sum of the largest scales of what was added up in `from`.
  void store_sum(float* from, const SumRange& scales, const void* own, const Finish& finish,
                 size_t tile, void* values) const {
    const bool safe = is_safe(scales);
    if (safe && adds_straight(own, finish, tile)) {
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

  // The same of one payload: the sum of what the scales and codes in `memory` stand for and of own
  // values. `scales`: range_of() those.
  void store_one(const TileMemory& memory, const SumRange& scales, float* work, const void* own,
                 const Finish& finish, size_t tile, void* values) const {
    if (!turns_codes(scales)) {
      decode_codes(tile, memory, work);
      return store_sum(work, scales, own, finish, tile, values);
    }
    if (adds_straight(own, finish, tile)) {
      const auto* const terms =
          own == nullptr ? nullptr : static_cast<const float*>(own) + place(tile);
      return turn_codes_back(memory, tile, terms, static_cast<float*>(values) + place(tile));
    }
    undo_codes(memory, tile, work);
    add_plain(own, tile, work);
    store_plain(work, finish, tile, values);
  }

  // A sum that may be written to the array of values as it is, once a transform is undone.
  [[nodiscard]] bool adds_straight(const void* own, const Finish& finish, size_t tile) const {
    const bool as_is = own == nullptr || !coding_.added.is_any();
    return as_is && goes_straight(tile) && !finish.divides();
  }

  // The same without a transform, where adds_straight() says so.
  void store_straight(const TileMemory& memory, const void* own, size_t tile, void* values) const {
    kernels_.dequantize_sums(format_, memory.read, values_in(tile), memory.scales,
                             static_cast<const float*>(own) + place(tile),
                             static_cast<float*>(values) + place(tile));
  }

  // The same where there is nothing but the array.
  void store_own(const void* own, const Finish& finish, size_t tile, float* work,
                 void* values) const {
    load_plain(own, tile, work);
    store_plain(work, finish, tile, values);
  }

  // True if codes on the wire may become values where they lie.
  [[nodiscard]] bool has_whole_nibbles(size_t tile) const {
    return format_.packing == Packing::kNibbles && values_in(tile) % kNibbleGroup == 0;
  }
  // True if decode_nibbles() gives what store_coded() does: every nibble is a number.
  [[nodiscard]] bool decodes_nibbles(const TileMemory& memory, size_t tile) const {
    return has_whole_nibbles(tile) && !coding_.transform.is_any() && goes_straight(tile) &&
           gives_one_nan(memory, tile);
  }
  // As store_straight(), of codes on the wire; `own` may be null.
  void decode_nibbles(const std::byte* codes, const TileMemory& memory, const void* own,
                      size_t tile, void* values) const {
    const auto* const terms =
        own == nullptr ? nullptr : static_cast<const float*>(own) + place(tile);
    kernels_.dequantize_wire(format_, codes, values_in(tile), memory.scales, terms,
                             static_cast<float*>(values) + place(tile));
  }

  // A sum of what needs no undoing.
  void store_plain(float* from, const Finish& finish, size_t tile, void* values) const {
    kernels_.finish(finish, round_up(values_in(tile), kTilePad), from);
    kernels_.store(format_.kind, from, values_in(tile), values, place(tile));
  }

  // What the scales and codes in `memory` stand for: it was finite in the value type, or is NaN,
  // and the error of a code must not take it beyond.
  void store_coded(const TileMemory& memory, float* work, size_t tile, void* values) const {
    if (!coding_.transform.is_any()) {
      if (goes_straight(tile) && gives_one_nan(memory, tile) &&
          kernels_.all_numbers(format_, memory.read, values_in(tile))) {
        return kernels_.dequantize(format_, memory.read, values_in(tile), memory.scales,
                                   static_cast<float*>(values) + place(tile));
      }
      decode_codes(tile, memory, work);
      return store_plain(work, {}, tile, values);
    }
    const SumRange scales = range_of(memory, tile);
    if (is_safe(scales)) return store_one(memory, scales, work, nullptr, {}, tile, values);
    decode_codes(tile, memory, work);
    undo_careful(work, tile);
    kernels_.limit(float_from_bits(format_.overflow_bits - 1), padded(tile), work);
    kernels_.store(format_.kind, work, values_in(tile), values, place(tile));
  }

  void store_nan(size_t tile, float* work, void* values) const {
    std::fill_n(work, round_up(values_in(tile), kTilePad), float_from_bits(kFloatNan));
    kernels_.store(format_.kind, work, values_in(tile), values, place(tile));
  }

 protected:
  // A partial block is not rotated: all of its transform would have to travel.
  [[nodiscard]] size_t whole_blocks(size_t tile) const {
    return values_in(tile) / format_.block * format_.block;
  }

  // A sum may be finite here and no finite number of the value type once the transform is undone;
  // that block counts as one with an infinity. Only blocks of the largest numbers are looked at.
  void find_overflows(const float* values, size_t tile, uint32_t (&maxima)[kTileBlocksMax]) const {
    const double largest = float_from_bits(format_.overflow_bits - 1);
    // The transform's own rounding is no overflow.
    const double limit = largest * (1 + coding_.transform.slack);
    const size_t blocks = block_count(format_, values_in(tile));
    const auto risky = [&](uint32_t bits) {
      return bits < kFloatInfinity &&
             coding_.transform.reach * double{float_from_bits(bits)} > largest;
    };
    const size_t filled = round_up(blocks, kMaximaStep);
    std::fill(maxima + blocks, maxima + filled, 0U);
    const auto* const magnitudes = reinterpret_cast<const float*>(maxima);
    if (!risky(kernels_.finite_maximum(magnitudes, filled, kFloatInfinity))) return;
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

  const SliceCoding& coding_;
  const ElementFormat& format_;
  const ElementKernels& kernels_;
  size_t count_;

 private:
  [[nodiscard]] size_t phase(size_t tile) const {
    return (coding_.first + first(tile)) % coding_.transform.period;
  }

  // Whole blocks of float32: they need no more than the transform.
  [[nodiscard]] bool goes_straight(size_t tile) const {
    return format_.kind == ValueKind::kFloat32 && whole_blocks(tile) == values_in(tile);
  }

  // No scale is negative, and as bits NaN is above all.
  [[nodiscard]] uint32_t largest_scale_bits(const TileMemory& memory, size_t tile) const {
    const size_t blocks = block_count(format_, values_in(tile));
    // Side by side: each maximum waits for the one before it.
    uint32_t most[4] = {};
    size_t b = 0;
    for (; b + 4 <= blocks; b += 4) {
      for (size_t k = 0; k < 4; ++k) {
        most[k] = std::max(most[k], float_bits(memory.scales[b + k].scale));
      }
    }
    for (; b < blocks; ++b) most[0] = std::max(most[0], float_bits(memory.scales[b].scale));
    return std::max(std::max(most[0], most[1]), std::max(most[2], most[3]));
  }

  // True if no NaN but the canonical one comes of numbers and the scales in `memory`. Each is
  // finite or the canonical NaN already, except that a product with a tensor's may be infinite.
  [[nodiscard]] bool gives_one_nan(const TileMemory& memory, size_t tile) const {
    return format_.rule != ScaleRule::kE4M3Tensor ||
           largest_scale_bits(memory, tile) < kFloatInfinity;
  }

  // No NaN, and no overflow on the way back.
  [[nodiscard]] bool is_safe(const SumRange& scales) const {
    const double limit = float_from_bits(format_.overflow_bits - 1);
    return !scales.has_nan &&
           coding_.transform.reach * format_.level_max * scales.largest < limit / 2;
  }

  // True if codes need not become values before they are turned back.
  [[nodiscard]] bool turns_codes(const SumRange& scales) const {
    return coding_.transform.undo_signs != nullptr && coding_.transform.undo_product == nullptr &&
           rotates_as_integers(format_) && is_safe(scales);
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

  // As turn_back(), of codes.
  void turn_codes_back(const TileMemory& memory, size_t tile, const float* terms, float* to) const {
    const TileTransform& transform = coding_.transform;
    const float* const diagonal = at_phase(transform.undo_diagonal, tile);
    kernels_.unrotate_codes(format_, {transform.undo_signs, diagonal, terms}, memory.read,
                            whole_blocks(tile), memory.scales, to);
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

  // The same of codes that need no damping.
  void undo_codes(const TileMemory& memory, size_t tile, float* values) const {
    turn_codes_back(memory, tile, nullptr, values);
    const size_t whole = whole_blocks(tile);
    kernels_.dequantize(format_, memory.read + whole, padded(tile) - whole,
                        memory.scales + whole / format_.block, values + whole);
    multiply_rest(at_phase(coding_.transform.undo_diagonal, tile), tile, values);
  }

  size_t begin_;
  size_t part_;
};

}  // namespace tersum
