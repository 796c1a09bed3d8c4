// How fast a codec's kernels are here, for tools that choose one.
//
// Thread safety: any thread; what other threads do meanwhile is in the numbers. Only ratios are
// given, of times that were taken in turn: the machine's mood hits both alike.
#pragma once

#include <cstddef>
#include <span>
#include <string_view>

#include "tersum/status.h"

namespace tersum {

// Each as a multiple of memcpy's speed over the same bytes of float32; 0.5 takes twice as long.
struct CodecSpeed {
  double encode = 0;
  double decode_add = 0;  // one contribution decoded and added to values of one's own
};

// The medians of `rounds` (>= 1) measurements on `values` (not empty; 64 Ki of them stay in a
// core's cache). kInvalidArgument: the spec, no values, no rounds.
Result<CodecSpeed> measure_codec_speed(std::string_view spec, std::span<const float> values,
                                       size_t rounds);

}  // namespace tersum
