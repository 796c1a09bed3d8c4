// The time model: how long an all_reduce takes where it was not measured, by where it was.
//
// Loopback TCP and shared memory have no rate to compute with: what a byte costs there depends on
// caches, copies and the scheduler. So the model is fitted to measured points, per plan:
//
//   between two sizes     latency and a rate where bytes get cheaper with the size, which is a
//                         straight line; a power law where they get dearer, as out of a cache
//   below the smallest    the smallest's time: latency
//   beyond a way's last   it grows as other codecs of the plan did that were measured further,
//                         those between which it lies by wire bytes
//   beyond all sizes      each byte costs what the last measured ones did; where latency hid that,
//                         what it costs two ranks at 1 Gbit/s; out of a cache that all ranks share,
//                         and in which all that was measured lay, 1.3 times as much
//   a codec never seen    time = transport + coding. Transport, what measured times have beyond
//                         their kernels' own, is linear in wire bytes from codec to codec
//
// Thread safety: pure functions of immutable points. Invariant: times are finite and above 0; the
// same on every rank that holds the same points and costs.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string_view>

#include "plan/plan.h"

namespace tersum {

// How many times as long the larger of two sizes takes at least where bytes are seen to cost time.
inline constexpr double kGrowthMin = 1.2;

// One way for the values of a call.
struct TuningWay {
  std::string_view codec;  // of tuning_codecs(): lives for ever
  PlanKind plan = PlanKind::kTwoStep;
  friend bool operator==(const TuningWay&, const TuningWay&) = default;
};

struct TuningPoint {
  TuningWay way;
  size_t bytes = 0;  // of the array, as float32
  double seconds = 0;
  bool is_rough = false;  // of one call, or the least of a few: there was no time for a median
};

// A codec as the model sees it, each per byte of float32.
struct CodecCost {
  double wire_ratio = 1;        // bytes on the wire
  double seconds_per_byte = 0;  // of a core: one rank's coding of the whole call
};

struct CodecPrice {
  std::string_view codec;
  CodecCost cost;
};

// The time of a way that was measured at some size; nullopt where it was not, or far beyond its
// sizes for one_shot and for what the cost model brought in: what has lost by then is measured no
// further. `points` are sorted by way, then by size, no size of a way twice; `bytes` are the
// array's, and `cached_bytes` those of the largest that lies in a cache of all ranks; 0: unknown.
std::optional<double> model_seconds(std::span<const TuningPoint> points, const TuningWay& way,
                                    size_t bytes, size_t cached_bytes = 0);

// The time of any codec by a measured plan; `prices` has the codecs of `points` that the model may
// go by. nullopt where fewer than two of them were measured near that size.
std::optional<double> model_seconds(std::span<const TuningPoint> points, PlanKind plan,
                                    size_t bytes, const CodecCost& codec,
                                    std::span<const CodecPrice> prices, size_t cached_bytes = 0);

}  // namespace tersum
