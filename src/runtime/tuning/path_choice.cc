#include "runtime/tuning/path_choice.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <string>

#include "codec/codec.h"
#include "plan/collective_rules.h"
#include "plan/plan_fit.h"
#include "runtime/plan_needed.h"
#include "runtime/tuning/auto_codecs.h"
#include "runtime/tuning/call_time.h"
#include "runtime/tuning/error_limit.h"
#include "runtime/tuning/open_plans.h"
#include "runtime/tuning/ruled_plan.h"
#include "runtime/tuning/tuning_codecs.h"

namespace tersum {
namespace {

// Whether int8/128 loses anything of such values, and so serves them. Every call with an open codec
// asks, some more than once.
bool is_lossy_for(DataType type, ReduceOp op) {
  constexpr size_t kOps = static_cast<size_t>(ReduceOp::kMin) + 1;
  static const auto known = [] {
    std::array<std::array<bool, kOps>, kDataTypeCount> lossy{};
    for (size_t t = 0; t < lossy.size(); ++t) {
      for (size_t o = 0; o < kOps; ++o) {
        const Result<const Codec*> codec =
            find_codec("int8/128", static_cast<DataType>(t), static_cast<ReduceOp>(o));
        lossy[t][o] = codec.ok() && !codec.value()->lossless();
      }
    }
    return lossy;
  }();
  return known.at(static_cast<size_t>(type)).at(static_cast<size_t>(op));
}

bool lossy_may_serve(const PathContext& context, const CallArguments& arguments,
                     const CallOptions& options) {
  if (context.ground.size == 1 || arguments.count == 0) return false;
  // Values that are only copied stay as they are unless the caller says how wrong they may be.
  if (!reduces(arguments.collective) && options.max_rel_error <= 0) return false;
  if (arguments.collective == Collective::kBarrier) return false;
  return is_lossy_for(arguments.type, arguments.op);
}

// The codecs whose relative_error_bound is at most `max_rel_error`, exact always among them. 0
// stands for the bound of the default codec, int8/128.
std::vector<std::string_view> codecs_within(double max_rel_error, const PlanErrorTerms& terms,
                                            int ranks) {
  const double allowed =
      max_rel_error > 0 ? max_rel_error : relative_error_bound("int8/128", terms, ranks);
  std::vector<std::string_view> codecs;
  for (const std::string_view codec : tuning_codecs()) {
    if (codec == "exact" || relative_error_bound(codec, terms, ranks) <= allowed) {
      codecs.push_back(codec);
    }
  }
  return codecs;
}

// Of the measured codecs the one that puts about as many bytes on the wire.
std::string_view measured_like(std::string_view codec) {
  const auto bits = [](std::string_view spec) {
    const Result<const Codec*> found = find_codec(spec, DataType::kFloat32, ReduceOp::kSum);
    return found.ok() ? static_cast<double>(found.value()->wire_bytes(1024)) : 0.0;
  };
  std::string_view best = tuning_codecs().front();
  for (const std::string_view candidate : tuning_codecs()) {
    if (std::abs(bits(candidate) - bits(codec)) < std::abs(bits(best) - bits(codec))) {
      best = candidate;
    }
  }
  return best;
}

// Plans that an open call may always be given: its error is checked before (check_error).
bool adds_side_by_side(PlanKind plan) {
  return is_side_by_side(plan) || plan == PlanKind::kHierarchical || plan == PlanKind::kAuto;
}

// Whether a call of `format` (null: of none that is known) may take the plan `way` of the table;
// `plan`: that of the call, or of a rule.
bool may_go(const PathContext& context, const CallArguments& arguments,
            const CallOptions& call_options, PlanKind plan, const Codec* format, PlanKind way) {
  if (arguments.collective != Collective::kAllReduce) {
    // Measured with sums; what is said of others by that holds for plans with as many hops.
    const bool alike =
        way != PlanKind::kOneShot && way != PlanKind::kRing && way != PlanKind::kTree;
    if (!alike || (way != PlanKind::kAuto && !serves(way, arguments.collective))) return false;
  }
  if (plan != PlanKind::kAuto) return way == plan;
  if (adds_side_by_side(way)) return true;
  // Others quantize partial sums: more error than a call may have meant that left its plan open.
  return format != nullptr && error_allows(context, arguments, call_options, *format, way);
}

// Ways of the table for this call. The table is of float32: a lossy codec costs what it costs for
// as many float32 values, the exact path what as many bytes cost. `coded`: the codec that the lossy
// ones stand for; null: each for itself.
std::vector<TuningOption> ranked(const PathContext& context, const CallArguments& arguments,
                                 const CallOptions& call_options,
                                 const std::vector<std::string_view>& codecs, PlanKind plan,
                                 const Codec* coded = nullptr) {
  if (context.table == nullptr) return {};
  const size_t count = whole_count(context, arguments);
  std::vector<TuningOption> options = context.table->rank_ways(
      count * element_bytes(arguments.type), count * sizeof(float), codecs);
  std::erase_if(options, [&](const TuningOption& option) {
    const std::string_view codec = option.way.codec;
    const Result<const Codec*> own = find_codec(codec, arguments.type, arguments.op);
    const Codec* format = own.ok() ? own.value() : nullptr;
    if (coded != nullptr && codec != "exact") format = coded;
    return !may_go(context, arguments, call_options, plan, format, option.way.plan);
  });
  return options;
}

PathChoice take_best(const std::vector<TuningOption>& options, std::string reason) {
  PathChoice choice;
  choice.codec = options.front().way.codec;
  choice.plan = options.front().way.plan;
  choice.seconds = options.front().seconds;
  choice.reason = std::move(reason);
  for (const TuningOption& option : options) {
    choice.options.push_back({std::string(option.way.codec), option.way.plan, option.seconds});
  }
  return choice;
}

PathChoice named(std::string codec, PlanKind plan, std::string reason) {
  PathChoice choice;
  choice.codec = std::move(codec);
  choice.plan = plan;
  choice.reason = std::move(reason);
  return choice;
}

// Another reason, ahead of the choice's own, where it is not there already.
void put_before(std::string_view reason, PathChoice& choice) {
  if (reason.empty() || choice.reason.starts_with(reason)) return;
  choice.reason = std::string(reason) + "; " + choice.reason;
}

// Of a codec that is settled and keeps within the call's error on the rule of thumb's plan, by what
// was measured or is known of the links.
Result<PathChoice> choose_plan_only(const PathContext& context, const CallArguments& arguments,
                                    const CallOptions& options) {
  std::string codec(options.codec);
  if (options.plan != PlanKind::kAuto) {
    return named(std::move(codec), options.plan, "codec and plan are the caller's");
  }
  const Result<const Codec*> found = find_codec(codec, arguments.type, arguments.op);
  if (!found.ok()) return found.status();
  // A plan that is fast for another codec must not make a call fail.
  const auto refused = [&](const TuningOption& option) {
    return !takes_plan(*found.value(),
                       plan_request(context, arguments.collective, option.way.plan));
  };
  const std::string_view like =
      found.value()->lossless() ? tuning_codecs().front() : measured_like(codec);
  auto ways = ranked(context, arguments, options, {like}, PlanKind::kAuto, found.value());
  std::erase_if(ways, refused);
  if (ways.empty()) {
    const PlanKind needed = plan_needed(*found.value(), arguments.collective, context.ground.size);
    if (auto priced = plan_by_cost(context, arguments, options, *found.value())) {
      priced->codec = std::move(codec);
      return *std::move(priced);
    }
    const char* const reason = needed == PlanKind::kAuto
                                   ? "not tuned: the plan is the rule of thumb's"
                                   : "no plan was measured by which the codec adds";
    return named(std::move(codec), needed, reason);
  }
  PathChoice choice = take_best(ways, "the fastest plan measured for this codec and size");
  choice.codec = std::move(codec);
  take_plan_by_cost(context, arguments, options, choice);
  return choice;
}

// Of a codec that is settled, whatever rules say of the plan.
Result<PathChoice> choose_unruled(const PathContext& context, const CallArguments& arguments,
                                  const CallOptions& options) {
  const Status fits = check_error(context, arguments, options);
  if (fits.ok()) return choose_plan_only(context, arguments, options);
  // What hosts add up first is quantized once more; without that the call may be exact enough.
  CallOptions direct = options;
  direct.plan = PlanKind::kTwoStep;
  const bool is_open = options.plan == PlanKind::kAuto && reaches_all(context.ground.topology);
  if (!is_open || !check_error(context, arguments, direct).ok()) return fits;
  return named(std::string(options.codec), PlanKind::kTwoStep,
               "partial sums of hosts would be more wrong than the call allows");
}

// Of a codec that is settled, by the caller or by a rule.
Result<PathChoice> choose_for_codec(const PathContext& context, const CallArguments& arguments,
                                    const CallOptions& options) {
  if (options.plan != PlanKind::kAuto) return choose_unruled(context, arguments, options);
  const Result<const Codec*> found = find_codec(options.codec, arguments.type, arguments.op);
  if (!found.ok()) return found.status();
  const RuledPlan ruled = ruled_plan(context, arguments, options, found.value());
  if (ruled.plan != PlanKind::kAuto) {
    return named(std::string(options.codec), ruled.plan, "the plan is a tuning rule's");
  }
  Result<PathChoice> choice = choose_unruled(context, arguments, options);
  if (choice.ok()) put_before(ruled.passed_over, *choice);
  return choice;
}

// The plans that were measured with some codec that loses.
std::vector<PlanKind> coded_plans(const TuningTable& table) {
  std::vector<PlanKind> plans;
  for (const TuningPoint& point : table.points()) {
    const bool is_new = std::find(plans.begin(), plans.end(), point.way.plan) == plans.end();
    if (point.way.codec != "exact" && is_new) plans.push_back(point.way.plan);
  }
  return plans;
}

// How long a call takes with a codec that samples allow: as measured, or worked out from what its
// own kernels take. Where the ranks have not said that, a measured codec of about as many bits
// stands for it.
std::optional<TuningOption> sampled_way(const PathContext& context, size_t count,
                                        const SampledCodec& sampled, const Codec& codec,
                                        PlanKind plan) {
  const TuningTable& table = *context.table;
  const size_t bytes = count * sizeof(float);
  const TuningWay way{sampled.codec, plan};
  const double least_s = table.exact_seconds(codec.wire_bytes(count));
  if (const auto seconds = measured_seconds(table, bytes, codec, plan)) {
    return TuningOption{way, *seconds, false, least_s};
  }
  const auto seconds =
      sampled.coding.encode > 0
          ? worked_out_seconds(table, count, context.ground.size, codec,
                               {sampled.coding, context.sampled->measured_coding}, plan)
          : table.seconds({measured_like(sampled.codec), plan}, bytes);
  if (!seconds) return std::nullopt;
  return TuningOption{way, *seconds, true, least_s};
}

// Each codec that samples allow by each measured plan.
std::vector<TuningOption> sampled_ways(const PathContext& context, const CallArguments& arguments,
                                       const CallOptions& options, PlanKind plan) {
  std::vector<TuningOption> ways;
  if (context.table == nullptr) return ways;
  const size_t count = whole_count(context, arguments);
  const std::vector<PlanKind> plans = coded_plans(*context.table);
  for (const SampledCodec& sampled : context.sampled->within) {
    const Result<const Codec*> codec = find_codec(sampled.codec, arguments.type, arguments.op);
    if (!codec.ok()) continue;
    for (const PlanKind way : plans) {
      if (!may_go(context, arguments, options, plan, codec.value(), way)) continue;
      const auto priced = sampled_way(context, count, sampled, *codec.value(), way);
      if (priced) ways.push_back(*priced);
    }
  }
  return ways;
}

// The fastest of the codecs that samples allow, or exact where none is clearly faster.
PathChoice choose_sampled(const PathContext& context, const CallArguments& arguments,
                          const CallOptions& options, PlanKind plan) {
  const std::vector<SampledCodec>& within = context.sampled->within;
  auto ways = ranked(context, arguments, options, {"exact"}, plan);
  if (within.empty()) {
    const char* const reason = "no codec was within the allowed error in samples of recent calls";
    return ways.empty() ? named("exact", plan, reason) : take_best(ways, reason);
  }
  const auto said_of = [](const SampledCodec& codec) {
    return std::string(codec.codec) + " lost " + error_text(codec.rel_error) +
           " of the sums in samples of recent calls, within the allowed error";
  };
  const auto priced = sampled_ways(context, arguments, options, plan);
  if (priced.empty()) {
    if (!ways.empty()) return take_best(ways, "what codecs would take by this plan is not known");
    // Of a plan that was not measured no times are known, only bits.
    return named(std::string(within.front().codec), plan, said_of(within.front()));
  }
  ways.insert(ways.end(), priced.begin(), priced.end());
  const size_t bytes = whole_count(context, arguments) * element_bytes(arguments.type);
  ways = TuningTable::rank(std::move(ways), bytes);
  const std::string_view taken = ways.front().way.codec;
  const auto found = std::find_if(within.begin(), within.end(),
                                  [&](const SampledCodec& codec) { return codec.codec == taken; });
  if (found != within.end()) return take_best(ways, said_of(*found));
  return take_best(ways, said_of(within.front()) + ", but none is clearly faster than exact");
}

// Of a codec that is open, and of a sum or whatever else a lossy one may serve.
Result<PathChoice> choose_open(const PathContext& context, const CallArguments& arguments,
                               const CallOptions& options, PlanKind plan) {
  CallOptions open = options;
  open.plan = plan;
  if (context.sampled && wants_samples(context, arguments, options)) {
    PathChoice choice = choose_sampled(context, arguments, options, plan);
    take_plan_by_cost(context, arguments, open, choice);
    return choice;
  }
  CallOptions settled = options;
  settled.codec = "exact";
  if (options.codec != "auto") {
    // Of the codecs that a call names nothing is known before a sample.
    Result<PathChoice> choice = choose_for_codec(context, arguments, settled);
    if (choice.ok()) choice->reason = "no sample has shown what the named codecs cost here";
    return choice;
  }
  Result<PlanErrorTerms> terms = error_terms(context, arguments, options);
  if (!terms.ok()) return terms.status();
  const auto codecs = codecs_within(options.max_rel_error, terms.value(), context.ground.size);
  const auto ways = ranked(context, arguments, options, codecs, plan);
  if (ways.empty()) {
    return choose_for_codec(context, arguments, settled);  // a plan that was not measured
  }
  const char* const reason = ways.front().way.codec == "exact"
                                 ? "no codec within the allowed error was clearly faster than exact"
                                 : "the fastest measured way within the allowed error";
  PathChoice choice = take_best(ways, reason);
  take_plan_by_cost(context, arguments, open, choice);
  return choice;
}

}  // namespace

size_t whole_count(const PathContext& context, const CallArguments& arguments) {
  return arguments.count * part_count(arguments.collective, context.ground.size);
}

PlanRequest plan_request(const PathContext& context, Collective collective, PlanKind kind) {
  PlanRequest request;
  request.collective = collective;
  request.kind = kind;
  request.size = context.ground.size;
  request.count = static_cast<size_t>(context.ground.size);
  request.topology = context.ground.topology;
  return request;
}

Result<PlanErrorTerms> error_terms(const PathContext& context, const CallArguments& arguments,
                                   const CallOptions& options) {
  PlanErrorTerms terms;
  terms.finals = 1;
  if (!reduces(arguments.collective)) return terms;
  PlanRequest request = plan_request(context, Collective::kAllReduce, options.plan);
  if (request.kind == PlanKind::kAuto) {
    request.kind = ruled_plan(context, arguments, options, nullptr).plan;
  }
  if (request.kind == PlanKind::kAuto) {
    request.kind =
        choose_plan(request.collective, request.size, size_t{1} << 30, context.ground.topology);
  } else if (request.kind == PlanKind::kOneShot) {
    request.kind = PlanKind::kTwoStep;  // which is no less wrong
  }
  Result<Plan> plan = make_plan(request);
  if (!plan.ok()) return plan.status();
  return plan_error_terms(plan.value());
}

Status check_auto(const CallOptions& options) {
  if (!is_auto(options.codec)) return {};
  const Result<const AutoCodecs*> codecs = find_auto_codecs(options.codec);
  if (!codecs.ok()) return codecs.status();
  if (!codecs.value()->is_named || options.max_rel_error > 0) return {};
  return invalid_argument("codec \"" + std::string(options.codec) +
                          "\" needs the error within which one of them is chosen, and "
                          "max_rel_error is " +
                          error_text(options.max_rel_error) + "; pass max_rel_error=0.01, say");
}

bool may_flatten(const PathContext& context, const CallArguments& arguments,
                 const CallOptions& options) {
  if (!shows_channels(arguments, options) || !wants_samples(context, arguments, options)) {
    return false;
  }
  const Result<const AutoCodecs*> codecs = find_auto_codecs(options.codec);
  return codecs.ok() && codecs.value()->flattens;
}

bool wants_samples(const PathContext& context, const CallArguments& arguments,
                   const CallOptions& options) {
  if (!is_auto(options.codec) || !(options.max_rel_error > 0)) return false;
  if (!std::isfinite(options.max_rel_error)) return false;
  if (!reduces(arguments.collective)) return false;
  const TuningRule* rule = rule_for(context, arguments);
  if (rule != nullptr && !rule->codec.empty()) return false;
  return lossy_may_serve(context, arguments, options);
}

bool needs_tuning(const PathContext& context, const CallArguments& arguments,
                  const CallOptions& options) {
  if (!is_auto(options.codec) || context.table != nullptr) return false;
  const TuningRule* rule = rule_for(context, arguments);
  if (rule != nullptr && !rule->codec.empty()) return false;
  return lossy_may_serve(context, arguments, options);
}

Result<PathChoice> choose_path(const PathContext& context, const CallArguments& arguments,
                               const CallOptions& options) {
  TERSUM_RETURN_IF_ERROR(check_auto(options));
  TERSUM_RETURN_IF_ERROR(check_limit(options));
  if (!is_auto(options.codec)) return choose_for_codec(context, arguments, options);
  CallOptions settled = options;
  settled.codec = "exact";
  if (!lossy_may_serve(context, arguments, options)) {
    Result<PathChoice> choice = choose_for_codec(context, arguments, settled);
    if (choice.ok()) put_before("only the exact path serves this call", *choice);
    return choice;
  }
  const TuningRule* rule = rule_for(context, arguments);
  if (rule != nullptr && !rule->codec.empty()) {
    settled.codec = rule->codec;
    Result<PathChoice> choice = choose_for_codec(context, arguments, settled);
    if (choice.ok()) put_before("the codec is a tuning rule's", *choice);
    return choice;
  }
  // The codec is chosen for the rule's plan, so that its error there is what is held to the limit.
  const RuledPlan ruled = ruled_plan(context, arguments, options, nullptr);
  const PlanKind plan = options.plan != PlanKind::kAuto ? options.plan : ruled.plan;
  Result<PathChoice> choice = choose_open(context, arguments, options, plan);
  if (choice.ok()) put_before(ruled.passed_over, *choice);
  return choice;
}

}  // namespace tersum
