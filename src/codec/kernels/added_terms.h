// What is added to a rank's own values while they are read: a residual and a bias.
//
// Thread safety: plain values that point to the caller's memory; pure functions. No allocation.
// Sums are taken in the order value + residual + bias, each rounded once to what the type is
// computed in: float32 for float32, bfloat16 and float16, else the type itself.
#pragma once

#include <cstddef>

#include "codec/kernels/block_format.h"
#include "codec/kernels/dense_format.h"

namespace tersum {

struct ElementKernels;

// Of the array's type. Value i of the array gets residual[i] and bias[i % bias_values].
struct AddedTerms {
  const void* residual = nullptr;  // null: none
  const void* bias = nullptr;      // null: none
  size_t bias_values = 1;

  [[nodiscard]] bool is_any() const { return residual != nullptr || bias != nullptr; }
};

// To `count` values of the array from number `first` on, which stand in `values` as float32:
// aligned to 64 bytes, with kTilePad values of room behind them that may change.
void add_terms(const ElementKernels& kernels, ValueKind kind, const AddedTerms& added, size_t first,
               size_t count, float* values);

// Numbers first.. of `values`, a run of the array from number `begin` on, with what is added to
// them: to `tile`, which is as `values` above.
void load_with_terms(const ElementKernels& kernels, ValueKind kind, const void* values,
                     const AddedTerms& added, size_t begin, size_t first, size_t count,
                     float* tile);

// Sums of values[0..count-1], which are number `first` on of the array, to `sums`, rounded to the
// type.
void add_terms(ValueKind kind, const AddedTerms& added, size_t first, const std::byte* values,
               size_t count, std::byte* sums);
// The same of the types that are computed as they are.
void add_terms(const DenseFormat& format, const AddedTerms& added, size_t first,
               const std::byte* values, size_t count, std::byte* sums);

}  // namespace tersum
