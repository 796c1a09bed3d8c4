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

// Who codes: `ranks` of a group, of which `ranks_of_host` share the `cpus` of a host.
struct CodingPlace {
  int ranks = 2;
  int ranks_of_host = 1;
  int cpus = 1;
};

// Seconds of a core per byte of float32.
struct CodingSeconds {
  double encode = 0;
  double decode_add = 0;
  double finish = 0;  // decode_add, the sum encoded, and what that decodes to: as an owner does it

  bool operator==(const CodingSeconds&) const = default;
};

// Of one rank in an all_reduce over the array. In two steps, and by plans of more (taken alike):
// all but its own part encoded, the others' contributions to its part added and that finished, all
// other parts decoded (taken as long as adding). By one_shot: the array encoded, the others' whole
// arrays added. Ranks that share a core wait for each other.
double coding_seconds_per_byte(const CodingSeconds& kernels, const CodingPlace& place,
                               PlanKind plan = PlanKind::kTwoStep);

// kInvalidArgument: a codec whose kernels cannot be timed alone.
Result<CodecCost> measured_codec_cost(const Codec& codec, const CodingPlace& place,
                                      PlanKind plan = PlanKind::kTwoStep);

// What a rank tells the others of its kernels, of tuning_codecs() and then of the list, with the
// time in which ranks that share a core wait; zeros where a codec cannot be timed. Blocks for 70
// to 90 ms (AVX2, Zen 3) when the codecs of `auto` are asked for first. A codec that flattens is
// taken to cost what one does that turns its values, about as much, and another encoding: its calls
// teach.
std::vector<CodingSeconds> coding_costs(const AutoCodecs& list, const CodingPlace& place);

// Of tuning_codecs().
Result<std::vector<CodecPrice>> measured_codec_prices(const CodingPlace& place,
                                                      PlanKind plan = PlanKind::kTwoStep);

}  // namespace tersum
