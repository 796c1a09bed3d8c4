// Properties of plans under random corruption. rapidcheck prints the seed of a failing run.
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "plan/plan.h"
#include "tests/unit/plan/plan_matrix.h"
#include "tests/unit/plan/plan_walker.h"

namespace tersum::testing {
namespace {

PlanRequest any_request() {
  const Algorithm algorithm =
      *rc::gen::elementOf(std::vector<Algorithm>(std::begin(kAlgorithms), std::end(kAlgorithms)));
  const int size = *rc::gen::inRange(1, 14);
  const size_t count =
      *rc::gen::oneOf(rc::gen::inRange<size_t>(0, 40), rc::gen::inRange<size_t>(1000, 200'000));
  const size_t granule = *rc::gen::element<size_t>(1, 32, 128);
  return request_of(algorithm, size, count, granule, *rc::gen::inRange(0, size));
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
