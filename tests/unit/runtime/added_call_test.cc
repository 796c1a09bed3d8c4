// all_reduce with a residual and a bias, over whole groups: sums of whole numbers, which are exact,
// and what is refused before anything starts.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>
#include <string>
#include <vector>

#include "support/cluster.h"

namespace tersum::testing {
namespace {

using ::testing::HasSubstr;

constexpr size_t kCount = 24'000;
constexpr size_t kBias = 48;
constexpr uint64_t kSeed = 31;

std::vector<float> whole_numbers(uint64_t seed, size_t count) {
  std::mt19937_64 random(seed);
  std::vector<float> values(count);
  for (float& value : values) value = static_cast<float>(random() % 201) - 100.0F;
  return values;
}

class AddedCall : public ::testing::TestWithParam<ClusterKind> {};

TEST_P(AddedCall, SumsWhatEveryRankAddsInEveryPlan) {
  constexpr int kRanks = 3;
  ClusterOptions options;
  options.kind = GetParam();
  options.size = kRanks;
  options.communicator.slice_bytes = 4096;
  options.communicator.timeout_ms = 20'000;
  Cluster cluster(options);
  std::vector<std::vector<float>> inputs, residuals, biases;
  std::vector<float> expected(kCount, 0.0F);
  for (uint64_t rank = 0; rank < kRanks; ++rank) {
    inputs.push_back(whole_numbers(kSeed + rank, kCount));
    residuals.push_back(whole_numbers(kSeed + 10 + rank, kCount));
    biases.push_back(whole_numbers(kSeed + 20 + rank, kBias));
    for (size_t i = 0; i < kCount; ++i) {
      expected[i] += inputs[rank][i] + residuals[rank][i] + biases[rank][i % kBias];
    }
  }
  for (const PlanKind plan : {PlanKind::kTwoStep, PlanKind::kRing, PlanKind::kOneShot,
                              PlanKind::kTree, PlanKind::kHalvingDoubling}) {
    // The result over the residual.
    std::vector<std::vector<float>> outputs = residuals;
    const auto statuses = cluster.run([&](int rank, Communicator& communicator) {
      const auto index = static_cast<size_t>(rank);
      CallOptions how{"exact", plan, 0};
      how.residual = outputs[index].data();
      how.bias = biases[index].data();
      how.bias_count = kBias;
      return communicator.start_all_reduce(inputs[index].data(), outputs[index].data(), kCount,
                                           DataType::kFloat32, ReduceOp::kSum, how);
    });
    for (const Status& status : statuses) ASSERT_TRUE(status.ok()) << status.to_string();
    for (const auto& output : outputs) EXPECT_EQ(output, expected) << plan_kind_name(plan);
  }
}

INSTANTIATE_TEST_SUITE_P(All, AddedCall,
                         ::testing::Values(ClusterKind::kLocal, ClusterKind::kShm,
                                           ClusterKind::kSim),
                         [](const auto& point) { return cluster_kind_name(point.param); });

TEST(AddedCallErrors, NameWhatDoesNotFit) {
  ClusterOptions options;
  options.size = 2;
  Cluster cluster(options);
  Communicator& group = cluster.at(0);
  std::vector<float> values(100, 1.0F), output(100), added(100, 1.0F);
  const auto message = [&](auto&& change) {
    CallOptions how;
    change(how);
    const Status status = group.all_reduce(values.data(), output.data(), 100, DataType::kFloat32,
                                           ReduceOp::kSum, how);
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
    return std::string(status.message());
  };
  const auto with_bias = [&](const float* bias, size_t count) {
    return message([=](CallOptions& how) {
      how.bias = bias;
      how.bias_count = count;
    });
  };
  EXPECT_THAT(with_bias(added.data(), 0), HasSubstr("bias has 0 elements and is not null"));
  EXPECT_THAT(with_bias(nullptr, 10), HasSubstr("bias has 10 elements and is null"));
  EXPECT_THAT(with_bias(added.data(), 30), HasSubstr("does not divide the length 100"));
  EXPECT_THAT(with_bias(output.data() + 90, 10), HasSubstr("bias overlaps the output"));
  EXPECT_THAT(message([&](CallOptions& how) { how.residual = output.data() + 1; }),
              HasSubstr("residual overlaps the output"));
  CallOptions how;
  how.residual = added.data();
  EXPECT_THAT(std::string(group
                              .reduce_scatter(values.data(), output.data(), 50, DataType::kFloat32,
                                              ReduceOp::kSum, how)
                              .message()),
              HasSubstr("not in reduce_scatter"));
  const TensorRef tensor{values.data(), output.data(), 100};
  EXPECT_THAT(
      std::string(group.all_reduce_coalesced({&tensor, 1}, DataType::kFloat32, ReduceOp::kSum, how)
                      .message()),
      HasSubstr("not in all_reduce_coalesced"));
}

}  // namespace
}  // namespace tersum::testing
