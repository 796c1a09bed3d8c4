// How wrong a plan's result typically is: what tells plans apart whose bounds, which add up every
// loss at its worst, say more than will ever be seen.
//
// Thread safety: pure function. Invariant: the same number on every rank.
#pragma once

#include "plan/plan.h"
#include "tersum/status.h"

namespace tersum {

// The relative error of a result, in units of one quantization: of independent contributions with
// equal statistics, whose errors add like the sides of right angles. A partial sum of k ranks that
// is coded on its way counts as k, one rank's values as 1 (docs/plans.md): sqrt(1 + (n - 1) / n) in
// two_step, sqrt((n + 1) / 2) in a ring. 0 for one rank, 1 for what is only copied. Of the request
// the length does not matter. Takes as long as the trees are large: size^2.
// kInvalidArgument where make_plan would refuse the plan.
Result<double> typical_error(const PlanRequest& request);

}  // namespace tersum
