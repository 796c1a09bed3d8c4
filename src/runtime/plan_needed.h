// The plan of calls whose codec leaves no choice.
//
// Thread safety: a pure function.
#pragma once

#include "codec/codec.h"
#include "codec/shared_sums.h"
#include "plan/collective_rules.h"
#include "plan/plan.h"

namespace tersum {

// kTwoStep where a call leaves its plan open and whoever adds up must have all contributions side
// by side; else kAuto.
inline PlanKind plan_needed(const Codec& codec, Collective collective, int ranks) {
  const SharedSums* const sums = codec.shared_sums();
  const bool is_free =
      sums == nullptr || sums->takes_partials() || ranks < 2 || !reduces(collective);
  return is_free ? PlanKind::kAuto : PlanKind::kTwoStep;
}

}  // namespace tersum
