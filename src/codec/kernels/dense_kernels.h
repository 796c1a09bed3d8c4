// Kernels of the dense formats, for the instruction set in use.
//
// Thread safety: pure functions. Every pointer may be unaligned; `values_out` of a combine may be
// its `own`, other overlaps are not allowed. No allocation.
#pragma once

#include <cstddef>
#include <cstdint>

#include "codec/kernels/combine_args.h"
#include "codec/kernels/dense_format.h"
#include "codec/kernels/dispatch.h"

namespace tersum {

struct DenseKernels {
  void (*encode)(const DenseFormat& format, const void* values, size_t count, std::byte* wire);
  void (*decode)(const DenseFormat& format, const std::byte* wire, size_t count, void* values);
  void (*combine)(const DenseFormat& format, const CombineArgs& args);
};

// Compiled apart: those that are computed in float32 (float32, bfloat16, float16) and those in
// their own type (float64, integers). `target`: one of available_targets().
const DenseKernels& dense_float_kernels_of(int64_t target);
const DenseKernels& dense_plain_kernels_of(int64_t target);

inline const DenseKernels& dense_kernels_of(const DenseFormat& format, int64_t target) {
  const bool in_float32 = format.type == DataType::kFloat32 || format.type == DataType::kBFloat16 ||
                          format.type == DataType::kFloat16;
  return in_float32 ? dense_float_kernels_of(target) : dense_plain_kernels_of(target);
}
// Those of active_target().
inline const DenseKernels& dense_kernels(const DenseFormat& format) {
  return dense_kernels_of(format, active_target());
}

}  // namespace tersum
