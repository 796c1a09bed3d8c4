#include "runtime/tuning/ruled_plan.h"

#include "plan/plan_fit.h"
#include "runtime/plan_needed.h"
#include "runtime/tuning/error_limit.h"

namespace tersum {
namespace {

// Why a call cannot take the plan at all; empty: it can.
std::string misfit(const PathContext& context, const CallArguments& arguments, const Codec* codec,
                   PlanKind plan) {
  if (!serves(plan, arguments.collective)) return unserved_text(plan, arguments.collective);
  const PlanRequest wanted = plan_request(context, arguments.collective, plan);
  if (context.ground.topology != nullptr) {
    const Status fits = check_fit(wanted);
    if (!fits.ok()) return std::string(fits.message());
  }
  if (codec == nullptr || takes_plan(*codec, wanted)) return {};
  return "codec " + codec->spec().to_string() + " is refused on it";
}

}  // namespace

const TuningRule* rule_for(const PathContext& context, const CallArguments& arguments) {
  if (context.rules == nullptr) return nullptr;
  return find_rule(*context.rules, arguments.collective,
                   whole_count(context, arguments) * element_bytes(arguments.type));
}

RuledPlan ruled_plan(const PathContext& context, const CallArguments& arguments,
                     const CallOptions& options, const Codec* codec) {
  RuledPlan ruled;
  if (options.plan != PlanKind::kAuto) return ruled;
  const TuningRule* const rule = rule_for(context, arguments);
  if (rule == nullptr || rule->plan == PlanKind::kAuto) return ruled;
  std::string why = misfit(context, arguments, codec, rule->plan);
  if (why.empty() && codec != nullptr) {
    CallOptions named = options;
    named.plan = rule->plan;
    Result<std::string> excess = excess_error(context, arguments, named);
    why = excess.ok() ? std::move(excess).value() : std::string(excess.status().message());
  }
  if (why.empty()) {
    ruled.plan = rule->plan;
  } else {
    ruled.passed_over = "a tuning rule's plan " + std::string(plan_kind_name(rule->plan)) +
                        " is passed over: " + why;
  }
  return ruled;
}

}  // namespace tersum
