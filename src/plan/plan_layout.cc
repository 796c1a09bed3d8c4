#include "plan/plan_layout.h"

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
  if (plan.collective == Collective::kBroadcast && (plan.root < 0 || plan.root >= plan.size)) {
    return plan_breach(plan, "root " + std::to_string(plan.root) + " is not a rank");
  }
  return ok_status();
}

// Chunks follow each other without gap from 0 to count and begin where they must.
Status check_chunks(const Plan& plan) {
  const auto size = static_cast<size_t>(plan.size);
  const bool equal_parts =
      plan.collective == Collective::kReduceScatter || plan.collective == Collective::kAllGather;
  if (plan.collective == Collective::kBarrier) {
    return plan.chunks.empty() ? ok_status() : plan_breach(plan, "a barrier carries no chunks");
  }
  if (plan.chunks.empty()) return plan_breach(plan, "it has no chunks");
  if (equal_parts && (plan.chunks.size() != size || plan.count % size != 0)) {
    return plan_breach(plan, "the chunks are not the ranks' equal parts");
  }
  if (plan.granule == 0) return plan_breach(plan, "the granule is 0");
  size_t covered = 0;
  for (size_t i = 0; i < plan.chunks.size(); ++i) {
    const ChunkRange& range = plan.chunks[i];
    const std::string name = "chunk " + std::to_string(i);
    if (range.begin != covered || range.end < range.begin) {
      return plan_breach(plan, name + " does not begin where the one before it ends");
    }
    if (equal_parts && range.end - range.begin != plan.count / size) {
      return plan_breach(plan, name + " is not an equal part");
    }
    if (!equal_parts && range.begin < plan.count && range.begin % plan.granule != 0) {
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
