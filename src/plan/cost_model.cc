#include "plan/cost_model.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "plan/collective_rules.h"
#include "plan/cost_tally.h"
#include "plan/plan_fit.h"
#include "plan/plan_trees.h"

namespace tersum {
namespace {

struct TypicalRates {
  std::string_view codec;
  CodecRates rates;
};
// Arrays in L3; docs/plans.md has the machine. The wire ratio is the codec's own business.
constexpr TypicalRates kTypicalRates[] = {
    {"int8", {63.9e9, 32.7e9, 212e9, 89e9, 1}},
    {"int4", {57.3e9, 24.1e9, 128e9, 103e9, 1}},
    {"bf16", {85e9, 61e9, 200e9, 82e9, 1}},
    {"exact", {65.5e9, 43e9, 200e9, 65.5e9, 1}},
};

PlanRequest plan_request(const CostRequest& request, PlanKind kind) {
  PlanRequest plan;
  plan.collective = request.collective;
  plan.kind = kind;
  plan.size = request.topology->ranks();
  plan.count = static_cast<size_t>(request.value_bytes / request.element_bytes);
  plan.root = request.root;
  plan.topology = request.topology;
  return plan;
}

Status tally_plan(const CostRequest& request, PlanKind kind, CostTally& tally) {
  const PlanRequest plan = plan_request(request, kind);
  if (!serves(kind, request.collective)) {
    return invalid_argument(unserved_text(kind, request.collective));
  }
  TERSUM_RETURN_IF_ERROR(check_fit(plan));
  if (request.collective == Collective::kBarrier) return ok_status();
  if (kind == PlanKind::kOneShot) {
    tally.add_exchange();
    return ok_status();
  }
  Result<PlanTrees> trees = make_trees(plan);
  if (!trees.ok()) return trees.status();
  double weight_sum = 0;
  for (const uint32_t weight : trees->weights) weight_sum += weight;
  // Chunks of different owners differ little; so many owners' ways are enough to find the longest.
  constexpr uint32_t kOwnersFollowed = 64;
  const auto chunks = static_cast<uint32_t>(trees->weights.size());
  const uint32_t stride = chunks / trees->splits / kOwnersFollowed + 1;
  ChunkTree tree;
  for (uint32_t chunk = 0; chunk < chunks; ++chunk) {
    const double bytes = request.value_bytes * trees->weights[chunk] / weight_sum;
    trees->fill(chunk, tree);
    tally.add_chunk(tree, bytes, chunk / trees->splits % stride == 0);
  }
  return ok_status();
}

// What takes the most of the time; latency is what nothing else explains.
CostTerm dominant_term(const PlanCost& cost) {
  const double codec_s = cost.cpu_s * cost.codec_share;
  const double busiest = std::max({cost.wire_s, cost.cpu_s, cost.memory_s});
  if (cost.time_s - busiest > busiest) return CostTerm::kLatency;
  if (cost.wire_s == busiest) return CostTerm::kWire;
  if (cost.memory_s == busiest) return CostTerm::kMemory;
  return 2 * codec_s > cost.cpu_s ? CostTerm::kCodec : CostTerm::kTransport;
}

// Of the plans that are as good as equally quick, those that leave the cores most time; of these,
// the one with the fewest dependent messages. `plans` are sorted by time.
void put_lightest_first(std::vector<PricedPlan>& plans) {
  constexpr double kAsQuick = 1.005;
  constexpr double kAsLight = 1.02;
  if (plans.empty() || !plans[0].cost.ok()) return;
  size_t quick = 0;
  double least_cpu_s = HUGE_VAL;
  for (; quick < plans.size() && plans[quick].cost.ok(); ++quick) {
    const PlanCost& cost = plans[quick].cost.value();
    if (cost.time_s > kAsQuick * plans[0].cost.value().time_s) break;
    least_cpu_s = std::min(least_cpu_s, cost.cpu_s);
  }
  size_t best = quick;
  for (size_t i = 0; i < quick; ++i) {
    const PlanCost& cost = plans[i].cost.value();
    if (cost.cpu_s > kAsLight * least_cpu_s) continue;
    if (best == quick || cost.hops < plans[best].cost.value().hops) best = i;
  }
  const auto first = plans.begin();
  const auto chosen = first + static_cast<ptrdiff_t>(best);
  std::rotate(first, chosen, chosen + 1);
}

}  // namespace

std::string_view cost_term_name(CostTerm term) {
  switch (term) {
    case CostTerm::kWire:
      return "wire";
    case CostTerm::kCodec:
      return "codec";
    case CostTerm::kTransport:
      return "transport";
    case CostTerm::kMemory:
      return "memory";
    case CostTerm::kLatency:
      return "latency";
  }
  return "unknown";
}

// The dependent messages of a plan follow each other in levels, and the busiest link is busy for
// wire / hops in each. A level's first slice needs hop_s to have an effect on the next one; that
// shows only as far as the link has run out of the level's other slices by then, and where a bucket
// saves up what a link waits, only as far as it is the cores that are waited for.
Result<PlanCost> price_plan(const CostRequest& request, PlanKind kind) {
  CostTally tally(request, kind);
  TERSUM_RETURN_IF_ERROR(tally_plan(request, kind, tally));
  tally.settle();
  const ChunkChain& chain = tally.longest();
  PlanCost cost;
  cost.wire_s = tally.wire_s();
  cost.ports_s = tally.ports_s();
  cost.cpu_s = tally.cpu_s();
  cost.memory_s = tally.memory_s();
  // Beside the chain's own messages, each of which has two ends, a core has the others to serve.
  const double others = std::max(tally.messages_max() - 2 * chain.hops, 0.0);
  cost.chunk_s = chain.time_s + (chain.slices > 1 ? 0 : others * request.machine.message_s);
  cost.ends_s = chain.ends_s;
  cost.codec_share = tally.codec_share();
  cost.hops = chain.hops;
  const double level_s = cost.wire_s / std::max(cost.hops, 1);
  const double covered_s = level_s * (1 - 1 / chain.slices);
  double waits_s = std::max(cost.hops - 1, 0) * std::max(chain.hop_s - covered_s, 0.0);
  if (chain.saves_up) waits_s = std::min(waits_s, request.machine.waited_cpu * cost.cpu_s);
  const double busy_s = std::max({cost.wire_s + cost.ports_s + waits_s, cost.cpu_s, cost.memory_s});
  cost.time_s = std::max(busy_s + cost.ends_s, cost.chunk_s) + request.machine.call_s;
  cost.dominant = dominant_term(cost);
  return cost;
}

std::vector<PricedPlan> price_plans(const CostRequest& request) {
  std::vector<PricedPlan> plans;
  for (int number = 1; number < kPlanKindCount; ++number) {
    const auto kind = static_cast<PlanKind>(number);
    if (serves(kind, request.collective)) plans.push_back({kind, price_plan(request, kind)});
  }
  std::sort(plans.begin(), plans.end(), [](const PricedPlan& a, const PricedPlan& b) {
    if (a.cost.ok() != b.cost.ok()) return a.cost.ok();
    if (!a.cost.ok()) return a.kind < b.kind;
    return std::pair(a.cost.value().time_s, a.kind) < std::pair(b.cost.value().time_s, b.kind);
  });
  put_lightest_first(plans);
  return plans;
}

PlanKind choose_plan_by_cost(const CostRequest& request) {
  const std::vector<PricedPlan> plans = price_plans(request);
  return !plans.empty() && plans.front().cost.ok() ? plans.front().kind : PlanKind::kTwoStep;
}

CodecRates typical_codec_rates(std::string_view codec) {
  for (const TypicalRates& typical : kTypicalRates) {
    if (codec.starts_with(typical.codec)) return typical.rates;
  }
  return kTypicalRates[3].rates;
}

}  // namespace tersum
