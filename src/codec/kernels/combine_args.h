// What a combine kernel gets: Codec::combine's arguments in plain form.
//
// Thread safety: plain values that point to the caller's memory.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>

#include "codec/kernels/added_terms.h"
#include "tersum/options.h"

namespace tersum {

// Wires that one fused pass reads: beyond that, equally aligned slices evict each other from an
// 8-way L1, and a pass per 8 over an accumulator tile is cheaper.
inline constexpr size_t kWiresPerPass = 8;

// How a sum becomes the result.
struct Finish {
  ReduceOp op = ReduceOp::kSum;
  uint32_t divisor = 1;

  [[nodiscard]] bool divides() const { return op == ReduceOp::kAverage && divisor > 1; }
  // For powers of two the product with the reciprocal is the quotient, bit for bit, and much
  // cheaper.
  [[nodiscard]] bool divides_exactly() const { return std::has_single_bit(divisor); }
};

struct CombineArgs {
  const std::byte* const* wires = nullptr;
  size_t wire_count = 0;
  const void* own = nullptr;  // may be null
  size_t own_index = 0;       // number of wires before `own`
  size_t count = 0;           // values
  // The wires are of a slice of so many values, of which `count` from number slice_begin on are
  // meant: whole blocks, or the rest. Only the block kernels look.
  size_t slice_count = 0;
  size_t slice_begin = 0;
  Finish finish;
  std::byte* wire_out = nullptr;  // may be null
  void* values_out = nullptr;     // may be null if wire_out is not; may be `own`
  // To `own`, whose first value is number added_first of the array. Only the block kernels look.
  AddedTerms added;
  size_t added_first = 0;
};

}  // namespace tersum
