// Picking the instruction set of the codec kernels; include/tersum/isa.h tells it.
//
// Thread safety: any thread. Every choice gives the same bits, so it may change at any time.
#pragma once

#include <string_view>

#include "tersum/isa.h"
#include "tersum/status.h"

namespace tersum {

// Uses the instruction set `name` from now on; "" goes back to the best one. kInvalidArgument,
// naming those there are, if this CPU or build has no such one.
Status force_isa(std::string_view name);

}  // namespace tersum
