// The plan that a tuning rule names for a call, where the call may take it.
//
// A rule speaks of many calls and knows none of them: it must not make one fail, nor break the
// error that one was promised. Where it would, it is passed over, and says so to who asks why.
//
// Thread safety: pure functions. Invariant: the same answers on all ranks, which have the same
// rules.
#pragma once

#include <string>

#include "codec/codec.h"
#include "runtime/tuning/path_choice.h"
#include "runtime/tuning/tuning_rules.h"

namespace tersum {

struct RuledPlan {
  PlanKind plan = PlanKind::kAuto;  // kAuto: no rule names one, or it is passed over
  std::string passed_over;          // why; empty where it is not
};

// The first rule that fits the call, or null.
const TuningRule* rule_for(const PathContext& context, const CallArguments& arguments);

// For a call of `codec`, whose text is options.codec. Null: the codec is still open, and will be
// chosen for that plan, so that only the links can be against it. None where the call names a plan.
RuledPlan ruled_plan(const PathContext& context, const CallArguments& arguments,
                     const CallOptions& options, const Codec* codec);

}  // namespace tersum
