// The verifier's first part: what a plan is made of, before any step is looked at.
//
// Thread safety: pure functions.
#pragma once

#include <string>

#include "plan/plan.h"
#include "tersum/status.h"

namespace tersum {

// Size, kind, root and the number of step lists make sense; the chunks follow each other from 0 to
// plan.count, begin at multiples of the granule, and are equal parts where they must be.
Status check_plan_layout(const Plan& plan);

// kInternal: "plan <kind> of <collective> over <size> ranks: <text>".
Status plan_breach(const Plan& plan, const std::string& text);

}  // namespace tersum
