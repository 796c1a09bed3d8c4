// The error of quantized sums on N(0,1), 262,144 elements, 8 ranks, against float64.
#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <vector>

#include "support/cluster.h"

namespace tersum::testing {
namespace {

double relative_error(Cluster& cluster, const char* codec, PlanKind plan, uint64_t seed,
                      bool identical) {
  constexpr size_t kCount = 262'144;
  const auto size = static_cast<size_t>(cluster.size());
  std::mt19937_64 random(seed);
  std::normal_distribution<float> normal;
  std::vector<std::vector<float>> data(size, std::vector<float>(kCount));
  std::vector<double> sums(kCount);
  for (size_t r = 0; r < size; ++r) {
    for (size_t i = 0; i < kCount; ++i) {
      data[r][i] = identical && r > 0 ? data[0][i] : normal(random);
      sums[i] += static_cast<double>(data[r][i]);
    }
  }
  const CallOptions options{codec, plan, 0};
  const auto statuses = cluster.run([&](int rank, Communicator& communicator) {
    float* values = data[static_cast<size_t>(rank)].data();
    return communicator.start_all_reduce(values, values, kCount, DataType::kFloat32, ReduceOp::kSum,
                                         options);
  });
  for (const Status& status : statuses) EXPECT_TRUE(status.ok()) << status.to_string();
  for (const auto& values : data) EXPECT_EQ(values, data[0]);
  double error = 0, norm = 0;
  for (size_t i = 0; i < kCount; ++i) {
    error += std::pow(static_cast<double>(data[0][i]) - sums[i], 2);
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
