// What codecs cost here, for the time model: wire bytes, and a core's time as measured.
//
// Thread safety: any thread. A codec is measured once per process, which takes a millisecond or a
// few; other processes may come to slightly other times.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "codec/codec.h"
#include "runtime/tuning/auto_codecs.h"
#include "runtime/tuning/time_model.h"

namespace tersum {

// Who codes: `ranks` of a group, of which `ranks_here` share this machine's `cpus`.
struct CodingPlace {
  int ranks = 2;
  int ranks_here = 1;
  int cpus = 1;
};

// Seconds of a core per byte of float32.
struct CodingSeconds {
  double encode = 0;
  double decode_add = 0;
};

// Of one rank in an all_reduce of two steps over the array: all but its own part encoded, the
// others' contributions to its part added, the sum encoded, all other parts decoded (taken as long
// as adding). Ranks that share a core wait for each other.
double coding_seconds_per_byte(const CodingSeconds& kernels, const CodingPlace& place);

// kInvalidArgument: a codec whose kernels cannot be timed alone.
Result<CodecCost> measured_codec_cost(const Codec& codec, const CodingPlace& place);

// As CodecCost::seconds_per_byte, of tuning_codecs() and then of the list; 0 where a codec cannot
// be timed. One that flattens is taken to cost what one that turns its values does: about as much.
std::vector<double> coding_costs(const AutoCodecs& list, const CodingPlace& place);

// Of tuning_codecs().
Result<std::vector<CodecPrice>> measured_codec_prices(const CodingPlace& place);

}  // namespace tersum
