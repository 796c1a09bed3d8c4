#include "runtime/plan_fits.h"

#include <string>
#include <vector>

#include "plan/plan_fit.h"
#include "plan/plan_trees.h"
#include "plan/rank_blocks.h"
#include "runtime/plan_needed.h"

namespace tersum {
namespace {

std::string others_for(const Codec& codec, const PlanRequest& plan) {
  PlanRequest other = plan;
  std::vector<PlanKind> kinds = fitting_kinds(plan);
  std::erase_if(kinds, [&](PlanKind kind) {
    other.kind = kind;
    return !takes_plan(codec, other);
  });
  return kinds.empty() ? "another codec" : "plan " + join_kinds(kinds);
}

Status find_out(const Codec& codec, const PlanRequest& plan, bool pairs) {
  // Of one rank, as a whole plan has as many steps as pairs of ranks.
  PlanRequest probe = plan;
  probe.granule = 1;
  probe.only_rank = 0;
  const Result<Plan> made = make_plan(probe);
  if (!made.ok()) return made.status();
  if (!pairs || adds_in_pairs(probe)) return {};
  return unsupported("is refused on plan " + std::string(plan_kind_name(plan.kind)) +
                     ", by which hosts add up ranks that do not stand two by two; use " +
                     others_for(codec, probe));
}

}  // namespace

Status PlanFits::check(const Codec& codec, const PlanRequest& plan) {
  const bool pairs =
      !is_side_by_side(plan.kind) && ordered_sums(codec, plan.collective, plan.size) != nullptr;
  if (plan.kind == PlanKind::kAuto || (plan.topology == nullptr && !pairs)) return {};
  const bool is_long = plan.count > kStarCountMax;
  const std::lock_guard lock(mutex_);
  const auto [known, is_new] =
      known_.try_emplace({plan.collective, plan.kind, plan.root, is_long, pairs}, Status());
  if (is_new) known->second = find_out(codec, plan, pairs);
  if (known->second.code() != StatusCode::kUnsupported) return known->second;
  return unsupported("codec " + codec.spec().to_string() + " " +
                     std::string(known->second.message()));
}

}  // namespace tersum
