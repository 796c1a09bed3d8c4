// How long a call is expected to take, by what tuning measured.
//
// Thread safety: any thread. Codecs that tuning did not measure are timed, once per process.
#pragma once

#include <optional>
#include <span>
#include <string_view>

#include "runtime/start_call.h"
#include "runtime/tuning/codec_cost.h"
#include "runtime/tuning/tuning_table.h"

namespace tersum {

// nullopt where the table does not say: another collective than all_reduce, a plan that was not
// measured, or a codec that needs more than kernels and a wire. Two ranks have one hop, whatever
// the plan calls it, so that a ring of two is a two_step.
std::optional<double> expected_seconds(const TuningTable& table, const CodingPlace& place,
                                       const CallArguments& arguments, std::string_view codec,
                                       PlanKind plan);

// The same of a codec that tuning measured by the plan, for an array of so many bytes as float32;
// nullopt of others.
std::optional<double> measured_seconds(const TuningTable& table, size_t float_bytes,
                                       const Codec& codec, PlanKind plan);

// What ranks agree on of kernels.
struct AgreedCoding {
  CodingSeconds codec;
  std::span<const CodingSeconds> measured;  // of tuning_codecs()
};

// The same of one that it did not, for an all_reduce of `count` values over `ranks` ranks, by what
// the ranks have told each other: all of them come to the same time.
std::optional<double> worked_out_seconds(const TuningTable& table, size_t count, int ranks,
                                         const Codec& codec, const AgreedCoding& coding,
                                         PlanKind plan);

}  // namespace tersum
