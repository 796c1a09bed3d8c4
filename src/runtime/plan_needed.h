// Which plans a codec can sum by, where it cannot by all.
//
// Thread safety: pure functions.
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

// Partial sums are coded again at every rank that they pass.
inline bool is_ring(PlanKind plan) {
  return plan == PlanKind::kRing || plan == PlanKind::kBidirectionalRing ||
         plan == PlanKind::kTorus;
}

// Whether a call may run by `plan`, which is not kAuto. Side by side also of two ranks: streams are
// added in the order of the ranks, which other plans do not keep. Two ranks have one hop, whatever
// it is called.
inline bool takes_plan(const Codec& codec, Collective collective, int ranks, PlanKind plan) {
  if (plan_needed(codec, collective, ranks) != PlanKind::kAuto) {
    return plan == PlanKind::kTwoStep ||
           (plan == PlanKind::kOneShot && codec.shared_sums()->takes_replicas());
  }
  return codec.takes_hops() || !reduces(collective) || ranks <= 2 || !is_ring(plan);
}

}  // namespace tersum
