// Kernels of the block formats, for the instruction set in use.
//
// Thread safety: pure functions. Every pointer may be unaligned; `values_out` of a combine may be
// its `own`, other overlaps are not allowed. No allocation.
#pragma once

#include <cstddef>
#include <cstdint>

#include "codec/kernels/block_format.h"
#include "codec/kernels/combine_args.h"
#include "codec/kernels/dispatch.h"

namespace tersum {

struct BlockKernels {
  void (*encode)(const BlockFormat& format, const void* values, size_t count, std::byte* wire);
  // Blocks first..first+blocks-1, all whole, of a slice of `count` values; the first value comes
  // from `values`.
  void (*encode_blocks)(const BlockFormat& format, const void* values, size_t count, size_t first,
                        size_t blocks, std::byte* wire);
  void (*decode)(const BlockFormat& format, const std::byte* wire, size_t count, void* values);
  // As encode_blocks(); the first value goes to `values`.
  void (*decode_blocks)(const BlockFormat& format, const std::byte* wire, size_t count,
                        size_t first, size_t blocks, void* values);
  // As decode_blocks() of float32 to where a cache line begins, each line written without being
  // read first; stream_fence() is the caller's.
  void (*stream_blocks)(const BlockFormat& format, const std::byte* wire, size_t count,
                        size_t first, size_t blocks, void* values);
  // What args.added holds must be reads_terms().
  void (*combine)(const BlockFormat& format, const CombineArgs& args);
};

// True if no run of 32 values of a slice whose first one is number `first` of its array wraps
// around a bias, and no block does twice.
inline bool reads_terms(const BlockFormat& format, const AddedTerms& added, size_t first) {
  return added.bias == nullptr ||
         (added.bias_values >= format.block && added.bias_values % kNibbleGroup == 0 &&
          first % kNibbleGroup == 0);
}

// Each width of codes is compiled by itself. `target`: one of available_targets().
const BlockKernels& int8_kernels_of(int64_t target);
const BlockKernels& int4_kernels_of(int64_t target);

inline const BlockKernels& block_kernels_of(const BlockFormat& format, int64_t target) {
  return format.bits == 8 ? int8_kernels_of(target) : int4_kernels_of(target);
}
// Those of active_target().
inline const BlockKernels& block_kernels(const BlockFormat& format) {
  return block_kernels_of(format, active_target());
}

}  // namespace tersum
