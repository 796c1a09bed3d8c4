#include "tersum/codec_speed.h"

#include <utility>
#include <vector>

#include "base/median.h"
#include "runtime/codec_timing.h"

namespace tersum {

Result<CodecSpeed> measure_codec_speed(std::string_view spec, std::span<const float> values,
                                       size_t rounds) {
  Result<CodecTiming> timing = time_codec(spec, values, rounds);
  if (!timing.ok()) return timing.status();
  std::vector<double> encode(rounds);
  std::vector<double> add(rounds);
  for (size_t round = 0; round < rounds; ++round) {
    encode[round] = timing->copy[round] / timing->encode[round];
    add[round] = timing->copy[round] / timing->decode_add[round];
  }
  return CodecSpeed{median(std::move(encode)), median(std::move(add))};
}

}  // namespace tersum
