// Which plans there are for a collective, and which of them the links of a topology can carry.
//
// Thread safety: pure functions. Invariant: the answers are the same on every rank.
#pragma once

#include <string>
#include <vector>

#include "plan/plan.h"
#include "plan/plan_trees.h"

namespace tersum {

// Whether the algorithm is made for the collective. two_step serves all of them.
bool serves(PlanKind kind, Collective collective);
// "plan one_shot does not serve broadcast; use two_step, ring, bidirectional_ring or tree".
std::string unserved_text(PlanKind kind, Collective collective);

// Whether every rank reaches every other without a third.
bool reaches_all(const Topology* topology);

// For a request that is right but for its topology: whether the plan only uses links that are
// there. kInvalidArgument: "two_step needs a link between rank 0 and rank 2; topology ring4 has
// none".
Status check_fit(const PlanRequest& request);

// The kinds that serve request.collective and fit request.topology; request.kind does not matter.
std::vector<PlanKind> fitting_kinds(const PlanRequest& request);

// "a", "a or b", "a, b or c".
std::string join_kinds(const std::vector<PlanKind>& kinds);

}  // namespace tersum
