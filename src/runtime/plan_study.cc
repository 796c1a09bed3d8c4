#include "tersum/plan_study.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "codec/codec.h"
#include "codec/kmeans_codec.h"
#include "codec/shared_sums.h"
#include "plan/collective_rules.h"
#include "plan/cost_model.h"
#include "runtime/codec_timing.h"
#include "runtime/plan_needed.h"
#include "runtime/tuning/path_choice.h"
#include "runtime/usual_plan.h"

namespace tersum {
namespace {

Result<std::shared_ptr<const Topology>> topology_of(const PlanStudyOptions& options) {
  const size_t first = options.topology.find_first_not_of(" \t\r\n");
  if (first != std::string_view::npos && options.topology[first] == '{') {
    return parse_topology(options.topology);
  }
  const Result<double> rate = parse_rate(options.rate);
  if (!rate.ok()) return rate.status();
  return make_topology(options.topology, rate.value(), options.latency_us / 1e6);
}

PlanPrediction prediction_of(const PricedPlan& plan) {
  PlanPrediction prediction;
  prediction.plan = plan.kind;
  if (!plan.cost.ok()) {
    prediction.misfit = plan.cost.status().message();
    return prediction;
  }
  const PlanCost& cost = plan.cost.value();
  prediction.time_s = cost.time_s;
  prediction.wire_s = cost.wire_s;
  prediction.cpu_s = cost.cpu_s;
  prediction.memory_s = cost.memory_s;
  prediction.chain_s = cost.chunk_s;
  prediction.hops = cost.hops;
  prediction.dominant = cost_term_name(cost.dominant);
  return prediction;
}

// kAuto where a call that leaves its plan open is refused: what it would take is no plan that fits.
PlanKind open_plan(const std::vector<PlanPrediction>& plans, const Topology& topology,
                   const Codec& codec, const CallArguments& arguments) {
  const PathContext context{{topology.ranks(), &topology}, nullptr, nullptr, {}};
  const std::string spec = codec.spec().to_string();
  CallOptions call;
  call.codec = spec;
  Result<PathChoice> choice = choose_path(context, arguments, call);
  PlanKind taken = choice.ok() ? choice->plan : PlanKind::kAuto;
  if (taken == PlanKind::kAuto) {
    taken = usual_plan(context.ground, arguments.collective, arguments.type, arguments.op, codec,
                       arguments.count);
  }
  const bool fits = std::ranges::any_of(
      plans, [&](const auto& plan) { return plan.plan == taken && plan.misfit.empty(); });
  return fits ? taken : PlanKind::kAuto;
}

// An all-reduce moves as many finished sums as contributions; the others move one of the two.
double mean_wire_bytes(const Codec& codec, size_t count, Collective collective, int ranks) {
  const auto size = static_cast<uint32_t>(ranks);
  const Codec& sent = reduces(collective) ? *summing_codec(codec, size, false) : codec;
  const auto contribution = static_cast<double>(sent.wire_bytes(count));
  if (collective != Collective::kAllReduce) return contribution;
  const Codec& gathered = sent.gathered(size);
  return (contribution + static_cast<double>(gathered.wire_bytes(count))) / 2;
}

// The scales that ranks agree on before a sum are an all-reduce of their own, of a bf16 a block.
double agreed_wire_bytes(const Codec& codec, size_t count, Collective collective, int ranks) {
  const SharedSums* const sums = codec.shared_sums();
  if (sums == nullptr || !reduces(collective) || ranks < 2 || count == 0) return 0;
  const double phases = collective == Collective::kAllReduce ? 1 : 2;
  return phases * static_cast<double>(shared_scale_count(*sums, count) * sizeof(uint16_t));
}

// Misfits come last. A plan that the codec does not sum by is one, however quick it would be.
std::vector<PlanPrediction> predictions_of(const std::vector<PricedPlan>& plans, const Codec& codec,
                                           const CostRequest& request) {
  std::vector<PlanPrediction> fit;
  std::vector<PlanPrediction> misfits;
  for (const PricedPlan& plan : plans) {
    PlanPrediction prediction = prediction_of(plan);
    PlanRequest wanted;
    wanted.collective = request.collective;
    wanted.kind = plan.kind;
    wanted.size = request.topology->ranks();
    wanted.topology = request.topology;
    if (prediction.misfit.empty() && !takes_plan(codec, wanted)) {
      prediction = {};
      prediction.plan = plan.kind;
      prediction.misfit = "codec " + codec.spec().to_string() + " does not sum by it";
    }
    (prediction.misfit.empty() ? fit : misfits).push_back(std::move(prediction));
  }
  fit.insert(fit.end(), misfits.begin(), misfits.end());
  return fit;
}

}  // namespace

Result<PlanStudy> study_plans(const PlanStudyOptions& options) {
  if (options.cores < 1) {
    return invalid_argument("cores is " + std::to_string(options.cores) + "; use 1 or more");
  }
  Result<std::shared_ptr<const Topology>> topology = topology_of(options);
  if (!topology.ok()) return topology.status();
  const Result<const Codec*> found = find_codec(options.codec, options.type, ReduceOp::kSum);
  if (!found.ok()) return found.status();
  const Codec& codec = with_levels(found.value());
  const size_t element_bytes = tersum::element_bytes(options.type);
  const size_t count = options.bytes / element_bytes;

  CostRequest request;
  request.collective = options.collective;
  request.topology = topology.value().get();
  request.value_bytes = static_cast<double>(count * element_bytes);
  request.element_bytes = static_cast<double>(element_bytes);
  request.codec = typical_codec_rates(codec.spec().to_string());
  request.machine.cores = options.cores;
  request.machine.one_machine = options.one_machine;

  PlanStudy study;
  study.measured = options.measure_codec && codec.shared_sums() == nullptr;
  if (study.measured) {
    const Result<CodecRates> rates = measured_codec_rates(codec.spec().to_string());
    if (!rates.ok()) return rates.status();
    request.codec = rates.value();
  }
  study.topology = topology.value()->name;
  study.ranks = topology.value()->ranks();
  study.hosts = topology.value()->host_count();
  TERSUM_RETURN_IF_ERROR(check_sum_ranks(codec, static_cast<uint32_t>(study.ranks)));
  study.wire_bytes = mean_wire_bytes(codec, count, options.collective, study.ranks) +
                     agreed_wire_bytes(codec, count, options.collective, study.ranks);
  if (count > 0) request.codec.wire_ratio = study.wire_bytes / request.value_bytes;
  study.bound_s = wire_bound_s(request);
  study.plans = predictions_of(price_plans(request), codec, request);
  CallArguments arguments;
  arguments.collective = options.collective;
  arguments.count = count / part_count(options.collective, study.ranks);
  arguments.type = options.type;
  study.open_plan = open_plan(study.plans, *topology.value(), codec, arguments);
  return study;
}

}  // namespace tersum
