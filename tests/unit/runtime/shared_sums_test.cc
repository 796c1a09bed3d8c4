// Sums whose ranks share scales: the same bits by every plan and schedule, those of an int64 sum of
// the codes; what is not finite on one rank is lost on all; and which calls are refused.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "codec/kernels/numbers.h"
#include "codec/shared_sums.h"
#include "support/oracle.h"
#include "support/small_slices.h"

namespace tersum::testing {
namespace {

using Bytes = std::vector<std::byte>;
using Floats = std::vector<float>;

constexpr uint64_t kSeed = 20261122;
constexpr PlanKind kPlans[] = {
    PlanKind::kTwoStep,         PlanKind::kRing,  PlanKind::kOneShot, PlanKind::kBidirectionalRing,
    PlanKind::kHalvingDoubling, PlanKind::kTorus, PlanKind::kTree,    PlanKind::kHierarchical};

Cluster make_cluster(int size, ClusterKind kind = ClusterKind::kLocal) {
  return make_small_slices(size, kSeed, kind);
}

std::vector<Floats> random_ranks(int size, size_t count) {
  std::mt19937_64 random(kSeed + static_cast<uint64_t>(size));
  std::normal_distribution<float> normal;
  std::vector<Floats> ranks(static_cast<size_t>(size), Floats(count));
  for (size_t rank = 0; rank < ranks.size(); ++rank) {
    const float scale = std::ldexp(1.0F, static_cast<int>(random() % 9) - 4);
    std::generate(ranks[rank].begin(), ranks[rank].end(), [&] { return normal(random) * scale; });
  }
  return ranks;
}

// The results of all ranks, which are the same.
Floats all_reduce(Cluster& cluster, const std::vector<Floats>& ranks, ReduceOp op,
                  const CallOptions& options) {
  const size_t count = ranks[0].size();
  std::vector<Floats> outputs(ranks.size(), Floats(count));
  const auto statuses = cluster.run([&](int rank, Communicator& communicator) {
    const auto r = static_cast<size_t>(rank);
    return communicator.start_all_reduce(ranks[r].data(), outputs[r].data(), count,
                                         DataType::kFloat32, op, options);
  });
  for (const Status& status : statuses) EXPECT_TRUE(status.ok()) << status.to_string();
  for (const Floats& output : outputs) {
    for (size_t i = 0; i < count; ++i) {
      if (float_bits(output[i]) == float_bits(outputs[0][i])) continue;
      ADD_FAILURE() << "ranks differ at " << i << ", seed " << kSeed;
      break;
    }
  }
  return outputs[0];
}

// In float64 and int64, block by block, rounded where docs/codecs.md says.
Floats expected_sum(const std::vector<Floats>& ranks, size_t block, float divisor,
                    long levels = 127) {
  Floats sums(ranks[0].size());
  for (size_t begin = 0; begin < sums.size(); begin += block) {
    const size_t end = std::min(begin + block, sums.size());
    float absmax = 0;
    for (const Floats& rank : ranks) {
      for (size_t i = begin; i < end; ++i) absmax = std::max(absmax, std::abs(rank[i]));
    }
    const auto most = static_cast<double>(levels);
    uint16_t bits = float_to_bf16(absmax / static_cast<float>(levels));
    while (bits > 0 && most * bf16_to_float(bits) >= absmax) --bits;
    while (most * bf16_to_float(bits) < absmax) ++bits;
    const float scale = bf16_to_float(bits);
    const float inverse = 1 / scale;
    for (size_t i = begin; i < end; ++i) {
      int64_t sum = 0;
      for (const Floats& rank : ranks) {
        sum += std::clamp(std::lrint(rank[i] * inverse), -levels, levels);
      }
      sums[i] = static_cast<float>(static_cast<double>(sum) * scale) / divisor;
    }
  }
  return sums;
}

// What the codec makes of values begin.. of all ranks without a plan, one of equal parts or all;
// integer_sums_test.cc holds that to sums of an independent encoder.
Floats codec_sum(const std::string& spec, const std::vector<Floats>& ranks, size_t begin,
                 size_t count, ReduceOp op) {
  const auto size = static_cast<uint32_t>(ranks.size());
  const SharedSums& sums =
      *find_codec(spec, DataType::kFloat32, ReduceOp::kSum).value()->shared_sums();
  const Codec& codec = sums.contributions(size);
  std::vector<uint16_t> scales(shared_scale_count(sums, count), 0);
  const bool one_scale = sums.scale_block() == 0;
  for (const Floats& rank : ranks) {
    for (size_t part = 0; part < rank.size(); part += count) {
      if (!one_scale && part != begin) continue;
      sums.measure(rank.data() + part, count, size, {}, scales.data());
    }
  }
  SlicePlace place;
  place.scales = scales.data();
  std::vector<Bytes> payloads;
  std::vector<const std::byte*> wires;
  for (const Floats& rank : ranks) {
    payloads.emplace_back(codec.wire_bytes(count));
    codec.encode(rank.data() + begin, count, payloads.back().data(), place);
    wires.push_back(payloads.back().data());
  }
  Floats total(count);
  const uint32_t divisor = op == ReduceOp::kAverage ? size : 1;
  codec.combine(wires, nullptr, 0, count, {op, divisor}, nullptr, total.data(), place);
  return total;
}

double squared_distance(const Floats& total, const std::vector<Floats>& ranks) {
  double squares = 0;
  for (size_t i = 0; i < total.size(); ++i) {
    double off = total[i];
    for (const Floats& rank : ranks) off -= double{rank[i]};
    squares += off * off;
  }
  return squares;
}

class SharedSumsOf : public ::testing::TestWithParam<int> {};

TEST_P(SharedSumsOf, EveryPlanGivesTheBitsOfTheIntegerSum) {
  const int size = GetParam();
  Cluster cluster = make_cluster(size);
  for (const size_t count : {1, 7, 256, 257, 10007, 40000}) {
    const std::vector<Floats> ranks = random_ranks(size, count);
    for (const ReduceOp op : {ReduceOp::kSum, ReduceOp::kAverage}) {
      const float divisor = op == ReduceOp::kAverage ? static_cast<float>(size) : 1.0F;
      const Floats expected = expected_sum(ranks, 64, divisor);
      for (const PlanKind plan : kPlans) {
        SCOPED_TRACE(std::string(plan_kind_name(plan)) + " count " + std::to_string(count));
        EXPECT_EQ(all_reduce(cluster, ranks, op, {"sum8/64", plan, 0}), expected);
      }
    }
  }
}

// Each row as an array of its own.
Floats expected_rows(const std::vector<Floats>& ranks, size_t row, size_t block, float divisor) {
  Floats sums;
  for (size_t begin = 0; begin < ranks[0].size(); begin += row) {
    std::vector<Floats> parts;
    for (const Floats& rank : ranks) {
      const size_t end = std::min(begin + row, rank.size());
      parts.emplace_back(rank.begin() + static_cast<std::ptrdiff_t>(begin),
                         rank.begin() + static_cast<std::ptrdiff_t>(end));
    }
    const Floats own = expected_sum(parts, block, divisor);
    sums.insert(sums.end(), own.begin(), own.end());
  }
  return sums;
}

// reference/codecs.md section 3, ZeroQuant: blocks must not straddle tokens.
TEST_P(SharedSumsOf, EveryPlanGivesTheBitsOfRowsToo) {
  const int size = GetParam();
  Cluster cluster = make_cluster(size);
  for (const size_t row : {3, 100, 192, 5000}) {
    const std::string spec = "sum8/64+rows:" + std::to_string(row);
    for (const size_t count : {1, 2, 100, 1009, 20011}) {
      const std::vector<Floats> ranks = random_ranks(size, count);
      const Floats expected = expected_rows(ranks, row, 64, static_cast<float>(size));
      for (const PlanKind plan : kPlans) {
        EXPECT_EQ(all_reduce(cluster, ranks, ReduceOp::kAverage, {spec, plan, 0}), expected)
            << spec << " " << plan_kind_name(plan) << " count " << count;
      }
    }
  }
}

// One scale, and levels so few that the sum of all fits 8 bits.
TEST_P(SharedSumsOf, EveryPlanGivesThoseOfOneScaleToo) {
  const int size = GetParam();
  Cluster cluster = make_cluster(size);
  for (const size_t count : {1, 4097, 10007}) {
    const std::vector<Floats> ranks = random_ranks(size, count);
    const Floats expected = expected_sum(ranks, count, static_cast<float>(size), 127 / size);
    for (const PlanKind plan : kPlans) {
      SCOPED_TRACE(std::string(plan_kind_name(plan)) + " count " + std::to_string(count));
      EXPECT_EQ(all_reduce(cluster, ranks, ReduceOp::kAverage, {"sum8:tensor", plan, 0}), expected);
    }
  }
}

// Transformed in whole blocks, wherever plans cut.
TEST_P(SharedSumsOf, EveryPlanGivesTheBitsOfTransformedSumsToo) {
  const int size = GetParam();
  Cluster cluster = make_cluster(size);
  for (const char* spec :
       {"sum8/64+hadamard", "sum8:tensor+hadamard", "sum8/64+rows:200+hadamard"}) {
    for (const size_t count : {1, 64, 1025, 10007}) {
      const std::vector<Floats> ranks = random_ranks(size, count);
      for (const ReduceOp op : {ReduceOp::kSum, ReduceOp::kAverage}) {
        const Floats expected = codec_sum(spec, ranks, 0, count, op);
        for (const PlanKind plan : kPlans) {
          SCOPED_TRACE(std::string(spec) + " " + std::string(plan_kind_name(plan)) + " count " +
                       std::to_string(count));
          EXPECT_EQ(all_reduce(cluster, ranks, op, {spec, plan, 0}), expected);
        }
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Sizes, SharedSumsOf, ::testing::Values(2, 3, 4, 5, 8));

// Random numbers follow from seed, rank, call and place: a call of the same number is the same.
TEST(SharedSums, RandomRoundingIsTheSameByEveryPlanToo) {
  const std::vector<Floats> ranks = random_ranks(4, 9001);
  for (const char* spec : {"sum8/64+sr", "sum8/64+rows:100+sr"}) {
    Floats first;
    for (const PlanKind plan : kPlans) {
      Cluster cluster = make_cluster(4);
      const Floats sums = all_reduce(cluster, ranks, ReduceOp::kSum, {spec, plan, 0});
      if (first.empty()) first = sums;
      EXPECT_EQ(sums, first) << spec << " " << plan_kind_name(plan);
    }
    EXPECT_NE(first, expected_sum(ranks, 64, 1));
  }
}

// `row` 0: there are none.
void check_scattered_parts(const std::string& spec, size_t row) {
  constexpr int kSize = 3;
  Cluster cluster = make_cluster(kSize);
  for (const size_t count : {1, 63, 1009}) {
    const std::vector<Floats> ranks = random_ranks(kSize, count * kSize);
    for (const PlanKind plan : {PlanKind::kTwoStep, PlanKind::kRing}) {
      std::vector<Floats> outputs(kSize, Floats(count));
      const auto statuses = cluster.run([&](int rank, Communicator& communicator) {
        const auto r = static_cast<size_t>(rank);
        return communicator.start_reduce_scatter(ranks[r].data(), outputs[r].data(), count,
                                                 DataType::kFloat32, ReduceOp::kSum,
                                                 {spec, plan, 0});
      });
      for (const Status& status : statuses) ASSERT_TRUE(status.ok()) << status.to_string();
      for (size_t part = 0; part < kSize; ++part) {
        std::vector<Floats> own;
        for (const Floats& rank : ranks) {
          const auto begin = rank.begin() + static_cast<std::ptrdiff_t>(part * count);
          own.emplace_back(begin, begin + static_cast<std::ptrdiff_t>(count));
        }
        EXPECT_EQ(outputs[part],
                  row == 0 ? expected_sum(own, 64, 1) : expected_rows(own, row, 64, 1))
            << plan_kind_name(plan) << " " << part;
      }
    }
  }
}

TEST(SharedSums, RaggedPartsOfAReduceScatterAreThoseOfTheSum) {
  check_scattered_parts("sum8/64", 0);
  for (const size_t row : {3, 100, 2000}) {
    check_scattered_parts("sum8/64+rows:" + std::to_string(row), row);
  }
}

// Blocks, which are counted from the begin of a part, are those that were measured also where one
// scale serves all parts.
TEST(SharedSums, TransformedPartsOfAReduceScatterAreTheirOwn) {
  constexpr int kSize = 3;
  Cluster cluster = make_cluster(kSize);
  for (const char* spec : {"sum8/64+hadamard", "sum8:tensor+hadamard"}) {
    for (const size_t count : {1, 1009, 70'001}) {
      std::vector<Floats> ranks = random_ranks(kSize, count * kSize);
      // So that no other block has the largest magnitude once it is transformed.
      for (size_t i = 0; i < std::min<size_t>(count, 1000); ++i) ranks[1][count + i] += 1000.0F;
      for (const PlanKind plan : {PlanKind::kTwoStep, PlanKind::kRing}) {
        SCOPED_TRACE(std::string(spec) + " " + std::string(plan_kind_name(plan)));
        std::vector<Floats> outputs(kSize, Floats(count));
        const auto statuses = cluster.run([&](int rank, Communicator& communicator) {
          const auto r = static_cast<size_t>(rank);
          return communicator.start_reduce_scatter(ranks[r].data(), outputs[r].data(), count,
                                                   DataType::kFloat32, ReduceOp::kSum,
                                                   {spec, plan, 0});
        });
        for (const Status& status : statuses) ASSERT_TRUE(status.ok()) << status.to_string();
        for (size_t part = 0; part < kSize; ++part) {
          EXPECT_EQ(outputs[part], codec_sum(spec, ranks, part * count, count, ReduceOp::kSum))
              << "part " << part << " count " << count;
        }
      }
    }
  }
}

// An outlier is spread over its block; that of the whole array pays for it where it is not.
TEST(SharedSums, TheTransformSpreadsOutliers) {
  Cluster cluster = make_cluster(4);
  std::vector<Floats> ranks = random_ranks(4, 8192);
  for (Floats& rank : ranks) {
    for (size_t i = 100; i < rank.size(); i += 1024) rank[i] = 1000.0F;
  }
  for (const std::string spec : {"sum8/256", "sum8:tensor"}) {
    const auto distance = [&](const std::string& codec) {
      const CallOptions options{codec, PlanKind::kAuto, 0};
      return squared_distance(all_reduce(cluster, ranks, ReduceOp::kSum, options), ranks);
    };
    EXPECT_LT(distance(spec + "+hadamard"), distance(spec) / 4) << spec;
  }
}

// tensors[t][rank] becomes the sum of tensor t.
void sum_list(Cluster& cluster, std::vector<std::vector<Floats>>& tensors, const char* codec) {
  std::vector<std::vector<TensorRef>> refs(static_cast<size_t>(cluster.size()));
  for (std::vector<Floats>& tensor : tensors) {
    for (size_t r = 0; r < refs.size(); ++r) {
      refs[r].push_back({tensor[r].data(), tensor[r].data(), tensor[r].size()});
    }
  }
  const auto statuses = cluster.run([&](int rank, Communicator& communicator) {
    return communicator.start_all_reduce_coalesced(refs[static_cast<size_t>(rank)],
                                                   DataType::kFloat32, ReduceOp::kSum,
                                                   {codec, PlanKind::kAuto, 0});
  });
  for (const Status& status : statuses) ASSERT_TRUE(status.ok()) << status.to_string();
}

// Padded to whole blocks, of which each is turned by itself.
TEST(SharedSums, ManyTensorsAreTurnedBlockByBlock) {
  constexpr int kSize = 3;
  Cluster cluster = make_cluster(kSize);
  for (const char* codec : {"sum8/64+hadamard", "sum8:tensor+hadamard"}) {
    std::vector<std::vector<Floats>> tensors;
    for (const size_t count : {5, 100, 0, 300'000, 64, 70'001}) {
      tensors.push_back(random_ranks(kSize, count));
    }
    const std::vector<std::vector<Floats>> inputs = tensors;
    sum_list(cluster, tensors, codec);
    for (size_t t = 0; t < tensors.size(); ++t) {
      double squares = 0, wrong = 0;
      for (size_t i = 0; i < tensors[t][0].size(); ++i) {
        double exact = 0;
        for (const Floats& rank : inputs[t]) exact += static_cast<double>(rank[i]);
        squares += exact * exact;
        wrong += std::pow(static_cast<double>(tensors[t][0][i]) - exact, 2);
      }
      EXPECT_LE(std::sqrt(wrong), 0.1 * std::sqrt(squares)) << codec << " tensor " << t;
      for (const Floats& output : tensors[t]) EXPECT_EQ(output, tensors[t][0]) << "tensor " << t;
    }
  }
}

TEST(SharedSums, ManyTensorsShareScalesToo) {
  constexpr int kSize = 3;
  Cluster cluster = make_cluster(kSize);
  const std::vector<size_t> counts = {5, 100, 0, 300'000, 64, 70'001};
  std::vector<std::vector<Floats>> tensors;
  for (const size_t count : counts) tensors.push_back(random_ranks(kSize, count));
  const std::vector<std::vector<Floats>> inputs = tensors;
  sum_list(cluster, tensors, "sum8/64");
  for (size_t t = 0; t < tensors.size(); ++t) {
    const Floats expected = expected_sum(inputs[t], 64, 1);
    for (const Floats& output : tensors[t]) EXPECT_EQ(output, expected) << "tensor " << t;
  }
  tensors = inputs;
  sum_list(cluster, tensors, "sum8/64+rows:100");
  for (size_t t = 0; t < tensors.size(); ++t) {
    const Floats expected = expected_rows(inputs[t], 100, 64, 1);
    for (const Floats& output : tensors[t]) EXPECT_EQ(output, expected) << "rows, tensor " << t;
  }
}

// Scales are the maximum over all ranks: values that only one of them has must not be lost.
TEST(SharedSums, WhatIsNotFiniteOnOneRankIsLostOnAll) {
  constexpr int kSize = 4;
  Cluster cluster = make_cluster(kSize);
  std::vector<Floats> ranks = random_ranks(kSize, 300);
  ranks[1][70] = std::numeric_limits<float>::quiet_NaN();
  ranks[3][299] = -std::numeric_limits<float>::infinity();
  std::fill_n(ranks[0].begin() + 128, 64, 0.0F);
  std::fill_n(ranks[2].begin() + 128, 64, 0x1p-149F);
  for (const PlanKind plan : kPlans) {
    const Floats sums = all_reduce(cluster, ranks, ReduceOp::kSum, {"sum8/64", plan, 0});
    for (size_t i = 0; i < sums.size(); ++i) {
      const bool is_lost = i / 64 == 1 || i / 64 == 4;
      ASSERT_EQ(std::isnan(sums[i]), is_lost) << plan_kind_name(plan) << " value " << i;
    }
    const Floats rows = all_reduce(cluster, ranks, ReduceOp::kSum, {"sum8/64+rows:80", plan, 0});
    for (size_t i = 0; i < rows.size(); ++i) {
      ASSERT_EQ(std::isnan(rows[i]), (i >= 64 && i < 80) || i >= 240) << i;
    }
  }
}

// reference/codecs.md section 3, Global-QSGD, corner bug: use floor(127/R), and test it.
// Global-QSGD's 127 x / (R M), rounded at random, may come to R ceil(127 / R) = 128 of ranks that
// are all at the maximum, R = 2, 4, 8; here it is R floor(127 / R).
TEST(SharedSums, OneScaleHasRoomForAllRanksAtTheMaximum) {
  for (const int size : {2, 4, 8}) {
    Cluster cluster = make_cluster(size);
    const int levels = 127 / size;
    for (const float most : {1.0F, 1.003F, 45.0F, -0.7F, 0x1.fffffep120F}) {
      const std::vector<Floats> ranks(static_cast<size_t>(size), Floats(2000, most));
      const double exact = double{most} * size;
      for (const char* codec : {"sum8:tensor", "sum8:tensor+sr"}) {
        for (const PlanKind plan : kPlans) {
          const Floats sums = all_reduce(cluster, ranks, ReduceOp::kSum, {codec, plan, 0});
          // A bf16 is at most 2^-7 above the scale that was wanted.
          const double step = std::abs(most) / levels * (1 + 0x1p-7);
          for (const float sum : sums) {
            ASSERT_NEAR(sum, exact, step * size) << codec << " " << plan_kind_name(plan);
          }
        }
      }
    }
  }
}

// reference/codecs.md section 3, Global-QSGD: the corner bug's kin with a scale to a block.
// Nearest scales would make 127 of a value at the maximum 128, which wraps.
TEST(SharedSums, RanksThatAllSitAtTheMaximumDoNotWrap) {
  for (const int size : {2, 4, 8}) {
    Cluster cluster = make_cluster(size);
    for (const float most : {1.0F, 1.003F, 3.9F, 65504.0F, 0x1.fffffep127F, -0.7F}) {
      const std::vector<Floats> ranks(static_cast<size_t>(size), Floats(100, most));
      const double exact = double{most} * size;
      for (const PlanKind plan : kPlans) {
        const Floats sums = all_reduce(cluster, ranks, ReduceOp::kSum, {"sum8/32", plan, 0});
        // Half a step of each rank. Beyond the largest number there is the infinity.
        const double step = std::abs(exact) / 127 * (1 + 0x1p-7);
        if (std::abs(exact) > std::numeric_limits<float>::max()) {
          EXPECT_TRUE(std::isinf(sums[0])) << plan_kind_name(plan);
        } else {
          EXPECT_NEAR(sums[0], exact, step / 2) << plan_kind_name(plan) << " " << most;
        }
      }
    }
  }
}

TEST(SharedSums, CallsThatSumNothingTravelAsInt8) {
  constexpr int kSize = 3;
  Cluster cluster = make_cluster(kSize);
  const std::vector<Floats> ranks = random_ranks(kSize, 500);
  std::vector<Floats> gathered(kSize, Floats(1500)), as_int8 = gathered;
  for (auto* outputs : {&gathered, &as_int8}) {
    const auto statuses = cluster.run([&](int rank, Communicator& communicator) {
      const auto r = static_cast<size_t>(rank);
      return communicator.start_all_gather(
          ranks[r].data(), (*outputs)[r].data(), 500, DataType::kFloat32,
          {outputs == &gathered ? "sum8/64" : "int8/64", PlanKind::kAuto, 0});
    });
    for (const Status& status : statuses) ASSERT_TRUE(status.ok()) << status.to_string();
  }
  EXPECT_EQ(gathered, as_int8);
}

TEST(SharedSums, ADisagreementLeavesTheGroupUsable) {
  Cluster cluster = make_cluster(3, ClusterKind::kSim);
  const std::vector<Floats> ranks = random_ranks(3, 5000);
  std::vector<Floats> outputs(3, Floats(5000));
  const auto statuses = cluster.run([&](int rank, Communicator& communicator) {
    const auto r = static_cast<size_t>(rank);
    return communicator.start_all_reduce(ranks[r].data(), outputs[r].data(), 5000,
                                         DataType::kFloat32, ReduceOp::kSum,
                                         {rank == 1 ? "int8/64" : "sum8/64", PlanKind::kAuto, 0});
  });
  for (const Status& status : statuses) {
    EXPECT_EQ(status.code(), StatusCode::kDisagreement) << status.to_string();
  }
  EXPECT_EQ(all_reduce(cluster, ranks, ReduceOp::kSum, {"sum8/64", PlanKind::kAuto, 0}),
            expected_sum(ranks, 64, 1));
}

// Messages in any order, on several seeds.
TEST(SharedSums, ASlowNetworkChangesNoBits) {
  const std::vector<Floats> ranks = random_ranks(5, 20011);
  const Floats expected = expected_sum(ranks, 64, 1);
  Cluster cluster = make_cluster(5, ClusterKind::kSim);
  for (const PlanKind plan : kPlans) {
    EXPECT_EQ(all_reduce(cluster, ranks, ReduceOp::kSum, {"sum8/64", plan, 0}), expected)
        << plan_kind_name(plan);
  }
}

TEST(SharedSums, MoreRanksThanTheIntegersHoldAreRefused) {
  Cluster cluster = make_cluster(128);
  Floats values(3, 1.0F);
  const Status status =
      cluster.at(0).all_reduce(values.data(), values.data(), 3, DataType::kFloat32, ReduceOp::kSum,
                               {"sum8", PlanKind::kAuto, 0});
  EXPECT_EQ(status.code(), StatusCode::kUnsupported);
  EXPECT_EQ(status.message(),
            "codec sum8/256 adds up the integers of at most 127 ranks, and this group has 128; "
            "use int8, or sum within smaller groups");
}

}  // namespace
}  // namespace tersum::testing
