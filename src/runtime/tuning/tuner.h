// Tuner: measures a group by running collectives in it, so that calls can choose by fact.
//
// What is measured is what a call will meet: link, latency, codec kernels, shared memory's
// placement and the cost of the engine itself, all in one number per codec, plan and size.
//
// Thread safety: one tuning of a group at a time; blocks. Collective: all ranks take part. What is
// decided on the way (whether a cached table holds, when to stop) is agreed by all of them first.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "base/clock.h"
#include "runtime/start_call.h"
#include "runtime/tuning/tuning_table.h"
#include "runtime/usual_plan.h"
#include "tersum/status.h"

namespace tersum {

struct TuningRequest {
  PlanGround ground;
  // Names hosts, wires and versions of the group; equal on all ranks. Empty: nothing is cached.
  std::string key;
  // What an earlier tuning of this group found, equal on all ranks; null: it was not tuned.
  const TuningTable* known = nullptr;
  // Measure although a known or cached table seems to hold.
  bool fresh = false;
  // All in all, looking at a known or cached table included.
  int64_t budget_ms = 200;
  // Equal on all ranks: the largest array of which inputs and outputs of all ranks stay in a cache
  // that they share; 0: they share none that is known.
  size_t cached_bytes = 0;
  // Equal on all ranks: smaller arrays, an input and an output each, they may reach in each other's
  // memory; 0: none. Exact values then take several calls in a row until their lines lie where they
  // will. Sizes for which there is time for a single look only are not waited for so.
  size_t reached_bytes = 0;
};

// Runs one collective of the group and waits for it.
using RunCall = std::function<Status(const CallArguments&, const CallOptions&)>;

// The table, equal on all ranks. What the group knows, else a table in the cache (tuning_cache.h)
// of which every rank has the same, is taken if exact values of 64 KiB and of the larger measured
// sizes still take what it says within a factor of two.
// Errors are those of the calls.
Result<TuningTable> tune_group(const TuningRequest& request, const Clock& clock,
                               const RunCall& run_call);

}  // namespace tersum
