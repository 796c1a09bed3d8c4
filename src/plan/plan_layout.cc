#include "plan/plan_layout.h"

#include "plan/collective_rules.h"

namespace tersum {

Status plan_breach(const Plan& plan, const std::string& text) {
  return {StatusCode::kInternal, "plan " + std::string(plan_kind_name(plan.kind)) + " of " +
                                     std::string(collective_name(plan.collective)) + " over " +
                                     std::to_string(plan.size) + " ranks: " + text};
}

namespace {

Status check_shape(const Plan& plan) {
  if (plan.size < 1) return plan_breach(plan, "the size must be at least 1");
  if (plan.kind == PlanKind::kAuto) return plan_breach(plan, "auto is not a plan");
  if (plan.steps.size() != static_cast<size_t>(plan.size)) {
    return plan_breach(plan,
                       "it lists the steps of " + std::to_string(plan.steps.size()) + " ranks");
  }
  if (plan.replicated && (plan.collective != Collective::kAllReduce || plan.size == 1)) {
    return plan_breach(plan, "only an all_reduce of several ranks can be replicated");
  }
  if (has_root(plan.collective) && (plan.root < 0 || plan.root >= plan.size)) {
    return plan_breach(plan, "root " + std::to_string(plan.root) + " is not a rank");
  }
  if (plan.splits < 1) return plan_breach(plan, "a part is split into no chunks");
  if (plan.topology != nullptr && plan.topology->ranks() != plan.size) {
    return plan_breach(plan, "topology " + plan.topology->name + " has " +
                                 std::to_string(plan.topology->ranks()) + " ranks");
  }
  return ok_status();
}

// Chunks follow each other without gap from 0 to count and begin where they must. The parts of a
// collective that has any are all of one length, and cut into equally many chunks.
Status check_chunks(const Plan& plan) {
  if (plan.collective == Collective::kBarrier) {
    return plan.chunks.empty() ? ok_status() : plan_breach(plan, "a barrier carries no chunks");
  }
  if (plan.chunks.empty()) return plan_breach(plan, "it has no chunks");
  const size_t parts = part_count(plan.collective, plan.size);
  const size_t per_part = parts > 1 ? plan.splits : plan.chunks.size();
  if (plan.count % parts != 0 || plan.chunks.size() != parts * per_part) {
    return plan_breach(plan, "the chunks are not the ranks' equal parts");
  }
  if (plan.granule == 0) return plan_breach(plan, "the granule is 0");
  size_t covered = 0;
  for (size_t i = 0; i < plan.chunks.size(); ++i) {
    const ChunkRange& range = plan.chunks[i];
    const std::string name = "chunk " + std::to_string(i);
    const size_t part_begin = i / per_part * (plan.count / parts);
    const size_t part_end = part_begin + plan.count / parts;
    if (range.begin != covered || range.end < range.begin) {
      return plan_breach(plan, name + " does not begin where the one before it ends");
    }
    const bool ends_part = i % per_part + 1 == per_part;
    if (parts > 1 && (range.end > part_end || (ends_part && range.end != part_end))) {
      return plan_breach(plan, name + " is not within its equal part");
    }
    if (range.begin < part_end && (range.begin - part_begin) % plan.granule != 0) {
      return plan_breach(plan, name + " does not begin at a multiple of the granule");
    }
    covered = range.end;
  }
  if (covered != plan.count) {
    return plan_breach(plan, "the chunks cover " + std::to_string(covered) + " of " +
                                 std::to_string(plan.count) + " elements");
  }
  return ok_status();
}

}  // namespace

Status check_plan_layout(const Plan& plan) {
  TERSUM_RETURN_IF_ERROR(check_shape(plan));
  return check_chunks(plan);
}

}  // namespace tersum
