#include <algorithm>

#include "plan/plan.h"
#include "plan/plan_fit.h"

namespace tersum {
namespace {

// One latency more costs as much as sending this many bytes: 50 us at 5 Gbit/s, 1.5 us at 20 GB/s
// (shared memory). At 1 Gbit/s it is 6 KiB, so there one_shot is taken a little beyond its best.
constexpr size_t kLatencyBytes = 32 * 1024;
// What it takes on a link, with what a core does for a message.
constexpr double kLatencySeconds = 50e-6;

// Beyond this many ranks the n - 1 messages that one_shot sends *at once* no longer cost one
// latency.
constexpr int kOneShotSizeMax = 8;

// With two ranks both plans send the same bytes; but one_shot has each rank encode and add up the
// whole array, two_step half of it twice, in a pipeline. Below one slice there is no pipeline.
constexpr size_t kOneShotBytesMax = 64 * 1024;

// Ranks that share a CPU take turns, so that a call takes what the messages of all ranks cost:
// 2 (n - 1) by tree, n (n - 1) by one_shot, twice that by two_step. For that it combines whole
// arrays, ceil(log2 n) of them one after the other. Eight ranks on two CPUs, shared memory: 125 us
// of one_shot's 149 at 4 KiB, 207 of two_step's 320 at 64 KiB, 1,237 of 1,534 at 1 MiB; over TCP
// 302 of 329, 514 of 643, 3,943 of 4,922. Five: 79 of 92 and 767 of 778; 299 of 268 and 2,117 of
// 2,248. At 4 MiB five lose, by 12 %. Four gain little: 69 of 72 at 64 KiB.
constexpr int kRanksPerCpu = 2;
constexpr size_t kTreeBytesMax = 1024 * 1024;

// Links that are described have a rate, by which it may be much less: 1.2 KiB at 200 Mbit/s.
size_t latency_bytes(const Topology* topology) {
  if (topology == nullptr) return kLatencyBytes;
  const double bytes = kLatencySeconds * topology->slowest_bytes_per_s;
  return static_cast<size_t>(std::min(bytes, double{kLatencyBytes}));
}

// From the fewest bytes on the busiest link to the most: torus and ring use every link they have,
// both ways; a hierarchy spares the wire between hosts; a tree fits always.
constexpr PlanKind kByBytes[] = {PlanKind::kTorus, PlanKind::kBidirectionalRing,
                                 PlanKind::kHierarchical, PlanKind::kTree};

PlanKind choose_for_links(Collective collective, int size, size_t wire_bytes,
                          const Topology& topology) {
  PlanRequest request;
  request.collective = collective;
  request.size = size;
  request.topology = &topology;
  // A tree's few dependent messages count for more than its root's many bytes.
  const bool is_small = wire_bytes < latency_bytes(&topology);
  if (is_small && serves(PlanKind::kTree, collective)) return PlanKind::kTree;
  for (const PlanKind kind : kByBytes) {
    request.kind = kind;
    if (serves(kind, collective) && check_fit(request).ok()) return kind;
  }
  return PlanKind::kTwoStep;
}

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
// So b is below 64 KiB for n = 2 (its own limit), 48 KiB for 3, 21 KiB for 4 and 6.2 KiB for 8,
// where no link is known to be slower.
// Its error is no worse: n quantized contributions against n - 1 and a quantized sum
// (docs/plans.md).
PlanKind choose_plan(Collective collective, int size, size_t wire_bytes, const Topology* topology) {
  if (topology != nullptr && topology->ranks() == size) {
    const bool shares_hosts = topology->ranks() > topology->host_count();
    const bool wants_hierarchy = shares_hosts && topology->host_count() > 1 &&
                                 wire_bytes >= latency_bytes(topology) &&
                                 serves(PlanKind::kHierarchical, collective);
    if (!topology->all_adjacent) return choose_for_links(collective, size, wire_bytes, *topology);
    if (wants_hierarchy) return PlanKind::kHierarchical;
  }
  if (collective != Collective::kAllReduce || size < 2 || size > kOneShotSizeMax ||
      wire_bytes > kOneShotBytesMax) {
    return PlanKind::kTwoStep;
  }
  const auto n = static_cast<size_t>(size);
  return wire_bytes * (n - 1) * (n - 2) < latency_bytes(topology) * n ? PlanKind::kOneShot
                                                                      : PlanKind::kTwoStep;
}

PlanKind choose_lossless_plan(Collective collective, int size, size_t wire_bytes,
                              const Topology* topology, int cpus) {
  const bool takes_turns = cpus > 0 && (size - 1) / kRanksPerCpu >= cpus;
  if (topology == nullptr && takes_turns && collective == Collective::kAllReduce &&
      wire_bytes <= kTreeBytesMax) {
    return PlanKind::kTree;
  }
  return choose_plan(collective, size, wire_bytes, topology);
}

}  // namespace tersum
