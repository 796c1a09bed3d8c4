// Kernels of the element formats, for the instruction set in use. They work on tiles: whole blocks
// of float32, padded with zeros, that stay in L1.
//
// Thread safety: pure functions. Every pointer to values or to the wire may be unaligned; tiles are
// aligned to 64 bytes and may be read and written up to the next multiple of kTilePad values. No
// allocation. Every instruction set gives the reference's bits (element_reference.h).
#pragma once

#include <cstddef>
#include <cstdint>

#include "codec/kernels/block_product.h"
#include "codec/kernels/combine_args.h"
#include "codec/kernels/element_format.h"
#include "codec/kernels/random_rounding.h"

namespace tersum {

// A multiple of every granule: 1,024 and 96.
inline constexpr size_t kTileValues = 3072;
inline constexpr size_t kTilePad = 64;
inline constexpr size_t kTileMemory = kTileValues + kTilePad;
inline constexpr size_t kErrorLanes = 16;

// To the next multiple, of blocks or of kTilePad.
constexpr size_t round_up(size_t count, size_t to) { return (count + to - 1) / to * to; }

inline constexpr size_t kMaximaStep = 16;
inline constexpr size_t kTileBlocksMax = round_up(kTileMemory / 16, kMaximaStep);

// What is done to values before a Hadamard transform, or after it: a number for each value, of the
// signs one for each place in a block.
struct RotationEnds {
  const float* signs = nullptr;     // of one block, the same for every one; after it 1 and -1
  const float* diagonal = nullptr;  // null: none
  // Only after it; null: none. With terms NaN becomes canonical, as these may hold any.
  const float* terms = nullptr;

  // For the values from number `first` on, which begins a block.
  [[nodiscard]] RotationEnds from(size_t first) const {
    return {signs, diagonal == nullptr ? nullptr : diagonal + first,
            terms == nullptr ? nullptr : terms + first};
  }
};

struct ElementKernels {
  // Of the array at `values`, `count` from number `first` on to and from a tile. Storing rounds
  // and makes NaN canonical.
  void (*load)(ValueKind kind, const void* values, size_t first, size_t count, float* tile);
  void (*store)(ValueKind kind, const float* tile, size_t count, void* values, size_t first);
  void (*add)(const float* terms, size_t count, float* tile);
  // Adds values of an array as load takes them; here `tile` may be unaligned.
  void (*add_values)(ValueKind kind, const void* values, size_t first, size_t count, float* tile);
  // `count` values of an array and what is owed of them, to `sums`: as finite as the values are, at
  // most `largest`, the type's last number. `owed` keeps what that left out. All unaligned.
  void (*add_owed)(ValueKind kind, const void* values, size_t count, float largest, float* owed,
                   float* sums);
  // Adds to `owed` what coding made of `sums`: `factor` times their difference from the array
  // `back`. What is no number is owed by nobody: a block that arrived as NaN is not repeated.
  void (*keep_lost)(ValueKind kind, const float* sums, const void* back, size_t count, float factor,
                    float* owed);
  void (*finish)(const Finish& finish, size_t count, float* tile);
  void (*multiply)(const float* factors, size_t count, float* tile);  // value by value
  void (*limit)(float largest, size_t count, float* tile);            // magnitudes; NaN stays
  // The largest magnitude of each block, as float32 bits. Here and in quantize the values may lie
  // unaligned, outside a tile, where there are whole vectors of them.
  void (*maxima)(const float* tile, size_t block, size_t blocks, uint32_t* maxima);
  // The largest magnitude below `overflow_bits`, as float32 bits, of a multiple of kMaximaStep
  // values.
  uint32_t (*finite_maximum)(const float* values, size_t count, uint32_t overflow_bits);
  // The squared error of each block, kErrorLanes sums side by side, in the order that
  // docs/codecs.md gives for +mixed; 0 where it is not finite.
  void (*squared_errors)(const float* values, const float* decoded, size_t block, size_t blocks,
                         double* errors);
  // Sums of each block's magnitudes times kMeanFactor, in the order that docs/codecs.md gives for
  // the mean. The values may lie anywhere.
  void (*magnitudes)(const float* tile, size_t block, size_t blocks, float* sums);
  // As the functions of element_format.h.
  void (*choose_scales)(const ElementFormat& format, const uint32_t* absmax_bits, size_t blocks,
                        float tensor_scale, std::byte* wire, BlockScale* scales);
  void (*choose_means)(const ElementFormat& format, const uint32_t* absmax_bits, const float* sums,
                       size_t count, std::byte* wire, BlockScale* scales);
  void (*read_scales)(const ElementFormat& format, const std::byte* wire, size_t blocks,
                      float tensor_scale, BlockScale* scales);
  // Codes, one a byte, of `count` values; scales[i / block].
  void (*quantize)(const ElementFormat& format, const float* tile, size_t count,
                   const BlockScale* scales, uint8_t* codes);
  // The same of a tile at most, rounded at random: the code of value i is one of the two around it,
  // by rounding_half(place, i).
  void (*quantize_random)(const ElementFormat& format, const RoundingPlace& place,
                          const float* tile, size_t count, const BlockScale* scales,
                          uint8_t* codes);
  // Whole blocks may go anywhere, not only to a tile.
  void (*dequantize)(const ElementFormat& format, const uint8_t* codes, size_t count,
                     const BlockScale* scales, float* tile);
  // Adds what dequantize gives.
  void (*dequantize_add)(const ElementFormat& format, const uint8_t* codes, size_t count,
                         const BlockScale* scales, float* tile);
  // Adds `terms` to what dequantize gives and makes NaN canonical, to `to`, which may be `terms`;
  // both may be unaligned. Whole blocks.
  void (*dequantize_sums)(const ElementFormat& format, const uint8_t* codes, size_t count,
                          const BlockScale* scales, const float* terms, float* to);
  // dequantize (`terms` null) or dequantize_sums of codes on the wire: whole blocks in whole
  // groups, a tile at most.
  void (*dequantize_wire)(const ElementFormat& format, const std::byte* wire, size_t count,
                          const BlockScale* scales, const float* terms, float* to);
  // True if every code stands for a number.
  bool (*all_numbers)(const ElementFormat& format, const uint8_t* codes, size_t count);
  // Integers only, for ShiftSum: sums[i] += code i * 2^shifts[i / block], below 2^0 rounded to
  // nearest, ties to even; then tile[i] = float(sums[i]) * units[i / block]. Whole blocks; `sums`
  // lies as a tile.
  void (*add_shifted)(const ElementFormat& format, const uint8_t* codes, size_t count,
                      const int32_t* shifts, int32_t* sums);
  void (*scale_sums)(const int32_t* sums, size_t count, size_t block, const float* units,
                     float* tile);
  // `groups` whole groups of codes to and from the wire.
  void (*pack)(const ElementFormat& format, const uint8_t* codes, size_t groups, std::byte* wire);
  void (*unpack)(const ElementFormat& format, const std::byte* wire, size_t groups, uint8_t* codes);
  // The Hadamard transform H (entries +1 and -1, natural order) of every block of the tile:
  // rotate: y = H (x * diagonal * signs), x at `from`, which may be the tile; unrotate:
  // x = (H y) * signs * diagonal + terms, x to `to`, which may be the tile, whose values are lost.
  // `from`, `to` and the arrays of `ends` may be unaligned; `to` may be `terms`.
  void (*rotate)(const RotationEnds& ends, const float* from, size_t block, size_t count,
                 float* tile);
  void (*unrotate)(const RotationEnds& ends, float* tile, size_t block, size_t count, float* to);
  // What maxima finds in what rotate gives for `signs`, brought between `least` and infinity: a
  // tile at most, at `from`, which may be unaligned. What cannot exceed `least` is not looked for.
  void (*rotated_maxima)(const float* signs, const float* from, size_t block, size_t blocks,
                         uint32_t least, uint32_t* maxima);
  // What dequantize and unrotate make of `count` codes one after the other, where
  // rotates_as_integers() says so and no scale is NaN or too large for the sums.
  void (*unrotate_codes)(const ElementFormat& format, const RotationEnds& ends,
                         const uint8_t* codes, size_t count, const BlockScale* scales, float* to);
  // Whole blocks of `count` values, a tile at most, at `from`, which may be `to` or unaligned, as
  // all arrays here.
  void (*multiply_blocks)(const BlockProduct& matrices, const ProductEnds& ends, const float* from,
                          size_t count, float* to);
};

// `target`: one of available_targets().
const ElementKernels& element_kernels_of(int64_t target);
// Those of active_target().
const ElementKernels& element_kernels();

}  // namespace tersum
