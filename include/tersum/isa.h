// Which instruction set the codec kernels use on this CPU.
//
// Thread safety: any thread. The choice is made once, at the first use of a kernel; all choices
// give the same bits.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace tersum {

// The target in use, by Highway's name in lower case: "avx3_dl", "avx3", "avx2", "sse4", "ssse3",
// "emu128", …, or "scalar" for the reference. TERSUM_FORCE_ISA in the environment picks one.
std::string_view active_isa();

// All that this CPU can run, best first, "scalar" last.
std::vector<std::string> available_isas();

}  // namespace tersum
