// The error of quantized sums on N(0,1), 262,144 elements, 8 ranks, against float64: of all
// elements together, and of each one within the bound that its codec and plan state.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <random>
#include <vector>

#include "codec/codec.h"
#include "plan/plan.h"
#include "support/cluster.h"
#include "support/oracle.h"

namespace tersum::testing {
namespace {

constexpr size_t kCount = 262'144;

std::vector<TypedArray> normal_ranks(size_t size, uint64_t seed, bool identical) {
  std::mt19937_64 random(seed);
  std::normal_distribution<float> normal;
  std::vector<TypedArray> ranks(size);
  for (TypedArray& rank : ranks) {
    if (identical && &rank != ranks.data()) {
      rank = ranks[0];
      continue;
    }
    rank.values.resize(kCount);
    rank.bytes.resize(kCount * sizeof(float));
    for (size_t i = 0; i < kCount; ++i) {
      const float value = normal(random);
      rank.values[i] = static_cast<double>(value);
      std::memcpy(rank.bytes.data() + i * sizeof(float), &value, sizeof(float));
    }
  }
  return ranks;
}

double relative_error(Cluster& cluster, const char* codec_name, PlanKind plan, uint64_t seed,
                      bool identical) {
  const auto size = static_cast<size_t>(cluster.size());
  const std::vector<TypedArray> ranks = normal_ranks(size, seed, identical);
  std::vector<std::vector<std::byte>> outputs(size, std::vector<std::byte>(kCount * sizeof(float)));
  const CallOptions options{codec_name, plan, 0};
  const auto statuses = cluster.run([&](int rank, Communicator& communicator) {
    const auto index = static_cast<size_t>(rank);
    return communicator.start_all_reduce(ranks[index].bytes.data(), outputs[index].data(), kCount,
                                         DataType::kFloat32, ReduceOp::kSum, options);
  });
  for (const Status& status : statuses) EXPECT_TRUE(status.ok()) << status.to_string();
  for (const auto& output : outputs) {
    EXPECT_TRUE(output == outputs[0]) << "ranks differ in bits: " << codec_name << " seed " << seed;
  }
  const Codec* codec = find_codec(codec_name, DataType::kFloat32, ReduceOp::kSum).value();
  const Plan made =
      make_plan({Collective::kAllReduce, plan, cluster.size(), kCount, codec->block(), 0}).value();
  EXPECT_EQ(check_reduction(*codec, made, ReduceOp::kSum, ranks, outputs[0], 0, 0), "")
      << codec_name << " " << plan_kind_name(plan) << " seed " << seed;
  const std::vector<double> sums = exact_reduction(DataType::kFloat32, ReduceOp::kSum, ranks);
  const std::vector<double> got = to_doubles(DataType::kFloat32, outputs[0]);
  double error = 0, norm = 0;
  for (size_t i = 0; i < kCount; ++i) {
    error += std::pow(got[i] - sums[i], 2);
    norm += sums[i] * sums[i];
  }
  return std::sqrt(error / norm);
}

// reference/codecs.md section 3, EQuARX: int8/256, N(0,1), R = 8: ring <= 0.0155 (0.0149), two-step
// <= 0.0100 (0.0096); int4/128 two-step as in section 2, key table.
TEST(Accuracy, EightRanksOnNormalData) {
  ClusterOptions options;
  options.size = 8;
  Cluster cluster(options);
  const uint64_t seed = std::random_device{}();
  RecordProperty("seed", std::to_string(seed));
  struct Case {
    const char* codec;
    PlanKind plan;
    double most;
  };
  // Measured by an independent simulation: 0.0096, 0.0149, 0.161; another seed moves them by 2 %.
  for (const Case& c :
       {Case{"int8/256", PlanKind::kTwoStep, 0.0100}, Case{"int8/256", PlanKind::kRing, 0.0155},
        Case{"int4/128", PlanKind::kTwoStep, 0.166}}) {
    const double error = relative_error(cluster, c.codec, c.plan, seed, false);
    EXPECT_LE(error, c.most) << c.codec << " seed " << seed;
    EXPECT_GE(error, c.most * 0.8) << "too good to be true: is " << c.codec << " on the wire?";
  }
}

// reference/codecs.md section 1, correlated ranks: R identical tensors, error <= 1.3 e_q two-step,
// <= sqrt((R + 1) / 2) e_q ring. They are the worst case: a schedule must not add their errors up.
TEST(Accuracy, IdenticalRanks) {
  ClusterOptions options;
  options.size = 8;
  Cluster cluster(options);
  const uint64_t seed = std::random_device{}();
  RecordProperty("seed", std::to_string(seed));
  constexpr double kOneQuantization = 0.0070;  // int8/256 on N(0,1)
  EXPECT_LE(relative_error(cluster, "int8/256", PlanKind::kTwoStep, seed, true),
            1.3 * kOneQuantization);
  EXPECT_LE(relative_error(cluster, "int8/256", PlanKind::kRing, seed, true),
            std::sqrt(4.5) * kOneQuantization);
}

}  // namespace
}  // namespace tersum::testing
