// choose_path: codec and plan of a call that leaves one of them to tersum, and why.
//
// Thread safety: pure function. Invariant: the choice depends only on what all ranks of the group
// hold alike (table, rules, topology) and on the call's arguments.
#pragma once

#include <optional>
#include <vector>

#include "plan/plan.h"
#include "plan/topology.h"
#include "runtime/start_call.h"
#include "runtime/tuning/error_samples.h"
#include "runtime/tuning/tuning_rules.h"
#include "runtime/tuning/tuning_table.h"
#include "runtime/usual_plan.h"
#include "tersum/communicator.h"
#include "tersum/status.h"

namespace tersum {

struct PathContext {
  PlanGround ground;
  const TuningTable* table = nullptr;  // null: not tuned
  const std::vector<TuningRule>* rules = nullptr;
  std::optional<SampledCodecs> sampled;  // what recent samples allow this call
};

// Elements of the whole array: every rank's parts together where a call counts one rank's.
size_t whole_count(const PathContext& context, const CallArguments& arguments);

// The plan that the group would make, to ask whether it fits or how wrong it is: that does not
// depend on the length.
PlanRequest plan_request(const PathContext& context, Collective collective, PlanKind kind);

// Whether the call's codec is to be chosen by what samples of the values show: it is open, the call
// names an error, and its result is a sum.
bool wants_samples(const PathContext& context, const CallArguments& arguments,
                   const CallOptions& options);

// kInvalidArgument: the call names codecs to choose among that are none, or no error to choose by.
Status check_auto(const CallOptions& options);

// Whether codecs that flatten are among those that the call may take by samples; its sum then can
// teach the site's channels, by which they are judged.
bool may_flatten(const PathContext& context, const CallArguments& arguments,
                 const CallOptions& options);

// How often values are quantized on the way that the call would take: its own plan, or a tuning
// rule's that its links carry, or the rule of thumb's.
Result<PlanErrorTerms> error_terms(const PathContext& context, const CallArguments& arguments,
                                   const CallOptions& options);

// Whether choosing needs a table that `context` does not have: the codec is open, and a lossy one
// could serve the call.
bool needs_tuning(const PathContext& context, const CallArguments& arguments,
                  const CallOptions& options);

// kInvalidArgument: max_rel_error is negative, or below what the named codec can guarantee. A
// tuning rule's plan on which it cannot is passed over (ruled_plan.h), as the reason then says.
Result<PathChoice> choose_path(const PathContext& context, const CallArguments& arguments,
                               const CallOptions& options);

}  // namespace tersum
