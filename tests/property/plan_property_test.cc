// Properties of plans under random corruption. rapidcheck prints the seed of a failing run.
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <set>
#include <string>
#include <utility>

#include "plan/plan.h"
#include "tests/unit/plan/plan_matrix.h"
#include "tests/unit/plan/plan_walker.h"

namespace tersum::testing {
namespace {

PlanRequest any_request() {
  const Algorithm algorithm =
      *rc::gen::elementOf(std::vector<Algorithm>(std::begin(kAlgorithms), std::end(kAlgorithms)));
  const int size = *rc::gen::inRange(1, 18);
  const size_t count =
      *rc::gen::oneOf(rc::gen::inRange<size_t>(0, 40), rc::gen::inRange<size_t>(1000, 200'000));
  const size_t granule = *rc::gen::element<size_t>(1, 32, 128);
  return request_of(algorithm, size, count, granule, *rc::gen::inRange(0, size));
}

// A connected graph of hosts and switches, some hosts with several ranks: a random tree, and some
// links more.
std::shared_ptr<const Topology> any_topology() {
  Topology topology;
  topology.name = "random";
  const int hosts = *rc::gen::inRange(1, 10);
  const int switches = *rc::gen::inRange(0, 3);
  for (int host = 0; host < hosts; ++host) {
    topology.hosts.push_back("h" + std::to_string(host));
    for (int i = *rc::gen::inRange(1, 4); i > 0; --i) topology.host_of.push_back(host);
  }
  for (int i = 0; i < switches; ++i) topology.switches.push_back("s" + std::to_string(i));
  std::set<std::pair<int, int>> wires;
  for (int node = 1; node < hosts + switches; ++node) {
    wires.insert({*rc::gen::inRange(0, node), node});
  }
  for (int more = hosts < 2 ? 0 : *rc::gen::inRange(0, 2 * hosts); more > 0; --more) {
    const int a = *rc::gen::inRange(0, hosts - 1);
    wires.insert({a, *rc::gen::inRange(a + 1, hosts)});
  }
  for (const auto& [a, b] : wires) {
    topology.links.push_back({a, b, 1e9, 1e-5, 0});
    topology.links.push_back({b, a, 1e9, 1e-5, 0});
  }
  int culprit = -1;
  RC_ASSERT(complete_topology(topology, culprit).ok());
  return std::make_shared<const Topology>(std::move(topology));
}

// A plan that has steps to corrupt, and one of those steps.
struct Victim {
  Plan plan;
  size_t rank = 0;
  size_t index = 0;
  [[nodiscard]] std::vector<Step>& steps() { return plan.steps[rank]; }
  [[nodiscard]] Step& step() { return plan.steps[rank][index]; }
};

Victim any_victim(int size_min) {
  PlanRequest request = any_request();
  RC_PRE(request.size >= size_min && request.collective != Collective::kBarrier);
  Victim victim{make_plan(request).value()};
  victim.rank = *rc::gen::inRange<size_t>(0, static_cast<size_t>(request.size));
  victim.index = *rc::gen::inRange<size_t>(0, victim.steps().size());
  RC_LOG() << describe(request) << ", rank " << victim.rank << ", step " << victim.index;
  return victim;
}

RC_GTEST_PROP(PlanProperty, EveryPlanIsAccepted, ()) {
  const Plan plan = make_plan(any_request()).value();
  const Status status = verify_plan(plan);
  RC_LOG() << status.to_string();
  RC_ASSERT(status.ok());
  RC_ASSERT(wrong_in(plan, PlanWalker(plan, *rc::gen::arbitrary<uint64_t>()).walk()).empty());
}

// On any connected topology: trees always fit; what fits is right and only uses links.
RC_GTEST_PROP(PlanProperty, WhatFitsATopologyIsRightThere, ()) {
  const auto topology = any_topology();
  const int size = topology->ranks();
  const Algorithm algorithm =
      *rc::gen::elementOf(std::vector<Algorithm>(std::begin(kAlgorithms), std::end(kAlgorithms)));
  PlanRequest request = request_of(algorithm, size, *rc::gen::inRange<size_t>(0, 50'000), 32,
                                   *rc::gen::inRange(0, size));
  request.topology = topology.get();
  RC_LOG() << describe(request) << "\n" << describe_topology(*topology);
  const Result<Plan> plan = make_plan(request);
  if (algorithm.kind == PlanKind::kTree) RC_ASSERT(plan.ok());
  RC_TAG(plan.ok() ? "fits" : "does not fit");
  if (!plan.ok()) {
    // Of a link, or all links of a torus are there and nothing says so.
    const std::string_view why = plan.status().message();
    RC_ASSERT(why.find("topology random has no") != std::string_view::npos ||
              why.find("topology random does not say") != std::string_view::npos);
    return;
  }
  const Status status = verify_plan(plan.value());
  RC_LOG() << status.to_string();
  RC_ASSERT(status.ok());
  const uint64_t seed = *rc::gen::arbitrary<uint64_t>();
  RC_ASSERT(wrong_in(plan.value(), PlanWalker(plan.value(), seed).walk()).empty());
}

RC_GTEST_PROP(PlanProperty, TheChoiceFitsWheneverAnyPlanDoes, ()) {
  const auto topology = any_topology();
  const auto collective = *rc::gen::element(
      Collective::kAllReduce, Collective::kReduceScatter, Collective::kAllGather,
      Collective::kBroadcast, Collective::kAllToAll, Collective::kGather, Collective::kScatter);
  const auto bytes = *rc::gen::element<size_t>(1, 10'000, 1'000'000, 1'000'000'000);
  const PlanKind kind = choose_plan(collective, topology->ranks(), bytes, topology.get());
  PlanRequest request = request_of({collective, kind}, topology->ranks(), 10'000);
  request.topology = topology.get();
  RC_ASSERT(make_plan(request).ok());
}

RC_GTEST_PROP(PlanProperty, ADroppedStepIsNoticed, ()) {
  Victim victim = any_victim(1);
  victim.steps().erase(victim.steps().begin() + static_cast<ptrdiff_t>(victim.index));
  RC_ASSERT(!verify_plan(victim.plan).ok());
}

RC_GTEST_PROP(PlanProperty, ADuplicatedStepIsNoticed, ()) {
  Victim victim = any_victim(1);
  const size_t where = *rc::gen::inRange<size_t>(0, victim.steps().size() + 1);
  const Step copy = victim.step();
  victim.steps().insert(victim.steps().begin() + static_cast<ptrdiff_t>(where), copy);
  RC_ASSERT(!verify_plan(victim.plan).ok());
}

RC_GTEST_PROP(PlanProperty, ARedirectedStepIsNoticed, ()) {
  Victim victim = any_victim(2);
  const int peer = *rc::gen::inRange(-1, victim.plan.size + 1);
  RC_PRE(peer != victim.step().peer);
  victim.step().peer = peer;
  RC_ASSERT(!verify_plan(victim.plan).ok());
}

RC_GTEST_PROP(PlanProperty, AStepOnAnotherChunkIsNoticed, ()) {
  Victim victim = any_victim(2);
  const auto chunks = static_cast<uint32_t>(victim.plan.chunks.size());
  const uint32_t chunk = *rc::gen::inRange<uint32_t>(0, chunks + 1);
  RC_PRE(chunk != victim.step().chunk);
  victim.step().chunk = chunk;
  RC_ASSERT(!verify_plan(victim.plan).ok());
}

RC_GTEST_PROP(PlanProperty, AStepOfAnotherKindIsNoticed, ()) {
  Victim victim = any_victim(2);
  const auto kind = static_cast<StepKind>(*rc::gen::inRange(0, 6));
  RC_PRE(kind != victim.step().kind);
  victim.step().kind = kind;
  RC_ASSERT(!verify_plan(victim.plan).ok());
}

RC_GTEST_PROP(PlanProperty, AShiftedBoundaryIsNoticed, ()) {
  Victim victim = any_victim(1);
  const size_t chunk = *rc::gen::inRange<size_t>(0, victim.plan.chunks.size());
  ChunkRange& range = victim.plan.chunks[chunk];
  size_t& boundary = *rc::gen::arbitrary<bool>() ? range.begin : range.end;
  boundary += static_cast<size_t>(*rc::gen::nonZero<int>());
  RC_ASSERT(!verify_plan(victim.plan).ok());
}

// Soundness: whatever was done to a plan, if the verifier accepts it, it works.
RC_GTEST_PROP(PlanProperty, WhatIsAcceptedWorks, ()) {
  Victim victim = any_victim(2);
  const int swaps = *rc::gen::inRange(1, 4);
  for (int i = 0; i < swaps; ++i) {
    const size_t rank = *rc::gen::inRange<size_t>(0, victim.plan.steps.size());
    auto& steps = victim.plan.steps[rank];
    const size_t a = *rc::gen::inRange<size_t>(0, steps.size());
    const size_t b = *rc::gen::inRange<size_t>(0, steps.size());
    std::swap(steps[a], steps[b]);
  }
  const bool accepted = verify_plan(victim.plan).ok();
  RC_TAG(accepted ? "accepted" : "refused");
  if (accepted) {
    const uint64_t seed = *rc::gen::arbitrary<uint64_t>();
    RC_ASSERT(wrong_in(victim.plan, PlanWalker(victim.plan, seed).walk()).empty());
  }
}

}  // namespace
}  // namespace tersum::testing
