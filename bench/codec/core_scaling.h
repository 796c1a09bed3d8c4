// How much more several cores do than one, kernel by kernel, against memcpy.
//
// Thread safety: one call at a time.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "codec/codec.h"

namespace tersum {

// --check: the least to_memcpy, for int8/128.
inline constexpr double kScalingFloor = 0.95;

struct KernelScaling {
  std::string kernel;
  double times = 0;      // throughput of all cores over that of one, median over the rounds
  double to_memcpy = 0;  // that over memcpy's in the same round, median
};

// `cores` threads, each with arrays of `values` float32 of its own. Every round times each kernel
// on one core, with the others asleep, and then on all at once.
std::vector<KernelScaling> measure_scaling(const Codec& codec, size_t values, size_t cores,
                                           size_t rounds);

}  // namespace tersum
