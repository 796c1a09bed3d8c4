// Kernels of the dense formats, for the instruction set in use.
//
// Thread safety: pure functions. Every pointer may be unaligned; `values_out` of a combine may be
// its `own`, other overlaps are not allowed. No allocation.
#pragma once

#include <cstddef>
#include <cstdint>

#include "codec/kernels/combine_args.h"
#include "codec/kernels/dense_format.h"

namespace tersum {

struct DenseKernels {
  void (*encode)(const DenseFormat& format, const void* values, size_t count, std::byte* wire);
  void (*decode)(const DenseFormat& format, const std::byte* wire, size_t count, void* values);
  void (*combine)(const DenseFormat& format, const CombineArgs& args);
};

// Those of active_target().
const DenseKernels& dense_kernels();
// Those of `target`, one of available_targets().
const DenseKernels& dense_kernels_of(int64_t target);

}  // namespace tersum
