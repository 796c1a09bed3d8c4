// PlanRun: what a call held is given back at its end, whatever plan it ended with.
#include "runtime/plan_run.h"

#include <gtest/gtest.h>

#include <memory>
#include <utility>

#include "codec/codec.h"
#include "runtime/compiled_plan.h"
#include "transport/arena.h"

namespace tersum {
namespace {

std::shared_ptr<const CompiledPlan> plan_of(PlanKind kind, int size, size_t count) {
  PlanRequest request;
  request.kind = kind;
  request.size = size;
  request.count = count;
  const Codec* codec = find_codec("exact", DataType::kFloat32, ReduceOp::kSum).value();
  return compile_plan(request, *codec, 0, SliceLimits{}).value();
}

// A run, how many of its messages' payloads have been let go of, and an arena for what it encodes.
class PlanRunTest : public testing::Test {
 protected:
  PlanRunTest() : arena_(Arena::create(false, size_t{64} << 20).value()) {}

  void begin(std::shared_ptr<const CompiledPlan> plan) {
    run_.plan = std::move(plan);
    run_.restart();
  }
  // What came in the last place of every flow.
  void fill_last_places() {
    const auto count = [](void* released, uint64_t /*token*/) { ++*static_cast<int*>(released); };
    for (uint32_t flow = 0; flow < run_.plan->in_flows.size(); ++flow) {
      run_.inbox(flow, run_.plan->window - 1).hold = PayloadHold(count, &released_, 0);
      ++held_;
    }
  }
  // And in the first and last of what this rank encoded for all.
  void fill_own_wires() {
    run_.own_wire(0) = arena_->reserve(1024).value();
    run_.own_wire(run_.plan->window - 1) = arena_->reserve(1024).value();
  }

  std::unique_ptr<Arena> arena_;
  PlanRun run_{false};
  int held_ = 0;
  int released_ = 0;
};

TEST_F(PlanRunTest, AShortCallBehindALongOneGivesItsOwnBack) {
  begin(plan_of(PlanKind::kTwoStep, 8, 8 << 20));
  fill_last_places();
  run_.release();
  EXPECT_EQ(released_, 7 * 2);
  EXPECT_EQ(released_, held_);
  begin(plan_of(PlanKind::kTwoStep, 2, 64));
  fill_last_places();
  run_.release();
  EXPECT_EQ(released_, held_);
}

TEST_F(PlanRunTest, ACallThatChangedItsPlanGivesBothBack) {
  const auto large = plan_of(PlanKind::kTwoStep, 8, 8 << 20);
  const auto small = plan_of(PlanKind::kTwoStep, 2, 64);
  ASSERT_GT(large->window, small->window);
  for (const auto& [first, second] : {std::pair(large, small), {small, large}}) {
    begin(first);
    fill_last_places();
    begin(second);
    fill_last_places();
    run_.release();
    EXPECT_EQ(released_, held_);
  }
}

TEST_F(PlanRunTest, ACallWithoutAPlanGivesBackWhatItHad) {
  run_.release();
  begin(plan_of(PlanKind::kTwoStep, 4, 8 << 20));
  fill_last_places();
  run_.plan.reset();
  run_.release();
  EXPECT_EQ(released_, held_);
  EXPECT_GT(held_, 0);
}

TEST_F(PlanRunTest, WhatARankEncodedForAllIsGivenBack) {
  const auto large = plan_of(PlanKind::kOneShot, 4, 4 << 20);
  const auto small = plan_of(PlanKind::kOneShot, 2, 64);
  ASSERT_TRUE(large->replicated);
  ASSERT_GT(large->window, small->window);
  begin(large);
  fill_own_wires();
  EXPECT_GT(arena_->used_bytes(), 0U);
  begin(small);
  run_.release();
  EXPECT_EQ(arena_->used_bytes(), 0U);
  begin(small);
  fill_own_wires();
  begin(plan_of(PlanKind::kTwoStep, 4, 64));
  run_.release();
  EXPECT_EQ(arena_->used_bytes(), 0U);
}

}  // namespace
}  // namespace tersum
