#include "runtime/tuning/open_plans.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <string>

#include "base/check.h"
#include "codec/shared_sums.h"
#include "plan/collective_rules.h"
#include "plan/cost_model.h"
#include "plan/plan_fit.h"
#include "plan/typical_error.h"
#include "runtime/error_bound.h"
#include "runtime/plan_needed.h"
#include "runtime/tuning/ruled_plan.h"
#include "runtime/tuning/tuning_codecs.h"
#include "runtime/usual_plan.h"

namespace tersum {
namespace {

// The model is right within some per cent: what it says must be more than that is worth.
constexpr double kClearlyFaster = 1.03;
// Of one quantization's error, what an open plan may cost without a word of the caller's: that of
// hierarchical, sqrt(3 - 1/H - 1/k), stays below. Room for rounding only.
const double kTypicalErrorMax = std::sqrt(3.0) * (1 + 1e-9);
// Of float32; below that the model was not held against measured times, and calls are over sooner
// than plans are priced.
constexpr size_t kPricedBytesMin = 128 * 1024;
// How many times larger than all that was measured a call must be to go by the model again.
constexpr size_t kMeasuredReach = 2;
// What the model finds slower than the rule's plan by more is not worth the time to measure it.
constexpr double kWorthMeasuring = 1.25;
constexpr size_t kMeasuredBesideMax = 2;

// Of arrays that are not small: the rule's plan for these has the larger error.
PlanKind rule_of_thumb(const PathContext& context, Collective collective) {
  return choose_plan(collective, context.ground.size, size_t{1} << 30, context.ground.topology);
}

bool no_larger_bound(const PathContext& context, const CallArguments& arguments, const Codec& codec,
                     PlanKind plan, double allowed) {
  CallOptions named;
  named.plan = plan;
  const Result<PlanErrorTerms> terms = error_terms(context, arguments, named);
  if (!terms.ok()) return false;
  return relative_error_bound(codec.spec().to_string(), terms.value(), context.ground.size) <=
         allowed;
}

bool is_typical(const PathContext& context, Collective collective, PlanKind plan, PlanKind rule) {
  const Result<double> own = typical_error(plan_request(context, collective, plan));
  const Result<double> usual = typical_error(plan_request(context, collective, rule));
  return own.ok() && usual.ok() && own.value() <= std::max(kTypicalErrorMax, usual.value());
}

CostRequest cost_request(const CallArguments& arguments, const Codec& codec, size_t count,
                         const Topology& topology) {
  CostRequest request;
  request.collective = arguments.collective;
  request.topology = &topology;
  request.element_bytes = static_cast<double>(element_bytes(arguments.type));
  request.value_bytes = static_cast<double>(count) * request.element_bytes;
  request.codec = typical_codec_rates(codec.spec().to_string());
  request.codec.wire_ratio = static_cast<double>(codec.wire_bytes(count)) / request.value_bytes;
  return request;
}

bool is_priced(Collective collective) {
  return collective == Collective::kAllReduce || collective == Collective::kReduceScatter ||
         collective == Collective::kAllGather;
}

// Where rates are unknown they are so high that only cores would count.
Topology at_default_rates(const Topology& topology) {
  Topology known = topology;
  if (has_rates(&topology)) return known;
  for (TopologyLink& link : known.links) {
    link.bytes_per_s = kDefaultRateBytesPerSecond;
    link.latency_s = kDefaultLatencySeconds;
  }
  known.slowest_bytes_per_s = kDefaultRateBytesPerSecond;
  return known;
}

std::optional<double> seconds_of(const std::vector<PricedPlan>& plans, PlanKind kind) {
  for (const PricedPlan& plan : plans) {
    if (plan.kind == kind && plan.cost.ok()) return plan.cost.value().time_s;
  }
  return std::nullopt;
}

// Whether another plan was measured at the size of `point`: not where there was time for one look.
bool has_compared_plans(const TuningTable& table, const TuningPoint& point) {
  return std::any_of(table.points().begin(), table.points().end(), [&](const auto& other) {
    return other.bytes == point.bytes && other.way.plan != point.way.plan;
  });
}

}  // namespace

bool has_rates(const Topology* topology) {
  return topology != nullptr && topology->host_count() > 1 &&
         topology->slowest_bytes_per_s < kUnknownBytesPerSecond;
}

double relative_error_bound(std::string_view codec, const PlanErrorTerms& terms, int ranks) {
  const Result<const Codec*> found = find_codec(codec, DataType::kFloat32, ReduceOp::kSum);
  TERSUM_CHECK(found.ok());
  return compose_error_bound(*found.value(), terms, ranks, 1.0, ranks) / ranks;
}

bool error_allows(const PathContext& context, const CallArguments& arguments,
                  const CallOptions& options, const Codec& codec, PlanKind plan) {
  if (!reduces(arguments.collective)) return true;
  const PlanKind rule = rule_of_thumb(context, arguments.collective);
  if (plan == PlanKind::kAuto || plan == rule || plan == PlanKind::kOneShot) return true;
  if (codec.lossless()) {
    return !rounds_partials(arguments.type, arguments.op) || plan == PlanKind::kTwoStep ||
           plan == PlanKind::kHierarchical;
  }
  // What samples have shown holds of the rule's plan, not of one that codes more often.
  const bool is_named = options.max_rel_error > 0 && !context.sampled;
  if (is_named) {
    return no_larger_bound(context, arguments, codec, plan, options.max_rel_error);
  }
  // What a codec carries from call to call was learned on the plan that the site's calls took.
  const bool has_state = codec.feeds_back() || codec.flattens();
  if (!has_state && !context.sampled && has_rates(context.ground.topology) &&
      context.ground.size <= kPricedRanksMax) {
    return is_typical(context, arguments.collective, plan, rule);
  }
  CallOptions usual;
  usual.plan = rule;
  const Result<PlanErrorTerms> terms = error_terms(context, arguments, usual);
  if (!terms.ok()) return false;
  const double bound =
      relative_error_bound(codec.spec().to_string(), terms.value(), context.ground.size);
  return std::isfinite(bound) && no_larger_bound(context, arguments, codec, plan, bound);
}

std::vector<PlanKind> open_plans(const PathContext& context, const CallArguments& arguments,
                                 const Codec& codec) {
  const PlanKind rule = usual_plan(context.ground, arguments.collective, arguments.type,
                                   arguments.op, codec, arguments.count);
  std::vector<PlanKind> plans = {rule};
  const PlanKind ruled = ruled_plan(context, arguments, {}, &codec).plan;
  if (ruled != PlanKind::kAuto && ruled != rule) plans.push_back(ruled);
  if (codec.lossless()) return plans;
  const bool is_priced_here =
      has_rates(context.ground.topology) && context.ground.size <= kPricedRanksMax;
  // What is measured at any size; other measured plans have no larger a bound than these.
  const PlanKind measured = rule_of_thumb(context, arguments.collective);
  for (const PlanKind kind : fitting_kinds(plan_request(context, arguments.collective, rule))) {
    const bool is_measured =
        context.table != nullptr && (kind == PlanKind::kTwoStep || kind == measured);
    const bool may_be_taken =
        is_measured || (is_priced_here && error_allows(context, arguments, {}, codec, kind));
    if (kind != rule && kind != ruled && may_be_taken &&
        takes_plan(codec, plan_request(context, arguments.collective, kind))) {
      plans.push_back(kind);
    }
  }
  return plans;
}

std::optional<PathChoice> plan_by_cost(const PathContext& context, const CallArguments& arguments,
                                       const CallOptions& options, const Codec& codec,
                                       PlanKind measured) {
  if (!has_rates(context.ground.topology) || context.ground.size > kPricedRanksMax ||
      context.ground.size < 2 || arguments.count == 0 || !is_priced(arguments.collective) ||
      codec.shared_sums() != nullptr) {
    return std::nullopt;
  }
  const size_t count = whole_count(context, arguments);
  if (count * sizeof(float) < kPricedBytesMin) return std::nullopt;
  const auto plans = price_plans(cost_request(arguments, codec, count, *context.ground.topology));
  const PlanKind rule = usual_plan(context.ground, arguments.collective, arguments.type,
                                   arguments.op, codec, arguments.count);
  const PlanKind other = measured == PlanKind::kAuto ? rule : measured;
  const std::optional<double> other_s = seconds_of(plans, other);
  if (!other_s) return std::nullopt;
  PathChoice choice;
  for (const PricedPlan& plan : plans) {
    PlanRequest wanted = plan_request(context, arguments.collective, plan.kind);
    if (!plan.cost.ok() || !takes_plan(codec, wanted)) continue;
    if (!error_allows(context, arguments, options, codec, plan.kind)) continue;
    choice.options.push_back({codec.spec().to_string(), plan.kind, plan.cost.value().time_s});
  }
  if (choice.options.empty()) return std::nullopt;
  choice.plan = choice.options.front().plan;
  choice.seconds = choice.options.front().seconds;
  if (choice.plan == other || choice.seconds * kClearlyFaster > *other_s) return std::nullopt;
  choice.reason = "the cost model's plan for these links, faster than " +
                  std::string(plan_kind_name(other)) + " by more than 3 %";
  return choice;
}

void take_plan_by_cost(const PathContext& context, const CallArguments& arguments,
                       const CallOptions& options, PathChoice& choice) {
  if (context.table == nullptr || options.plan != PlanKind::kAuto) return;
  size_t largest = 0;
  size_t own_largest = 0;
  for (const TuningPoint& point : context.table->points()) {
    if (point.is_rough && !has_compared_plans(*context.table, point)) continue;
    largest = std::max(largest, point.bytes);
    if (point.way.codec == choice.codec) own_largest = std::max(own_largest, point.bytes);
  }
  // What is known of a codec that others have outlasted goes by theirs.
  const bool is_outlasted = own_largest > 0 && own_largest < largest;
  const size_t known = is_outlasted ? own_largest : kMeasuredReach * largest;
  if (whole_count(context, arguments) * sizeof(float) <= known) return;
  const Result<const Codec*> codec = find_codec(choice.codec, arguments.type, arguments.op);
  if (!codec.ok()) return;
  const auto priced = plan_by_cost(context, arguments, options, *codec.value(), choice.plan);
  if (!priced) return;
  choice.plan = priced->plan;
  choice.seconds = priced->seconds;
  choice.reason += "; beyond the measured sizes " + priced->reason;
  choice.options = priced->options;
}

std::vector<PlanKind> plans_to_measure(size_t bytes, int size, const Topology* topology) {
  const bool is_wired = topology != nullptr && !topology->all_adjacent;
  if (!(is_wired || has_rates(topology)) || size > kPricedRanksMax || size < 3) return {};
  const CallArguments arguments{Collective::kAllReduce, nullptr,        nullptr, bytes / 4,
                                DataType::kFloat32,     ReduceOp::kSum, 0};
  const Result<const Codec*> codec = find_codec("int8/128", DataType::kFloat32, ReduceOp::kSum);
  TERSUM_CHECK(codec.ok());
  const Topology priced = at_default_rates(*topology);
  const auto plans = price_plans(cost_request(arguments, *codec.value(), bytes / 4, priced));
  const PlanKind rule =
      choose_plan(Collective::kAllReduce, size, codec.value()->wire_bytes(bytes / 4), topology);
  const double limit_s = kWorthMeasuring * seconds_of(plans, rule).value_or(HUGE_VAL);
  std::vector<PlanKind> found;
  for (const PricedPlan& plan : plans) {
    if (found.size() == kMeasuredBesideMax || !plan.cost.ok()) break;
    if (plan.kind != rule && plan.cost.value().time_s <= limit_s) found.push_back(plan.kind);
  }
  return found;
}

}  // namespace tersum
