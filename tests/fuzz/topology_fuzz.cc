// Any text as a topology's JSON: an error, or a topology that is written as text which gives the
// same one again, on which every plan that fits is right and has a price.
#include <cmath>
#include <string>

#include "base/check.h"
#include "fuzz_input.h"
#include "plan/cost_model.h"
#include "plan/plan.h"
#include "plan/topology.h"

namespace tersum {
namespace {

// Of more ranks plans take too long to prove.
constexpr int kProvedRanksMax = 12;

void check_plan(const CostRequest& request, const PricedPlan& priced) {
  PlanRequest wanted;
  wanted.collective = request.collective;
  wanted.kind = priced.kind;
  wanted.size = request.topology->ranks();
  wanted.count = static_cast<size_t>(request.value_bytes / request.element_bytes);
  wanted.topology = request.topology;
  const Result<Plan> plan = make_plan(wanted);
  TERSUM_CHECK(plan.ok() == priced.cost.ok());
  if (!plan.ok()) {
    TERSUM_CHECK(plan.status().message().starts_with(priced.cost.status().message()));
    return;
  }
  TERSUM_CHECK(verify_plan(plan.value()).ok());
  const PlanCost& cost = priced.cost.value();
  for (const double seconds : {cost.time_s, cost.wire_s, cost.cpu_s, cost.chunk_s, cost.ends_s}) {
    TERSUM_CHECK(std::isfinite(seconds) && seconds >= 0);
  }
  TERSUM_CHECK(wanted.size == 1 || wanted.count == 0 || cost.time_s > 0);
}

void check_plans(const Topology& topology, size_t parts) {
  if (topology.ranks() > kProvedRanksMax) return;
  const auto ranks = static_cast<size_t>(topology.ranks());
  for (int number = 0; number < kCollectiveCount; ++number) {
    CostRequest request;
    request.collective = static_cast<Collective>(number);
    if (request.collective == Collective::kBarrier) continue;
    // As many as all_to_all's parts divide.
    request.value_bytes = static_cast<double>(ranks * ranks * parts) * request.element_bytes;
    request.topology = &topology;
    request.codec = typical_codec_rates("int8");
    TERSUM_CHECK(std::isfinite(wire_bound_s(request)));
    for (const PricedPlan& priced : price_plans(request)) check_plan(request, priced);
  }
}

void fuzz_topology(std::string_view text) {
  const auto parsed = parse_topology(text);
  if (!parsed.ok()) {
    TERSUM_CHECK(parsed.status().code() == StatusCode::kInvalidArgument);
    TERSUM_CHECK(!parsed.status().message().empty());
    return;
  }
  const Topology& topology = *parsed.value();
  TERSUM_CHECK(topology.ranks() >= topology.host_count());
  const std::string written = describe_topology(topology);
  const auto again = parse_topology(written);
  TERSUM_CHECK(again.ok() && describe_topology(*again.value()) == written);
  TERSUM_CHECK(again.value()->links == topology.links);
  TERSUM_CHECK(again.value()->host_of == topology.host_of);
  // A message finds its way between any two ranks.
  const int last = topology.ranks() - 1;
  int at = 0;
  for (int hops = 0; at != last; ++hops) {
    TERSUM_CHECK(hops < topology.ranks());
    at = topology.next_hop(at, last);
  }
  // Arrays from nothing to 2 GiB, as the text's length has it.
  constexpr size_t kDoublings = 20;
  check_plans(topology, (size_t{1} << text.size() % kDoublings) - 1);
}

}  // namespace
}  // namespace tersum

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  tersum::fuzz_topology(tersum::FuzzInput(data, size).text());
  return 0;
}
