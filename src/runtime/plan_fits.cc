#include "runtime/plan_fits.h"

#include <string>

#include "runtime/plan_needed.h"

namespace tersum {
namespace {

Status find_out(const PlanRequest& plan, bool pairs) {
  // Of one rank, as a whole plan has as many steps as pairs of ranks.
  PlanRequest probe = plan;
  probe.count = 0;
  probe.granule = 1;
  probe.only_rank = 0;
  const Result<Plan> made = make_plan(probe);
  if (!made.ok()) return made.status();
  if (!pairs || adds_in_pairs(probe)) return {};
  return unsupported("is refused on plan " + std::string(plan_kind_name(plan.kind)) +
                     ", by which hosts add up ranks that do not stand two by two; use plan "
                     "two_step or one_shot, or give each host 2, 4, 8, … neighbours");
}

}  // namespace

Status PlanFits::check(const Codec& codec, const PlanRequest& plan) {
  const bool pairs =
      !is_side_by_side(plan.kind) && ordered_sums(codec, plan.collective, plan.size) != nullptr;
  if (plan.kind == PlanKind::kAuto || (plan.topology == nullptr && !pairs)) return {};
  const std::lock_guard lock(mutex_);
  const auto [known, is_new] =
      known_.try_emplace({plan.collective, plan.kind, plan.root, pairs}, Status());
  if (is_new) known->second = find_out(plan, pairs);
  if (known->second.code() != StatusCode::kUnsupported) return known->second;
  return unsupported("codec " + codec.spec().to_string() + " " +
                     std::string(known->second.message()));
}

}  // namespace tersum
