// Error terms against a symbolic walk that counts quantizations, and the choice of a plan.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "plan/plan.h"
#include "plan/topology.h"
#include "plan/typical_error.h"
#include "plan_matrix.h"
#include "plan_walker.h"

namespace tersum::testing {
namespace {

PlanErrorTerms terms_of(const PlanRequest& request) {
  return plan_error_terms(make_plan(request).value());
}

void expect_terms(const PlanRequest& request, uint32_t contributions, uint32_t partials,
                  uint32_t finals) {
  const PlanErrorTerms terms = terms_of(request);
  EXPECT_EQ(terms.contributions, contributions) << describe(request);
  EXPECT_EQ(terms.partials, partials) << describe(request);
  EXPECT_EQ(terms.finals, finals) << describe(request);
}

TEST(PlanErrorTerms, AreWhatASymbolicWalkCounts) {
  for (const Algorithm& algorithm : kAlgorithms) {
    for (int size = 1; size <= 17; ++size) {
      const PlanRequest request = request_of(algorithm, size, 50'000, 32, size / 2);
      const Plan plan = make_plan(request).value();
      const WalkResult result = PlanWalker(plan, 11).walk();
      PlanErrorTerms counted;
      for (const auto& of_rank : result.values) {
        for (const auto& value : of_rank) {
          if (!value.has_value()) continue;
          counted.contributions = std::max(counted.contributions, value->errors.contributions);
          counted.partials = std::max(counted.partials, value->errors.partials);
          counted.finals = std::max(counted.finals, value->errors.finals);
        }
      }
      expect_terms(request, counted.contributions, counted.partials, counted.finals);
    }
  }
}

// The last column of docs/plans.md.
TEST(TypicalError, IsTheFormulaOfTheDocument) {
  const auto of = [](Collective collective, PlanKind kind, int size) {
    return typical_error(request_of({collective, kind}, size, 10'000)).value();
  };
  for (int size = 2; size <= 33; ++size) {
    const double n = size;
    EXPECT_NEAR(of(Collective::kAllReduce, PlanKind::kTwoStep, size), std::sqrt(1 + (n - 1) / n),
                1e-12);
    EXPECT_NEAR(of(Collective::kAllReduce, PlanKind::kRing, size), std::sqrt((n + 1) / 2), 1e-12);
    EXPECT_EQ(of(Collective::kAllReduce, PlanKind::kOneShot, size), 1);
    EXPECT_NEAR(of(Collective::kReduceScatter, PlanKind::kTwoStep, size), std::sqrt((n - 1) / n),
                1e-12);
    EXPECT_NEAR(of(Collective::kReduceScatter, PlanKind::kRing, size), std::sqrt((n - 1) / 2),
                1e-12);
    EXPECT_EQ(of(Collective::kAllGather, PlanKind::kRing, size), 1);
  }
  // Of eight: four single ranks, two pairs, a four, and the sum, 4 + 2 * 2 + 4 + 8 = 20; chains of
  // four and of three hops that meet, 10 + 6 + 8 = 24.
  for (int size = 2; size <= 32; size *= 2) {
    for (const PlanKind kind : {PlanKind::kHalvingDoubling, PlanKind::kTree}) {
      EXPECT_NEAR(of(Collective::kAllReduce, kind, size), std::sqrt(1 + std::log2(size) / 2),
                  1e-12);
    }
    EXPECT_NEAR(of(Collective::kAllReduce, PlanKind::kBidirectionalRing, size),
                std::sqrt(1 + size / 4.0), 1e-12);
  }
  EXPECT_EQ(of(Collective::kAllReduce, PlanKind::kRing, 1), 0);
}

TEST(TypicalError, IsRefusedWhereThePlanIs) {
  const auto ring = make_topology("ring4").value();
  PlanRequest request;
  request.size = request.count = 4;
  request.topology = ring.get();
  EXPECT_FALSE(typical_error(request).ok());
  request.kind = PlanKind::kRing;
  EXPECT_TRUE(typical_error(request).ok());
  request.collective = Collective::kGather;
  EXPECT_FALSE(typical_error(request).ok());
}

TEST(PlanErrorTerms, AreTheFormulasOfTheDocument) {
  for (uint32_t size = 2; size <= 33; ++size) {
    const auto request = [&](Collective collective, PlanKind kind) {
      return request_of({collective, kind}, static_cast<int>(size), 10'000);
    };
    expect_terms(request(Collective::kAllReduce, PlanKind::kTwoStep), size - 1, 0, 1);
    expect_terms(request(Collective::kAllReduce, PlanKind::kRing), 1, size - 2, 1);
    expect_terms(request(Collective::kAllReduce, PlanKind::kOneShot), size, 0, 0);
    const uint32_t ends = size == 2 ? 1 : 2;
    expect_terms(request(Collective::kAllReduce, PlanKind::kBidirectionalRing), ends,
                 size - 1 - ends, 1);
    if (std::has_single_bit(size)) {
      for (const PlanKind kind : {PlanKind::kHalvingDoubling, PlanKind::kTree}) {
        expect_terms(request(Collective::kAllReduce, kind), size / 2, size / 2 - 1, 1);
      }
    }
    expect_terms(request(Collective::kReduceScatter, PlanKind::kTwoStep), size - 1, 0, 0);
    expect_terms(request(Collective::kReduceScatter, PlanKind::kRing), 1, size - 2, 0);
    expect_terms(request(Collective::kAllGather, PlanKind::kTwoStep), 0, 0, 1);
    expect_terms(request(Collective::kAllGather, PlanKind::kRing), 0, 0, 1);
    expect_terms(request(Collective::kBroadcast, PlanKind::kTwoStep), 0, 0, 1);
    expect_terms(request(Collective::kBroadcast, PlanKind::kRing), 0, 0, 1);
    expect_terms(request(Collective::kBarrier, PlanKind::kTwoStep), 0, 0, 0);
  }
}

TEST(PlanErrorTerms, OneRankQuantizesNothing) {
  for (const Algorithm& algorithm : kAlgorithms)
    expect_terms(request_of(algorithm, 1, 99), 0, 0, 0);
}

TEST(PlanErrorTermsDeathTest, WantAWholePlan) {
  PlanRequest request = request_of(kAlgorithms[0], 3, 99);
  request.only_rank = 1;
  EXPECT_DEATH((void)plan_error_terms(make_plan(request).value()), "");
}

TEST(ChoosePlan, OneShotForSmallMessagesInSmallGroups) {
  const auto choice = [](int size, size_t bytes) {
    return choose_plan(Collective::kAllReduce, size, bytes);
  };
  for (int size = 2; size <= 8; ++size) EXPECT_EQ(choice(size, 1024), PlanKind::kOneShot) << size;
  EXPECT_EQ(choice(9, 1), PlanKind::kTwoStep);
  EXPECT_EQ(choice(1, 1), PlanKind::kTwoStep);
  EXPECT_EQ(choice(2, 64 * 1024), PlanKind::kOneShot);
  EXPECT_EQ(choice(2, 64 * 1024 + 1), PlanKind::kTwoStep);
  EXPECT_EQ(choice(8, 1 << 20), PlanKind::kTwoStep);
  for (const Collective other : {Collective::kReduceScatter, Collective::kAllGather,
                                 Collective::kBroadcast, Collective::kBarrier}) {
    EXPECT_EQ(choose_plan(other, 2, 16), PlanKind::kTwoStep);
  }
}

// From some size on two_step, and never one_shot again beyond it: no islands.
TEST(ChoosePlan, HasOneCrossoverPerSizeWhereTheModelPutsIt) {
  const double latency_bytes = 32 * 1024;
  for (int size = 3; size <= 8; ++size) {
    const double n = size;
    bool seen_two_step = false;
    for (size_t bytes = 64; bytes < 128 * 1024; bytes += 64) {
      const bool one_shot = choose_plan(Collective::kAllReduce, size, bytes) == PlanKind::kOneShot;
      const double b = static_cast<double>(bytes);
      const bool model = (n - 1) * b + latency_bytes < 2 * (n - 1) / n * b + 2 * latency_bytes;
      EXPECT_EQ(one_shot, model && bytes <= 64 * 1024) << size << " " << bytes;
      EXPECT_FALSE(one_shot && seen_two_step);
      seen_two_step |= !one_shot;
    }
  }
}

TEST(ChoosePlan, RanksThatShareCpusSendFewMessages) {
  const auto choice = [](int size, int cpus, size_t bytes,
                         Collective collective = Collective::kAllReduce) {
    return choose_lossless_plan(collective, size, bytes, nullptr, cpus);
  };
  for (const size_t bytes : {size_t{1}, size_t{4096}, size_t{1} << 20}) {
    for (const int cpus : {1, 2, 3, 100}) {
      EXPECT_EQ(choice(2 * cpus + 1, cpus, bytes), PlanKind::kTree) << cpus;
      EXPECT_EQ(choice(2 * cpus, cpus, bytes),
                choose_plan(Collective::kAllReduce, 2 * cpus, bytes));
    }
    EXPECT_EQ(choice(64, 0, bytes), PlanKind::kTwoStep) << "nobody says how many there are";
  }
  EXPECT_EQ(choice(8, 2, (1 << 20) + 1), PlanKind::kTwoStep);
  EXPECT_EQ(choice(8, std::numeric_limits<int>::max(), 1024), PlanKind::kOneShot);
  for (const Collective other : {Collective::kReduceScatter, Collective::kAllGather,
                                 Collective::kBroadcast, Collective::kBarrier}) {
    EXPECT_EQ(choice(8, 2, 1024, other), PlanKind::kTwoStep);
  }
  const auto wires = make_topology("ring8").value();
  EXPECT_EQ(choose_lossless_plan(Collective::kAllReduce, 8, 200 * 1024, wires.get(), 2),
            choose_plan(Collective::kAllReduce, 8, 200 * 1024, wires.get()));
}

TEST(ChoosePlan, HugeArraysDoNotOverflow) {
  EXPECT_EQ(choose_plan(Collective::kAllReduce, 8, SIZE_MAX / 2), PlanKind::kTwoStep);
}

}  // namespace
}  // namespace tersum::testing
