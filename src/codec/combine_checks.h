// Codec::combine's arguments, checked, as the kernels take them.
#pragma once

#include <span>

#include "base/check.h"
#include "codec/codec.h"
#include "codec/kernels/combine_args.h"

namespace tersum {

inline CombineArgs checked_combine_args(std::span<const std::byte* const> wires, const void* own,
                                        size_t own_index, size_t count, const CombineFinish& finish,
                                        std::byte* wire_out, void* values_out) {
  TERSUM_CHECK(!wires.empty() || own != nullptr);
  TERSUM_CHECK(own == nullptr || own_index <= wires.size());
  TERSUM_CHECK(wire_out != nullptr || values_out != nullptr || count == 0);
  TERSUM_CHECK(finish.divisor >= 1);
  CombineArgs args;
  args.wires = wires.data();
  args.wire_count = wires.size();
  args.own = own;
  args.own_index = own_index;
  args.count = args.slice_count = count;
  args.finish = {finish.op, finish.divisor};
  args.wire_out = wire_out;
  args.values_out = values_out;
  return args;
}

}  // namespace tersum
