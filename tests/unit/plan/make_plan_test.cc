// Every plan, swept over sizes, counts and granules: accepted by the verifier, right when walked by
// an executor that knows nothing of the verifier, and as cheap as docs/plans.md says.
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "plan/plan.h"
#include "plan_matrix.h"
#include "plan_walker.h"

namespace tersum::testing {
namespace {

Plan must_make(const PlanRequest& request) {
  Result<Plan> plan = make_plan(request);
  EXPECT_TRUE(plan.ok()) << describe(request) << ": " << plan.status().to_string();
  return std::move(plan).value();
}

void expect_right(const PlanRequest& request) {
  const Plan plan = must_make(request);
  const Status verified = verify_plan(plan);
  ASSERT_TRUE(verified.ok()) << describe(request) << ": " << verified.to_string();
  const uint64_t seed = 1 + request.count;
  const WalkResult result = PlanWalker(plan, seed).walk();
  ASSERT_EQ(wrong_in(plan, result), "") << describe(request) << " seed " << seed;
}

TEST(MakePlan, EverySizeUpTo33GivesEveryRankItsDue) {
  for (const Algorithm& algorithm : kAlgorithms) {
    for (int size = 1; size <= 33; ++size) {
      expect_right(request_of(algorithm, size, 100'003, 128, (size * 7 + 3) % size));
    }
  }
}

TEST(MakePlan, EveryCountIsCovered) {
  const size_t counts[] = {0, 1, 2, 3, 31, 127, 128, 129, 1023, 1024, 1025, 8191, 1'000'003};
  for (const Algorithm& algorithm : kAlgorithms) {
    for (const int size : {1, 2, 3, 5, 8, 9}) {
      for (const size_t count : counts) {
        for (const size_t granule : {size_t{1}, size_t{32}, size_t{1024}}) {
          expect_right(request_of(algorithm, size, count, granule, size - 1));
        }
      }
    }
  }
}

// Millions of steps, which sanitizers make a hundred times as slow; there is one thread here, and
// the smaller groups run the same code.
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
constexpr int kLargestSize = 200;
#else
constexpr int kLargestSize = 1024;
#endif

TEST(MakePlan, LargeGroupsPassTheVerifier) {
  for (const Algorithm& algorithm : kAlgorithms) {
    for (const int size : {64, 127}) {
      const Status verified = verify_plan(must_make(request_of(algorithm, size, 999'983, 32, 5)));
      EXPECT_TRUE(verified.ok()) << verified.to_string();
    }
  }
}

TEST(MakePlan, AThousandRanksPassTheVerifier) {
  for (const Algorithm& algorithm : {kAlgorithms[1], kAlgorithms[2], kAlgorithms[7]}) {
    const Status verified =
        verify_plan(must_make(request_of(algorithm, kLargestSize, 999'983, 32, 100)));
    EXPECT_TRUE(verified.ok()) << verified.to_string();
  }
}

TEST(MakePlan, CountsBeyond32BitsStayExact) {
  const size_t count = (size_t{1} << 33) + 12'345;
  const Plan plan = must_make(request_of(kAlgorithms[0], 7, count, 128));
  EXPECT_TRUE(verify_plan(plan).ok());
  EXPECT_EQ(plan.chunks.back().end, count);
  EXPECT_TRUE(verify_plan(must_make(request_of(kAlgorithms[0], 7, SIZE_MAX, 1024))).ok());
}

TEST(MakePlan, ChunksDifferByAtMostOneGranule) {
  for (const size_t count : {1'000'003UL, 4'096UL, 130UL, 5UL}) {
    const Plan plan = must_make(request_of(kAlgorithms[0], 6, count, 128));
    size_t smallest = SIZE_MAX, largest = 0;
    for (const ChunkRange& range : plan.chunks) {
      const size_t blocks = (range.end - range.begin + 127) / 128;
      smallest = std::min(smallest, blocks);
      largest = std::max(largest, blocks);
    }
    EXPECT_LE(largest - smallest, 1U) << count;
  }
}

TEST(MakePlan, OneRankOnlyFinishes) {
  for (const Algorithm& algorithm : kAlgorithms) {
    if (algorithm.collective == Collective::kBarrier) continue;
    const Plan plan = must_make(request_of(algorithm, 1, 77));
    ASSERT_EQ(plan.chunks.size(), 1U);
    EXPECT_EQ(plan.steps[0], (std::vector<Step>{{StepKind::kFinish, -1, 0}}));
    EXPECT_FALSE(plan.replicated);
  }
}

TEST(MakePlan, ABarrierHasNothingToCarry) {
  const Plan plan = must_make(request_of({Collective::kBarrier, PlanKind::kOneShot}, 5, 0));
  EXPECT_TRUE(plan.chunks.empty());
  ASSERT_EQ(plan.steps.size(), 5U);
  for (const auto& steps : plan.steps) EXPECT_TRUE(steps.empty());
}

TEST(MakePlan, PartsBelongToTheirRanks) {
  for (const Algorithm& algorithm : {kAlgorithms[3], kAlgorithms[4], kAlgorithms[5]}) {
    const Plan plan = must_make(request_of(algorithm, 5, 35, 128));
    for (size_t rank = 0; rank < 5; ++rank) {
      EXPECT_EQ(plan.chunks[rank].begin, rank * 7);
      EXPECT_EQ(plan.chunks[rank].end, rank * 7 + 7);
      const auto finish = std::find_if(plan.steps[rank].begin(), plan.steps[rank].end(),
                                       [](const Step& s) { return s.kind == StepKind::kFinish; });
      ASSERT_NE(finish, plan.steps[rank].end());
      EXPECT_EQ(finish->chunk, rank);
    }
  }
}

// At every position of the rotation the senders aim at different ranks: nobody is hit by all at
// once.
TEST(MakePlan, DirectPlansSpreadTheirLoad) {
  const Plan plan = must_make(request_of(kAlgorithms[0], 9, 9'000));
  for (const StepKind kind : {StepKind::kSendPartial, StepKind::kSendFinal}) {
    for (size_t position = 0; position < 8; ++position) {
      std::set<int> targets;
      for (const auto& steps : plan.steps) {
        size_t seen = 0;
        for (const Step& step : steps) {
          if (step.kind == kind && seen++ == position) targets.insert(step.peer);
        }
      }
      EXPECT_EQ(targets.size(), 9U) << position;
    }
  }
}

TEST(MakePlan, OnlyRankGivesThatRanksStepsOfTheWholePlan) {
  for (const Algorithm& algorithm : kAlgorithms) {
    PlanRequest request = request_of(algorithm, 6, 60'000, 128, 4);
    const Plan whole = must_make(request);
    request.only_rank = 3;
    const Plan part = must_make(request);
    ASSERT_EQ(part.steps.size(), whole.steps.size());
    EXPECT_EQ(part.steps[3], whole.steps[3]);
    EXPECT_TRUE(part.steps[0].empty());
    EXPECT_EQ(part.chunks.size(), whole.chunks.size());
  }
}

// Elements that the busiest rank sends, for one element of the array per rank: docs/plans.md's
// table.
TEST(MakePlan, NobodySendsMoreThanTheTableSays) {
  const size_t size = 8;
  const size_t count = size * (size - 1) * 1024;  // divides by both 8 and 7: no rounding
  const auto busiest = [&](const Algorithm& algorithm) {
    const Plan plan = must_make(request_of(algorithm, size, count, 1, 2));
    const WalkResult result = PlanWalker(plan, 7).walk();
    return *std::max_element(result.sent_elements.begin(), result.sent_elements.end());
  };
  const size_t part = count / size;
  EXPECT_EQ(busiest({Collective::kAllReduce, PlanKind::kTwoStep}), 2 * (size - 1) * part);
  EXPECT_EQ(busiest({Collective::kAllReduce, PlanKind::kRing}), 2 * (size - 1) * part);
  EXPECT_EQ(busiest({Collective::kAllReduce, PlanKind::kOneShot}), (size - 1) * count);
  EXPECT_EQ(busiest({Collective::kReduceScatter, PlanKind::kTwoStep}), (size - 1) * part);
  EXPECT_EQ(busiest({Collective::kReduceScatter, PlanKind::kRing}), (size - 1) * part);
  EXPECT_EQ(busiest({Collective::kAllGather, PlanKind::kTwoStep}), (size - 1) * part);
  EXPECT_EQ(busiest({Collective::kAllGather, PlanKind::kRing}), (size - 1) * part);
  EXPECT_EQ(busiest({Collective::kBroadcast, PlanKind::kTwoStep}), count);
  EXPECT_EQ(busiest({Collective::kBroadcast, PlanKind::kRing}), count);
}

TEST(MakePlan, SmallBroadcastsGoStraightFromTheRoot) {
  const Plan small = must_make(request_of({Collective::kBroadcast, PlanKind::kTwoStep}, 8, 1024));
  EXPECT_EQ(small.chunks.size(), 1U);
  EXPECT_EQ(small.steps[0].size(), 8U);
  const Plan large = must_make(request_of({Collective::kBroadcast, PlanKind::kTwoStep}, 8, 1025));
  EXPECT_EQ(large.chunks.size(), 7U);
}

void expect_refused(PlanRequest request, std::string_view fragment) {
  const Result<Plan> plan = make_plan(request);
  ASSERT_FALSE(plan.ok()) << describe(request);
  EXPECT_EQ(plan.status().code(), StatusCode::kInvalidArgument);
  EXPECT_NE(plan.status().message().find(fragment), std::string_view::npos)
      << plan.status().message();
}

TEST(MakePlan, BadRequestsAreRefusedWithTheRemedy) {
  expect_refused({.size = 0, .count = 4}, "at least 1");
  expect_refused({.size = -3, .count = 4}, "-3 ranks");
  expect_refused({.kind = PlanKind::kAuto, .size = 2, .count = 4}, "two_step");
  expect_refused({.size = 2, .count = 4, .granule = 0}, "granule");
  expect_refused({.size = 2, .count = 4, .only_rank = 2}, "no rank 2");
  expect_refused({.size = 2, .count = 4, .only_rank = -2}, "no rank -2");
  expect_refused({.collective = Collective::kBroadcast, .size = 4, .count = 4, .root = 4}, "0..3");
  expect_refused({.collective = Collective::kBroadcast, .size = 4, .count = 4, .root = -1},
                 "root -1");
  expect_refused({.collective = Collective::kReduceScatter, .size = 4, .count = 10},
                 "multiple of 4");
  expect_refused({.collective = Collective::kAllGather, .size = 3, .count = 10}, "multiple of 3");
  for (const Collective collective :
       {Collective::kReduceScatter, Collective::kAllGather, Collective::kBroadcast}) {
    expect_refused({.collective = collective, .kind = PlanKind::kOneShot, .size = 2, .count = 4},
                   "plan one_shot does not serve");
  }
}

}  // namespace
}  // namespace tersum::testing
