// Times of a codec's kernels, taken in turn with memcpy's.
//
// Thread safety: any thread; what other threads do meanwhile is in the numbers.
#pragma once

#include <cstddef>
#include <span>
#include <string_view>
#include <vector>

#include "tersum/status.h"

namespace tersum {

// Seconds of one pass over the values, one per round.
struct CodecTiming {
  std::vector<double> copy;
  std::vector<double> encode;
  std::vector<double> decode_add;  // one contribution decoded and added to values of one's own
};

// kInvalidArgument: the spec, no values, no rounds.
Result<CodecTiming> time_codec(std::string_view spec, std::span<const float> values, size_t rounds);

}  // namespace tersum
