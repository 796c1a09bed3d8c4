// What a call may name as its plan.
#pragma once

#include "tersum/options.h"

namespace tersum::testing {

inline constexpr PlanKind kEveryPlan[] = {PlanKind::kAuto,
                                          PlanKind::kTwoStep,
                                          PlanKind::kRing,
                                          PlanKind::kOneShot,
                                          PlanKind::kBidirectionalRing,
                                          PlanKind::kHalvingDoubling,
                                          PlanKind::kTorus,
                                          PlanKind::kTree,
                                          PlanKind::kHierarchical};

}  // namespace tersum::testing
