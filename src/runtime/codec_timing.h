// Times of a codec's kernels, taken in turn with memcpy's.
//
// Thread safety: any thread; what other threads do meanwhile is in the numbers.
#pragma once

#include <cstddef>
#include <span>
#include <string_view>
#include <vector>

#include "plan/cost_model.h"
#include "tersum/status.h"

namespace tersum {

// Seconds of one pass over the values, one per round.
struct CodecTiming {
  std::vector<double> copy;
  std::vector<double> encode;
  std::vector<double> decode_add;  // one contribution decoded and added to values of one's own
  // As much, the sum then encoded as that of two ranks, and what it decodes to; empty: not asked.
  std::vector<double> finish;
};

// kInvalidArgument: the spec, no values, no rounds.
Result<CodecTiming> time_codec(std::string_view spec, std::span<const float> values, size_t rounds,
                               bool finishes = false);

// What the cost model asks of a codec, as this machine's core does it now: the median of a few
// passes over 4 MiB of normal values, which is more than a core's own cache. Takes some
// milliseconds when a codec is asked for first, and nothing from then on: it is done once per
// process. What a call keeps from one to the next (+flatten's factors, +feedback) is not in it.
// kInvalidArgument: the spec, and formats that need what ranks agree on before.
Result<CodecRates> measured_codec_rates(std::string_view spec);

}  // namespace tersum
