// Writes a module with some instructions replaced, everything else copied byte for byte.
//
// Thread safety: pure functions. Invariants: what is not replaced keeps its bytes, its order and
// its (possibly unknown) fields; the only other bytes that change are the lengths of the
// computations that hold a replaced instruction. Linear in the module's size.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "tersum/status.h"

namespace tersum {

// New bytes for instruction number `instruction` of computation number `computation`, both counted
// as they stand in the module.
struct HloReplacement {
  size_t computation = 0;
  size_t instruction = 0;
  std::string bytes;
};

// `replacements` are in ascending (computation, instruction) order, without duplicates.
// kInvalidArgument: malformed bytes, or a replacement of what is not there.
Result<std::string> replace_hlo_instructions(std::string_view module,
                                             const std::vector<HloReplacement>& replacements);

// The collective `instruction` turned into a typed-FFI custom call of `target` with the MLIR
// dictionary text `attributes`. Kept as they are: name, shape, metadata, id, operands, control
// predecessors, frontend attributes and all that the pass does not know. Dropped: what only a
// collective has (groups, channel, reducer, dimensions).
Result<std::string> make_ffi_custom_call(std::string_view instruction, std::string_view target,
                                         std::string_view attributes);

}  // namespace tersum
