// lut2 in calls: the same bits by all plans it takes, those of the tree of means; and which calls
// are refused, with the reason.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "codec/kernels/numbers.h"
#include "support/small_slices.h"

namespace tersum::testing {
namespace {

using ::testing::HasSubstr;
using Floats = std::vector<float>;

constexpr uint64_t kSeed = 20261122;
constexpr size_t kBlock = 32;
constexpr PlanKind kPlans[] = {PlanKind::kTwoStep, PlanKind::kOneShot, PlanKind::kHalvingDoubling,
                               PlanKind::kTree, PlanKind::kHierarchical};

Cluster make_cluster(int size, ClusterKind kind = ClusterKind::kLocal,
                     const std::string& topology = "") {
  return make_small_slices(size, kSeed, kind, topology);
}

std::vector<Floats> random_ranks(int size, size_t count) {
  return normal_ranks(size, count, kSeed);
}

// The results of all ranks; of an all-reduce the same.
std::vector<Floats> call(Cluster& cluster, const std::vector<Floats>& ranks, Collective collective,
                         ReduceOp op, const CallOptions& options) {
  const bool is_scatter = collective == Collective::kReduceScatter;
  const size_t count = ranks[0].size() / (is_scatter ? ranks.size() : 1);
  std::vector<Floats> outputs(ranks.size(), Floats(count));
  const auto statuses = cluster.run([&](int rank, Communicator& communicator) {
    const auto r = static_cast<size_t>(rank);
    if (is_scatter) {
      return communicator.start_reduce_scatter(ranks[r].data(), outputs[r].data(), count,
                                               DataType::kFloat32, op, options);
    }
    return communicator.start_all_reduce(ranks[r].data(), outputs[r].data(), count,
                                         DataType::kFloat32, op, options);
  });
  for (const Status& status : statuses) EXPECT_TRUE(status.ok()) << status.to_string();
  return outputs;
}

// Levels are -3, -1, 1, 3 halves; codes 0 to 3. Of the two codes around a mean that is none the one
// on the side of the earlier rank.
float mean_of(std::vector<int> codes) {
  for (; codes.size() > 1; codes.resize(codes.size() / 2)) {
    for (size_t i = 0; i < codes.size() / 2; ++i) {
      const int a = codes[2 * i];
      const int b = codes[2 * i + 1];
      codes[i] = (a + b + (a > b ? 1 : 0)) / 2;
    }
  }
  return static_cast<float>(codes[0]) - 1.5F;
}

float step_of(const std::vector<Floats>& ranks, size_t begin, size_t end) {
  float absmax = 0;
  for (const Floats& rank : ranks) {
    for (size_t i = begin; i < end; ++i) absmax = std::max(absmax, std::abs(rank[i]));
  }
  uint16_t bits = float_to_bf16(absmax / 1.5F);
  while (bits > 0 && 1.5 * bf16_to_float(bits) >= absmax) --bits;
  while (1.5 * bf16_to_float(bits) < absmax) ++bits;
  return bf16_to_float(bits);
}

Floats expected_sum(const std::vector<Floats>& ranks, float factor) {
  Floats sums(ranks[0].size());
  for (size_t begin = 0; begin < sums.size(); begin += kBlock) {
    const size_t end = std::min(begin + kBlock, sums.size());
    const float step = step_of(ranks, begin, end);
    const float inverse = 1 / step;
    for (size_t i = begin; i < end; ++i) {
      std::vector<int> codes;
      for (const Floats& rank : ranks) {
        codes.push_back(std::clamp(static_cast<int>(std::floor(rank[i] * inverse)) + 2, 0, 3));
      }
      sums[i] = mean_of(codes) * step * factor;
    }
  }
  return sums;
}

class PairedCallsOf : public ::testing::TestWithParam<int> {};

TEST_P(PairedCallsOf, GiveTheTreeOfMeansByEveryPlan) {
  const int size = GetParam();
  Cluster cluster = make_cluster(size);
  for (const size_t count : {1, 7, 32, 33, 10007, 70001}) {
    const std::vector<Floats> ranks = random_ranks(size, count);
    for (const ReduceOp op : {ReduceOp::kSum, ReduceOp::kAverage}) {
      const float factor = op == ReduceOp::kSum ? static_cast<float>(size) : 1.0F;
      const Floats expected = expected_sum(ranks, factor);
      for (const PlanKind plan : kPlans) {
        const auto sums = call(cluster, ranks, Collective::kAllReduce, op, {"lut2", plan, 0});
        for (const Floats& sum : sums) {
          EXPECT_EQ(sum, expected) << plan_kind_name(plan) << " count " << count;
        }
      }
    }
  }
}

// Row by row, each as an array of its own: no step belongs to two of them, nor a byte.
TEST_P(PairedCallsOf, GiveThoseOfEveryRow) {
  const int size = GetParam();
  Cluster cluster = make_cluster(size);
  for (const size_t row : {3, 50, 96}) {
    const std::string codec = "lut2+rows:" + std::to_string(row);
    for (const size_t count : {1, 7, 96, 3011}) {
      const std::vector<Floats> ranks = random_ranks(size, count);
      Floats expected;
      for (size_t begin = 0; begin < count; begin += row) {
        std::vector<Floats> parts;
        for (const Floats& rank : ranks) {
          const size_t end = std::min(begin + row, count);
          parts.emplace_back(rank.begin() + static_cast<std::ptrdiff_t>(begin),
                             rank.begin() + static_cast<std::ptrdiff_t>(end));
        }
        const Floats own = expected_sum(parts, 1);
        expected.insert(expected.end(), own.begin(), own.end());
      }
      for (const PlanKind plan : kPlans) {
        const auto sums =
            call(cluster, ranks, Collective::kAllReduce, ReduceOp::kAverage, {codec, plan, 0});
        for (const Floats& sum : sums) {
          EXPECT_EQ(sum, expected) << codec << " " << plan_kind_name(plan) << " count " << count;
        }
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Sizes, PairedCallsOf, ::testing::Values(2, 4, 8, 16));

TEST(PairedCalls, RaggedPartsOfAReduceScatterAreThoseOfTheSum) {
  constexpr size_t kSize = 4;
  Cluster cluster = make_cluster(kSize);
  for (const size_t count : {1, 31, 1009}) {
    const std::vector<Floats> ranks = random_ranks(kSize, count * kSize);
    for (const PlanKind plan : {PlanKind::kTwoStep, PlanKind::kHalvingDoubling, PlanKind::kTree}) {
      const auto outputs =
          call(cluster, ranks, Collective::kReduceScatter, ReduceOp::kSum, {"lut2", plan, 0});
      for (size_t part = 0; part < kSize; ++part) {
        std::vector<Floats> own;
        for (const Floats& rank : ranks) {
          const auto begin = rank.begin() + static_cast<std::ptrdiff_t>(part * count);
          own.emplace_back(begin, begin + static_cast<std::ptrdiff_t>(count));
        }
        EXPECT_EQ(outputs[part], expected_sum(own, kSize))
            << plan_kind_name(plan) << " count " << count << " part " << part;
      }
    }
  }
}

// Eight ranks on four hosts, which all reach each other.
std::string hosts_of(const std::array<const char*, 4>& ranks) {
  std::string text = R"({"rate": "1gbit", "switches": ["s"], "hosts": [)";
  for (size_t i = 0; i < ranks.size(); ++i) {
    text += (i == 0 ? "" : ", ") + (R"({"name": "h)" + std::to_string(i) + R"(", "ranks": [)") +
            ranks[i] + "]}";
  }
  text += R"(], "links": [)";
  for (size_t i = 0; i < ranks.size(); ++i) {
    text += (i == 0 ? "" : ", ") + (R"({"between": ["h)" + std::to_string(i) + R"(", "s"]})");
  }
  return text + "]}";
}

TEST(PairedCalls, HostsThatHoldNeighboursAddThemUpFirst) {
  const std::vector<Floats> ranks = random_ranks(8, 5003);
  const Floats expected = expected_sum(ranks, 8);
  const std::array even{"0, 1", "2, 3", "4, 5", "6, 7"};
  const std::array uneven{"0, 1, 2, 3", "4, 5", "6", "7"};
  for (const auto& hosts : {even, uneven}) {
    Cluster cluster = make_cluster(8, ClusterKind::kLocal, hosts_of(hosts));
    for (const PlanKind plan : kPlans) {
      const auto sums =
          call(cluster, ranks, Collective::kAllReduce, ReduceOp::kSum, {"lut2", plan, 0});
      for (const Floats& sum : sums) EXPECT_EQ(sum, expected) << plan_kind_name(plan);
    }
  }
}

TEST(PairedCalls, HostsThatHoldOthersAreRefusedOnPlansOfHosts) {
  Cluster cluster =
      make_cluster(8, ClusterKind::kLocal, hosts_of({"0, 2", "1, 3", "4, 6", "5, 7"}));
  std::vector<Floats> values(8, Floats(100, 1.0F));
  for (const PlanKind plan : {PlanKind::kTree, PlanKind::kHierarchical}) {
    const auto statuses = cluster.run([&](int rank, Communicator& communicator) {
      Floats& own = values[static_cast<size_t>(rank)];
      return communicator.start_all_reduce(own.data(), own.data(), own.size(), DataType::kFloat32,
                                           ReduceOp::kSum, {"lut2", plan, 0});
    });
    for (const Status& status : statuses) {
      EXPECT_EQ(status.code(), StatusCode::kUnsupported);
      EXPECT_THAT(std::string(status.message()),
                  HasSubstr(std::string("codec lut2/32 is refused on plan ") +
                            std::string(plan_kind_name(plan)) +
                            ", by which hosts add up ranks that do not stand two by two; use "
                            "plan two_step, one_shot or halving_doubling"));
    }
  }
  // Nothing is lost by asking.
  const std::vector<Floats> ranks = random_ranks(8, 100);
  for (const Floats& sum : call(cluster, ranks, Collective::kAllReduce, ReduceOp::kSum,
                                {"lut2", PlanKind::kHalvingDoubling, 0})) {
    EXPECT_EQ(sum, expected_sum(ranks, 8));
  }
}

TEST(PairedCalls, ASlowNetworkChangesNoBits) {
  const std::vector<Floats> ranks = random_ranks(8, 20011);
  const Floats expected = expected_sum(ranks, 8);
  Cluster cluster = make_cluster(8, ClusterKind::kSim);
  for (const PlanKind plan : kPlans) {
    const auto sums =
        call(cluster, ranks, Collective::kAllReduce, ReduceOp::kSum, {"lut2", plan, 0});
    for (const Floats& sum : sums) EXPECT_EQ(sum, expected) << plan_kind_name(plan);
  }
}

// Where ranks that are no neighbours have no link, other codecs would take a ring.
TEST(PairedCalls, ATopologyDoesNotDecideTheirPlan) {
  std::vector<Floats> values(4, Floats(100, 1.0F));
  Cluster cluster = make_cluster(4, ClusterKind::kSim, "ring4");
  const auto statuses = cluster.run([&](int rank, Communicator& communicator) {
    Floats& own = values[static_cast<size_t>(rank)];
    return communicator.start_all_reduce(own.data(), own.data(), own.size(), DataType::kFloat32,
                                         ReduceOp::kSum, {"lut2", PlanKind::kAuto, 0});
  });
  for (const Status& status : statuses) {
    EXPECT_THAT(status.to_string(), HasSubstr("two_step needs a link between rank"));
  }
}

TEST(PairedCalls, AnErrorIsWithinItsBound) {
  constexpr int kSize = 8;
  Cluster cluster = make_cluster(kSize);
  const std::vector<Floats> ranks = random_ranks(kSize, 4099);
  const auto sums =
      call(cluster, ranks, Collective::kAllReduce, ReduceOp::kSum, {"lut2", PlanKind::kTwoStep, 0});
  for (size_t begin = 0; begin < sums[0].size(); begin += kBlock) {
    const size_t end = std::min(begin + kBlock, sums[0].size());
    const double absmax = 1.5 * static_cast<double>(step_of(ranks, begin, end));
    const Result<double> bound =
        cluster.at(0).error_bound("lut2", PlanKind::kTwoStep, sums[0].size(), DataType::kFloat32,
                                  absmax, kSize * absmax, Collective::kAllReduce);
    ASSERT_TRUE(bound.ok()) << bound.status().to_string();
    for (size_t i = begin; i < end; ++i) {
      double exact = 0;
      for (const Floats& rank : ranks) exact += double{rank[i]};
      ASSERT_LE(std::abs(double{sums[0][i]} - exact), bound.value()) << "value " << i;
    }
  }
}

TEST(PairedCalls, WhatIsNotFiniteOnOneRankIsLostOnAll) {
  constexpr int kSize = 4;
  Cluster cluster = make_cluster(kSize);
  std::vector<Floats> ranks = random_ranks(kSize, 300);
  ranks[1][70] = std::numeric_limits<float>::quiet_NaN();
  ranks[3][299] = -std::numeric_limits<float>::infinity();
  for (const PlanKind plan : kPlans) {
    for (const Floats& sum :
         call(cluster, ranks, Collective::kAllReduce, ReduceOp::kSum, {"lut2", plan, 0})) {
      for (size_t i = 0; i < sum.size(); ++i) {
        ASSERT_EQ(std::isnan(sum[i]), i / kBlock == 2 || i / kBlock == 9) << "value " << i;
      }
    }
  }
}

Status refused(Cluster& cluster, PlanKind plan) {
  Floats values(3, 1.0F);
  return cluster.at(0).all_reduce(values.data(), values.data(), 3, DataType::kFloat32,
                                  ReduceOp::kSum, {"lut2", plan, 0});
}

TEST(PairedCalls, PlansThatAddRankAfterRankAreRefused) {
  Cluster cluster = make_cluster(4);
  for (const PlanKind plan : {PlanKind::kRing, PlanKind::kBidirectionalRing, PlanKind::kTorus}) {
    const Status status = refused(cluster, plan);
    EXPECT_EQ(status.code(), StatusCode::kUnsupported);
    EXPECT_THAT(std::string(status.message()),
                HasSubstr(std::string(plan_kind_name(plan)) +
                          ", which adds rank after rank to what passes through: it adds ranks two "
                          "by two; use plan two_step, one_shot, halving_doubling or tree"));
  }
}

// They have one order.
TEST(PairedCalls, TwoRanksTakeEveryPlan) {
  Cluster cluster = make_cluster(2);
  const std::vector<Floats> ranks = random_ranks(2, 3001);
  const Floats expected = expected_sum(ranks, 2);
  for (const PlanKind plan : {PlanKind::kRing, PlanKind::kBidirectionalRing, PlanKind::kTorus}) {
    const auto sums =
        call(cluster, ranks, Collective::kAllReduce, ReduceOp::kSum, {"lut2", plan, 0});
    for (const Floats& sum : sums) EXPECT_EQ(sum, expected) << plan_kind_name(plan);
  }
}

TEST(PairedCalls, GroupsThatAreNoPowerOfTwoAreRefused) {
  for (const int size : {3, 6}) {
    Cluster cluster = make_cluster(size);
    const Status status = refused(cluster, PlanKind::kAuto);
    EXPECT_EQ(status.code(), StatusCode::kUnsupported);
    EXPECT_EQ(status.message(),
              "codec lut2/32 adds streams two by two, for 2, 4, 8, … 4096 ranks, and this group "
              "has " +
                  std::to_string(size) + "; use int2, or groups of such a size");
  }
}

// One rank keeps its values, and what sums nothing takes any plan.
TEST(PairedCalls, OtherCallsTravelWithScales) {
  Cluster alone = make_cluster(1);
  const std::vector<Floats> one = random_ranks(1, 100);
  EXPECT_EQ(call(alone, one, Collective::kAllReduce, ReduceOp::kSum, {"lut2", PlanKind::kAuto, 0}),
            one);
  constexpr size_t kSize = 3;
  Cluster cluster = make_cluster(kSize);
  const std::vector<Floats> ranks = random_ranks(kSize, 500);
  std::vector<Floats> outputs(kSize, Floats(kSize * 500));
  const auto statuses = cluster.run([&](int rank, Communicator& communicator) {
    const auto r = static_cast<size_t>(rank);
    return communicator.start_all_gather(ranks[r].data(), outputs[r].data(), 500,
                                         DataType::kFloat32, {"lut2", PlanKind::kRing, 0});
  });
  for (const Status& status : statuses) ASSERT_TRUE(status.ok()) << status.to_string();
  for (size_t r = 0; r < kSize; ++r) {
    const Floats expected = expected_sum({ranks[r]}, 1);
    for (const Floats& output : outputs) {
      EXPECT_TRUE(std::equal(expected.begin(), expected.end(),
                             output.begin() + static_cast<std::ptrdiff_t>(r * 500)));
    }
  }
}

}  // namespace
}  // namespace tersum::testing
