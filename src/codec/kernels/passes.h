// How a combine of many wires is cut into passes of at most kWiresPerPass.
//
// Thread safety: plain values, pure functions.
#pragma once

#include <algorithm>
#include <cstddef>

#include "codec/kernels/combine_args.h"

namespace tersum {

// What one pass adds up, in this order: the carry (the result of earlier passes), the first
// own_index wires, own, the other wires. Pointers are to the slice's first value.
struct PassInputs {
  const std::byte* const* wires = nullptr;
  size_t wire_count = 0;
  const std::byte* own = nullptr;  // null: not in this pass
  size_t own_index = 0;
  bool carries = false;
  bool last = false;
};

// The pass that begins with wire number `done`, the sum of the wire counts of the passes before.
inline PassInputs make_pass(const CombineArgs& args, size_t done) {
  PassInputs pass;
  pass.wires = args.wires + done;
  pass.wire_count = std::min(kWiresPerPass, args.wire_count - done);
  pass.carries = done > 0;
  pass.last = done + pass.wire_count == args.wire_count;
  // At a boundary between two passes own ends the earlier one.
  const bool reached = args.own_index <= done + pass.wire_count;
  const bool already_in = done > 0 && args.own_index <= done;
  if (args.own != nullptr && reached && !already_in) {
    pass.own = static_cast<const std::byte*>(args.own);
    pass.own_index = args.own_index - done;
  }
  return pass;
}

}  // namespace tersum
