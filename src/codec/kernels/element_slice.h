// Slices of element formats: the tiles of a slice, one after the other, through the kernels.
//
// Thread safety: pure functions. Every pointer to values or wire may be unaligned; `values_out` of
// a combine may be its `own`. No allocation; about 110 KiB of stack, 210 where slices have a scale.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "codec/kernels/added_terms.h"
#include "codec/kernels/clip_measure.h"
#include "codec/kernels/combine_args.h"
#include "codec/kernels/element_kernels.h"

namespace tersum {

// Linear maps of values before they are coded, undone after decoding. Sums are taken between the
// two, which is what linear allows.
struct TileTransform {
  // Factors beside signs, kTileMemory values beyond a period; null for none.
  const float* diagonal = nullptr;
  const float* undo_diagonal = nullptr;
  size_t period = 1;  // of the diagonal, in values of the array
  // The Hadamard transform of each whole block, after `signs` (which hold its scale, too) and
  // undone by `undo_signs`, which are 1 and -1; null for none. Those of one block.
  const float* signs = nullptr;
  const float* undo_signs = nullptr;
  // In its place products with matrices; null for none.
  const BlockProduct* product = nullptr;
  const BlockProduct* undo_product = nullptr;
  // The most that undoing all makes of a magnitude of 1: B or what the matrices say, times the
  // largest of undo_diagonal.
  double reach = 1;
  // What values are multiplied by before they are turned back where float32 could overflow on the
  // way: a power of two that outweighs what the signs or matrices make of a magnitude of 1.
  float damp = 0x1p-12F;
  // What turning a sum back may add to it by rounding, as a part of it.
  double slack = 0x1p-18;
  // False: values of the type stay finite on the way back, and only sums of them are looked at.
  bool looks_at_values = true;

  [[nodiscard]] bool is_any() const { return signs != nullptr || product != nullptr; }
};

struct SliceCoding {
  const ElementFormat& format;
  const ElementKernels& kernels;
  TileTransform transform;
  size_t first = 0;  // the slice's first value in the array
  bool is_random = false;
  uint64_t rounding = 0;  // key of the random numbers
  AddedTerms added = {};  // to the caller's values, before anything else
  // Of ScaleRule::kSlice the scale that slices are coded with; of others what one would lose. Null:
  // nothing is measured, or nothing coded.
  ClipMeasure* clip = nullptr;
};

void encode_elements(const SliceCoding& coding, const void* values, size_t count, std::byte* wire);
// Values begin..begin+part-1 of the slice, to values[0..part-1]; `begin` is a multiple of the
// granule.
void decode_elements(const SliceCoding& coding, const std::byte* wire, size_t count, size_t begin,
                     size_t part, void* values);
void combine_elements(const SliceCoding& coding, const CombineArgs& args);

// A way to code a slice: its bytes, and kernels' squared_errors() of what each block comes back as.
struct SliceTrial {
  SliceCoding coding;
  std::byte* wire;
  double* errors;
};
// As encode_elements() and decode_elements() by each of `trials`, of `count` float32 values in
// whole blocks. Their formats differ in levels and packing alone, and they turn blocks alike, which
// is done once.
void try_elements(std::span<const SliceTrial> trials, const float* values, size_t count);

}  // namespace tersum
