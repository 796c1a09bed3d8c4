// The codecs that tuning measures.
//
// Thread safety: constants.
#pragma once

#include <string_view>
#include <vector>

namespace tersum {

// Exact first, then by falling number of wire bits.
const std::vector<std::string_view>& tuning_codecs();

// Bytes on the wire per byte of float32 of one of them.
double tuning_wire_ratio(std::string_view codec);

}  // namespace tersum
