// The plan of a call that leaves it open and of whose group nothing was measured.
//
// Thread safety: pure functions. Invariant: the same answer on all ranks, which agree on what it
// goes by.
#pragma once

#include "codec/codec.h"
#include "plan/plan.h"
#include "tersum/data_type.h"
#include "tersum/options.h"

namespace tersum {

// What a group is to its plans, the same on all ranks.
struct PlanGround {
  int size = 1;
  const Topology* topology = nullptr;
  int host_cpus = 0;  // as Member::host_cpus
};

// Whether partial sums are rounded on their way: those of 16-bit types are added in float32 and
// travel as what they are. Maxima are what they were.
inline bool rounds_partials(DataType type, ReduceOp op) {
  const bool adds = op == ReduceOp::kSum || op == ReduceOp::kAverage;
  return adds && (type == DataType::kBFloat16 || type == DataType::kFloat16);
}

// `count`: as in the public API of the collective.
inline PlanKind usual_plan(const PlanGround& ground, Collective collective, DataType type,
                           ReduceOp op, const Codec& codec, size_t count) {
  const size_t bytes = codec.wire_bytes(count);
  if (!codec.lossless() || rounds_partials(type, op)) {
    return choose_plan(collective, ground.size, bytes, ground.topology);
  }
  return choose_lossless_plan(collective, ground.size, bytes, ground.topology, ground.host_cpus);
}

}  // namespace tersum
