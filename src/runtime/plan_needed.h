// Which plans a codec can sum by, where it cannot by all.
//
// Thread safety: pure functions.
#pragma once

#include "codec/codec.h"
#include "codec/shared_sums.h"
#include "plan/collective_rules.h"
#include "plan/plan.h"
#include "plan/plan_fit.h"
#include "plan/rank_blocks.h"

namespace tersum {

// Null where it takes every plan as far as the order of additions goes.
inline const SharedSums* ordered_sums(const Codec& codec, Collective collective, int ranks) {
  const SharedSums* const sums = codec.shared_sums();
  const bool is_free =
      sums == nullptr || sums->takes_partials() || ranks < 2 || !reduces(collective);
  return is_free ? nullptr : sums;
}

// kTwoStep where a call leaves its plan open and the order of additions counts; else kAuto.
inline PlanKind plan_needed(const Codec& codec, Collective collective, int ranks) {
  return ordered_sums(codec, collective, ranks) == nullptr ? PlanKind::kAuto : PlanKind::kTwoStep;
}

// Partial sums are coded again at every rank that they pass.
inline bool is_ring(PlanKind plan) {
  return plan == PlanKind::kRing || plan == PlanKind::kBidirectionalRing ||
         plan == PlanKind::kTorus;
}

// Whoever adds up has every contribution as it was encoded.
inline bool is_side_by_side(PlanKind plan) {
  return plan == PlanKind::kTwoStep || plan == PlanKind::kOneShot;
}

// Whether a call may run by `plan`, which is not kAuto, on the links for which it is right. Two
// ranks have one hop, and add in one order, whatever the plan is called.
inline bool may_take_plan(const Codec& codec, Collective collective, int ranks, PlanKind plan) {
  if (const SharedSums* const sums = ordered_sums(codec, collective, ranks)) {
    if (plan == PlanKind::kOneShot) return sums->takes_replicas();
    return plan == PlanKind::kTwoStep || (sums->takes_pairs() && (ranks == 2 || !is_ring(plan)));
  }
  return codec.takes_hops() || !reduces(collective) || ranks <= 2 || !is_ring(plan);
}

// And on the links that there are, where that is asked for. Takes as long as making the plan.
inline bool takes_plan(const Codec& codec, const PlanRequest& plan) {
  if (!may_take_plan(codec, plan.collective, plan.size, plan.kind)) return false;
  if (plan.topology != nullptr && !check_fit(plan).ok()) return false;
  return is_side_by_side(plan.kind) || ordered_sums(codec, plan.collective, plan.size) == nullptr ||
         adds_in_pairs(plan);
}

}  // namespace tersum
