// Block formats in obvious scalar code: what the vector kernels must agree with bit for bit, and
// what serves the rare cases inside them (partial blocks, blocks with NaN, Inf or extreme scales).
//
// Thread safety: pure functions. Every pointer may be unaligned.
#pragma once

#include <cstddef>
#include <cstdint>

#include "codec/kernels/block_format.h"
#include "codec/kernels/combine_args.h"

namespace tersum {

// One value of the array at `values`, as float32 (exact), and back (rounded, NaN canonical).
float load_value(ValueKind kind, const void* values, size_t index);
void store_value(ValueKind kind, void* values, size_t index, float value);

// `codes` of the `count` <= block values that share `scale`; `scale` NaN or 0 gives zeros.
void quantize_block(const BlockFormat& format, const float* values, size_t count, float scale,
                    std::byte* codes);
// Scale and codes of one block of `count` <= block values.
void encode_block(const BlockFormat& format, const float* values, size_t count, std::byte* scale,
                  std::byte* codes);
// `index` < count: the value of one element of a block.
float decode_one(const BlockFormat& format, const std::byte* scale, const std::byte* codes,
                 size_t count, size_t index);

// The slice's block with which the values of a combine begin.
inline size_t first_slice_block(const BlockFormat& format, const CombineArgs& args) {
  return args.slice_begin >> format.block_log2;
}

// Block number `index` of a slice of `count` values; the last may be partial.
void encode_slice_block(const BlockFormat& format, const void* values, size_t count, size_t index,
                        std::byte* wire);
void decode_slice_block(const BlockFormat& format, const std::byte* wire, size_t count,
                        size_t index, void* values);
// Its values alone, `values` being where the first of them goes.
void decode_lone_block(const BlockFormat& format, const std::byte* wire, size_t count, size_t index,
                       void* values);
// Its values alone, `values` being where the first of them comes from.
void encode_lone_block(const BlockFormat& format, const void* values, size_t count, size_t index,
                       std::byte* wire);
// Own value number `index`, with what is added to it.
float load_own(ValueKind kind, const CombineArgs& args, size_t index);
// Block number `index` of what is combined.
void combine_slice_block(const BlockFormat& format, const CombineArgs& args, size_t index);

// As the kernels.
void reference_encode(const BlockFormat& format, const void* values, size_t count, std::byte* wire);
void reference_encode_blocks(const BlockFormat& format, const void* values, size_t count,
                             size_t first, size_t blocks, std::byte* wire);
void reference_decode(const BlockFormat& format, const std::byte* wire, size_t count, void* values);
void reference_decode_blocks(const BlockFormat& format, const std::byte* wire, size_t count,
                             size_t first, size_t blocks, void* values);
void reference_combine(const BlockFormat& format, const CombineArgs& args);

}  // namespace tersum
