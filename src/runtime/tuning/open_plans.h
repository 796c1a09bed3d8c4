// Open plans: what a call that leaves its plan open may be given beside the rule of thumb's plan
// (usual_plan), and which of it the cost model finds quickest.
//
// A faster plan may code partial sums more often. How much more error that may cost is settled
// here, once for measured and for predicted plans; Communicator::error_bound answers by it.
//
// Thread safety: pure functions. Invariant: the same answers on all ranks, for they depend on the
// topology and on the call alone; kernels are priced by the rates of one machine, not of this one.
#pragma once

#include <cstddef>
#include <optional>
#include <string_view>
#include <vector>

#include "codec/codec.h"
#include "plan/plan.h"
#include "runtime/tuning/path_choice.h"

namespace tersum {

// Groups larger than this keep to the rule of thumb: pricing every plan takes longer there than
// many a call.
inline constexpr int kPricedRanksMax = 64;

// Links whose rates a file names, so that the cost model can be asked. Not of topologies that are
// only named, nor of hosts that a group has found.
bool has_rates(const Topology* topology);

// The largest error of a float32 sum over `ranks` ranks, as a part of `ranks` times the largest
// magnitude that any of them holds.
double relative_error_bound(std::string_view codec, const PlanErrorTerms& terms, int ranks);

// Whether `plan` with `codec` keeps within what the call allows. With max_rel_error: what the codec
// guarantees on that plan. Without, where rates are described: a typical error (typical_error.h) of
// sqrt 3 quantizations, which an open plan may cost over hosts of several ranks anyway, or of the
// rule of thumb's plan if that is more; elsewhere no larger a bound than that plan's. The rule's
// own plan is always within. Exact sums of 16-bit types, whose partial sums are rounded where they
// pass, keep to that plan, two_step, one_shot and hierarchical.
bool error_allows(const PathContext& context, const CallArguments& arguments,
                  const CallOptions& options, const Codec& codec, PlanKind plan);

// Every plan that a call which names no error may be given, the rule of thumb's first; a tuning
// rule's among them. Of `arguments` collective, count and, for rules, the type matter.
std::vector<PlanKind> open_plans(const PathContext& context, const CallArguments& arguments,
                                 const Codec& codec);

// The plan that the cost model finds quickest, among those that fit the links, the codec and the
// error that the call allows, with what it expects of each. nullopt where rates are not described,
// of arrays below 128 KiB, or where nothing is faster by more than 3 % than `measured`, what the
// call would take otherwise (kAuto: the rule of thumb's plan).
std::optional<PathChoice> plan_by_cost(const PathContext& context, const CallArguments& arguments,
                                       const CallOptions& options, const Codec& codec,
                                       PlanKind measured = PlanKind::kAuto);

// Gives `choice`, whose codec is settled, the plan of plan_by_cost if there is one and the call is
// far larger than all that was measured, or larger than what was of its codec: links whose rate is
// known tell more of it than a line through small sizes, which is all that tuning has time for on
// slow ones.
void take_plan_by_cost(const PathContext& context, const CallArguments& arguments,
                       const CallOptions& options, PathChoice& choice);

// Beside the rule of thumb's plan, the (at most two) quickest plans by the cost model for an
// all_reduce of `bytes` of float32: worth measuring. Links without described rates are priced at
// 1 Gbit/s. Empty where everybody reaches everybody and no rate is described.
std::vector<PlanKind> plans_to_measure(size_t bytes, int size, const Topology* topology);

}  // namespace tersum
