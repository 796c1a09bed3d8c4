// The verifier against plans that are wrong in one particular way each, made by hand. Random
// corruptions are in tests/property/plan_property_test.cc.
#include <gtest/gtest.h>

#include <functional>

#include "plan/plan.h"
#include "plan_matrix.h"

namespace tersum::testing {
namespace {

constexpr StepKind kAdd = StepKind::kReceiveAdd;
constexpr StepKind kPartial = StepKind::kSendPartial;
constexpr StepKind kFinish = StepKind::kFinish;
constexpr StepKind kFinal = StepKind::kSendFinal;
constexpr StepKind kStore = StepKind::kReceiveStore;
constexpr StepKind kForward = StepKind::kForward;

Plan make(const Algorithm& algorithm, int size, size_t count, size_t granule = 1) {
  return std::move(make_plan(request_of(algorithm, size, count, granule))).value();
}
Plan two_step(int size = 4) { return make(kAlgorithms[0], size, 1024, 128); }

// One chunk of one element, over as many ranks as lists are given.
Plan by_hand(Collective collective, std::vector<std::vector<Step>> steps) {
  Plan plan;
  plan.collective = collective;
  plan.size = static_cast<int>(steps.size());
  plan.chunks = {{0, 1}};
  plan.count = 1;
  plan.steps = std::move(steps);
  return plan;
}

void expect_breach(const Plan& plan, std::string_view fragment) {
  const Status status = verify_plan(plan);
  ASSERT_FALSE(status.ok()) << "expected: " << fragment;
  EXPECT_EQ(status.code(), StatusCode::kInternal);
  EXPECT_NE(status.message().find(fragment), std::string_view::npos) << status.message();
}

// Alters a valid two_step plan and expects the verifier to say `fragment`.
void expect_altered_breach(const std::function<void(Plan&)>& alter, std::string_view fragment) {
  Plan plan = two_step();
  ASSERT_TRUE(verify_plan(plan).ok());
  alter(plan);
  expect_breach(plan, fragment);
}

TEST(VerifyPlan, AMessageNamesPlanRankStepAndChunk) {
  Plan plan = two_step();
  plan.steps[2][1].peer = 9;
  expect_breach(
      plan,
      "plan two_step of all_reduce over 4 ranks: rank 2, step 1 (send_partial of chunk 0, "
      "peer 9)");
}

TEST(VerifyPlan, WrongShapes) {
  expect_altered_breach([](Plan& plan) { plan.size = 0; }, "at least 1");
  expect_altered_breach([](Plan& plan) { plan.kind = PlanKind::kAuto; }, "auto is not a plan");
  expect_altered_breach([](Plan& plan) { plan.steps.pop_back(); }, "steps of 3 ranks");
  expect_altered_breach([](Plan& plan) { plan.chunks.clear(); }, "no chunks");
  expect_altered_breach([](Plan& plan) { plan.granule = 0; }, "granule is 0");
  expect_altered_breach([](Plan& plan) { plan.collective = Collective::kBarrier; },
                        "barrier carries no chunks");
  Plan broadcast = make(kAlgorithms[7], 4, 10);
  broadcast.root = 4;
  expect_breach(broadcast, "not a rank");
  broadcast.root = 1;
  expect_breach(broadcast, "not the root");
  Plan scatter = make(kAlgorithms[3], 4, 16);
  scatter.replicated = true;
  expect_breach(scatter, "replicated");
}

TEST(VerifyPlan, WrongChunks) {
  expect_altered_breach([](Plan& plan) { plan.chunks[3].end -= 1; }, "cover 1023 of 1024");
  expect_altered_breach([](Plan& plan) { plan.count = 1025; }, "cover 1024 of 1025");
  expect_altered_breach([](Plan& plan) { plan.chunks[1].begin += 128; }, "chunk 1 does not begin");
  expect_altered_breach([](Plan& plan) { plan.chunks[2] = {512, 500}; }, "chunk 2 does not begin");
  expect_altered_breach([](Plan& plan) { plan.chunks[0].end = plan.chunks[1].begin = 100; },
                        "multiple of the granule");
  Plan scatter = make(kAlgorithms[3], 4, 16);
  scatter.chunks[0].end = scatter.chunks[1].begin = 3;
  expect_breach(scatter, "not within its equal part");
  scatter = make(kAlgorithms[3], 4, 16);
  scatter.chunks.pop_back();
  expect_breach(scatter, "ranks' equal parts");
}

TEST(VerifyPlan, WrongPeersAndChunksOfSteps) {
  expect_altered_breach([](Plan& plan) { plan.steps[0][0].peer = 0; }, "another rank");
  expect_altered_breach([](Plan& plan) { plan.steps[0][0].peer = -1; }, "another rank");
  expect_altered_breach([](Plan& plan) { plan.steps[0][0].chunk = 4; }, "no such chunk");
  expect_altered_breach([](Plan& plan) { plan.steps[0][6].peer = 1; }, "finish has no peer");
  expect_altered_breach([](Plan& plan) { plan.steps[0][0].kind = static_cast<StepKind>(77); },
                        "unknown step");
}

TEST(VerifyPlan, BrokenGrammar) {
  const auto all_reduce = [](std::vector<std::vector<Step>> steps) {
    return by_hand(Collective::kAllReduce, std::move(steps));
  };
  expect_breach(all_reduce({{{kFinish, -1, 0}, {kAdd, 1, 0}}, {}}), "too late to add");
  expect_breach(all_reduce({{{kFinish, -1, 0}, {kPartial, 1, 0}}, {}}), "already finished");
  expect_breach(all_reduce({{{kFinish, -1, 0}, {kFinish, -1, 0}}, {}}), "already passed on");
  expect_breach(all_reduce({{{kPartial, 1, 0}, {kFinish, -1, 0}}, {}}), "already passed on");
  expect_breach(all_reduce({{{kFinal, 1, 0}}, {}}), "nothing is finished");
  expect_breach(all_reduce({{{kForward, 1, 0}}, {}}), "nothing is stored");
  expect_breach(all_reduce({{{kFinish, -1, 0}, {kStore, 1, 0}}, {}}), "this rank finished");
  expect_breach(all_reduce({{{kStore, 1, 0}, {kStore, 1, 0}}, {}}), "already stored");
  expect_breach(all_reduce({{{kFinish, -1, 0}}, {{kFinish, -1, 0}}}), "rank 0 owns this chunk");
  expect_breach(all_reduce({{}, {}}), "no rank finishes");
  expect_breach(all_reduce({{{kAdd, 2, 0}, {kAdd, 1, 0}}, {}, {}}), "not in rank order");
  expect_breach(all_reduce({{{kFinish, -1, 0}}, {{kPartial, 0, 0}}}),
                "rank 1 does not end with it");
}

TEST(VerifyPlan, UnmatchedMessages) {
  const auto scatter_gather = [](std::vector<Step> owner, std::vector<Step> other) {
    return by_hand(Collective::kAllReduce, {std::move(owner), std::move(other)});
  };
  const Step finish{kFinish, -1, 0};
  ASSERT_TRUE(verify_plan(scatter_gather({{kAdd, 1, 0}, finish, {kFinal, 1, 0}},
                                         {{kPartial, 0, 0}, {kStore, 0, 0}}))
                  .ok());
  expect_breach(scatter_gather({finish, {kFinal, 1, 0}}, {{kPartial, 0, 0}, {kStore, 0, 0}}),
                "rank 1, step 0 (send_partial of chunk 0, peer 0): the peer does not receive it");
  expect_breach(scatter_gather({{kAdd, 1, 0}, finish, {kFinal, 1, 0}}, {{kStore, 0, 0}}),
                "rank 0, step 0 (receive_add of chunk 0, peer 1): the peer does not send it");
  expect_breach(scatter_gather({{kAdd, 1, 0}, finish}, {{kPartial, 0, 0}, {kStore, 0, 0}}),
                "(receive_store of chunk 0, peer 0): the peer does not send it");
  expect_breach(scatter_gather({{kAdd, 1, 0}, finish, {kFinal, 1, 0}, {kFinal, 1, 0}},
                               {{kPartial, 0, 0}, {kStore, 0, 0}}),
                "sent twice");
}

// Rank 3 gives its contribution to 1 and to 2, and both pass it on to the owner, 0.
TEST(VerifyPlan, AContributionThatCountsTwice) {
  expect_breach(
      by_hand(Collective::kAllReduce, {{{kAdd, 1, 0},
                                        {kAdd, 2, 0},
                                        {kFinish, -1, 0},
                                        {kFinal, 1, 0},
                                        {kFinal, 2, 0},
                                        {kFinal, 3, 0}},
                                       {{kAdd, 3, 0}, {kPartial, 0, 0}, {kStore, 0, 0}},
                                       {{kAdd, 3, 0}, {kPartial, 0, 0}, {kStore, 0, 0}},
                                       {{kPartial, 1, 0}, {kPartial, 2, 0}, {kStore, 0, 0}}}),
      "rank 0 counts a contribution twice");
}

TEST(VerifyPlan, AContributionThatIsMissing) {
  expect_breach(by_hand(Collective::kAllReduce,
                        {{{kAdd, 1, 0}, {kFinish, -1, 0}, {kFinal, 1, 0}, {kFinal, 2, 0}},
                         {{kPartial, 0, 0}, {kStore, 0, 0}},
                         {{kStore, 0, 0}}}),
                "contribution of rank 2 does not reach its owner, rank 0");
}

TEST(VerifyPlan, CyclesAmongReducers) {
  expect_breach(by_hand(Collective::kAllReduce, {{{kFinish, -1, 0}, {kFinal, 1, 0}, {kFinal, 2, 0}},
                                                 {{kAdd, 2, 0}, {kPartial, 2, 0}, {kStore, 0, 0}},
                                                 {{kAdd, 1, 0}, {kPartial, 1, 0}, {kStore, 0, 0}}}),
                "waits on a cycle");
}

TEST(VerifyPlan, CyclesAmongForwarders) {
  expect_breach(by_hand(Collective::kBroadcast, {{{kFinish, -1, 0}},
                                                 {{kStore, 2, 0}, {kForward, 2, 0}},
                                                 {{kStore, 1, 0}, {kForward, 1, 0}}}),
                "is not reached from its owner");
}

// Right chunk by chunk; but each of the ranks first waits for what the other sends later.
TEST(VerifyPlan, ListsThatWaitForEachOther) {
  Plan plan;
  plan.collective = Collective::kAllGather;
  plan.size = 2;
  plan.count = 2;
  plan.chunks = {{0, 1}, {1, 2}};
  plan.steps = {{{kFinish, -1, 0}, {kFinal, 1, 0}, {kStore, 1, 1}},
                {{kFinish, -1, 1}, {kFinal, 0, 1}, {kStore, 0, 0}}};
  ASSERT_TRUE(verify_plan(plan).ok());
  plan.steps = {{{kStore, 1, 1}, {kFinish, -1, 0}, {kFinal, 1, 0}},
                {{kStore, 0, 0}, {kFinish, -1, 1}, {kFinal, 0, 1}}};
  expect_breach(plan, "wait for each other");
}

TEST(VerifyPlan, WhatACollectiveDoesNotDo) {
  Plan scatter = make(kAlgorithms[3], 2, 2);
  scatter.steps[0].push_back({kFinal, 1, 0});
  scatter.steps[1].push_back({kStore, 0, 0});
  expect_breach(scatter, "no room for");
  Plan gather = make(kAlgorithms[5], 2, 2);
  for (auto& steps : gather.steps) {
    for (Step& step : steps) step.chunk = 1 - step.chunk;
  }
  expect_breach(gather, "another rank's part");
  expect_breach(by_hand(Collective::kBroadcast, {{{kAdd, 1, 0}, {kFinish, -1, 0}, {kFinal, 1, 0}},
                                                 {{kPartial, 0, 0}, {kStore, 0, 0}}}),
                "nothing is to be reduced");
}

TEST(VerifyPlan, BrokenReplicatedPlans) {
  const Plan right = make(kAlgorithms[2], 3, 9);
  ASSERT_TRUE(right.replicated);
  ASSERT_TRUE(verify_plan(right).ok());
  Plan plan = right;
  std::swap(plan.steps[1][1], plan.steps[1][2]);  // sends after it has added
  expect_breach(plan, "own contribution only");
  plan = right;
  plan.steps[2].pop_back();
  expect_breach(plan, "rank 2 does not finish it");
  plan = right;
  std::erase(plan.steps[0], Step{kPartial, 1, 0});
  std::erase(plan.steps[1], Step{kAdd, 0, 0});
  expect_breach(plan, "rank 1 does not get every contribution");
  plan = right;
  plan.steps[0].push_back({kFinal, 1, 0});
  expect_breach(plan, "the peer does not receive it");
  plan = right;
  plan.replicated = false;
  EXPECT_FALSE(verify_plan(plan).ok());
}

// Every corruption of one step of every small plan: dropped, doubled, aimed at another rank, moved
// to another chunk, turned into another kind.
void expect_every_corruption_noticed(const PlanRequest& request) {
  const Plan plan = make_plan(request).value();
  const auto refuse = [&](size_t rank, size_t index, const char* what, const auto& corrupt) {
    Plan wrong = plan;
    corrupt(wrong.steps[rank], wrong.steps[rank][index]);
    if (wrong.steps[rank] == plan.steps[rank]) return;
    EXPECT_FALSE(verify_plan(wrong).ok())
        << describe(request) << ": " << what << " rank " << rank << " step " << index;
  };
  for (size_t rank = 0; rank < plan.steps.size(); ++rank) {
    for (size_t index = 0; index < plan.steps[rank].size(); ++index) {
      const auto at = static_cast<ptrdiff_t>(index);
      refuse(rank, index, "drop", [&](auto& steps, Step&) { steps.erase(steps.begin() + at); });
      refuse(rank, index, "double", [&](auto& steps, const Step& step) {
        const Step copy = step;
        steps.insert(steps.begin() + at, copy);
      });
      for (int peer = -1; peer <= plan.size; ++peer) {
        refuse(rank, index, "redirect", [&](auto&, Step& step) { step.peer = peer; });
      }
      for (uint32_t chunk = 0; chunk <= plan.chunks.size(); ++chunk) {
        refuse(rank, index, "move", [&](auto&, Step& step) { step.chunk = chunk; });
      }
      for (int kind = 0; kind <= 6; ++kind) {
        refuse(rank, index, "turn",
               [&](auto&, Step& step) { step.kind = static_cast<StepKind>(kind); });
      }
    }
  }
}

TEST(VerifyPlan, EveryCorruptionOfOneStepIsNoticed) {
  for (const Algorithm& algorithm : kAlgorithms) {
    for (const int size : {1, 2, 3, 4, 6}) {
      expect_every_corruption_noticed(request_of(algorithm, size, 6'000, 32, size / 2));
    }
  }
}

TEST(VerifyPlan, APlanForOneRankOnlyIsNoWholePlan) {
  PlanRequest request = request_of(kAlgorithms[0], 4, 100);
  request.only_rank = 0;
  EXPECT_FALSE(verify_plan(make_plan(request).value()).ok());
}

}  // namespace
}  // namespace tersum::testing
