#include "plan/plan.h"

namespace tersum {
namespace {

// One latency more costs as much as sending this many bytes: 50 us at 5 Gbit/s, 1.5 us at 20 GB/s
// (shared memory). At 1 Gbit/s it is 6 KiB, so there one_shot is taken a little beyond its best.
constexpr size_t kLatencyBytes = 32 * 1024;

// Beyond this many ranks the n - 1 messages that one_shot sends *at once* no longer cost one
// latency.
constexpr int kOneShotSizeMax = 8;

// With two ranks both plans send the same bytes; but one_shot has each rank encode and add up the
// whole array, two_step half of it twice, in a pipeline. Below one slice there is no pipeline.
constexpr size_t kOneShotBytesMax = 64 * 1024;

}  // namespace

// With b wire bytes, n ranks, latency L per dependent message and B bytes per second:
//
//   one_shot   (n - 1) b / B       + L        every rank sends everything to everybody
//   two_step   2 (n - 1) b / n / B + 2 L      every rank sends n - 1 parts of b / n, twice
//
// one_shot is faster while (n - 1) b - 2 (n - 1) b / n < L B, that is
//
//   b (n - 1) (n - 2) / n < L B = kLatencyBytes.
//
// So b is below 64 KiB for n = 2 (its own limit), 48 KiB for 3, 21 KiB for 4 and 6.2 KiB for 8.
// Its error is no worse: n quantized contributions against n - 1 and a quantized sum
// (docs/plans.md).
PlanKind choose_plan(Collective collective, int size, size_t wire_bytes) {
  if (collective != Collective::kAllReduce || size < 2 || size > kOneShotSizeMax ||
      wire_bytes > kOneShotBytesMax) {
    return PlanKind::kTwoStep;
  }
  const auto n = static_cast<size_t>(size);
  return wire_bytes * (n - 1) * (n - 2) < kLatencyBytes * n ? PlanKind::kOneShot
                                                            : PlanKind::kTwoStep;
}

}  // namespace tersum
