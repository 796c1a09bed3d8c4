// What a rank finds that makes its call after the others' has failed, and what is left to those.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "support/cluster.h"

namespace tersum::testing {
namespace {

constexpr CallOptions kExact{"exact", PlanKind::kAuto, 0};
constexpr size_t kCount = 50'000;

class LateRank : public ::testing::TestWithParam<ClusterKind> {
 protected:
  LateRank() : cluster_(options()), inputs_(3, std::vector<float>(kCount, 1.0F)) {
    outputs_.assign(3, std::vector<float>(kCount));
  }

  Work start(int rank, size_t count, const CallOptions& options) {
    const auto index = static_cast<size_t>(rank);
    return cluster_.at(rank).start_all_reduce(inputs_[index].data(), outputs_[index].data(), count,
                                              DataType::kFloat32, ReduceOp::kSum, options);
  }

  // A call of all three, of the same length, that must give the sum.
  void expect_usable() {
    std::vector<Work> works;
    for (const int rank : {2, 0, 1}) works.push_back(start(rank, kCount, kExact));
    for (const Status& status : cluster_.finish(works)) {
      EXPECT_TRUE(status.ok()) << status.to_string();
    }
    for (const auto& output : outputs_) EXPECT_EQ(output, std::vector<float>(kCount, 3.0F));
  }

  void expect_inputs_intact() const {
    for (const auto& input : inputs_) EXPECT_EQ(input, std::vector<float>(kCount, 1.0F));
  }

  // Rank 1 is the odd one; a late rank may name itself beside it, whose value is rank 0's.
  static void expect_disagreement(const Status& status) {
    EXPECT_EQ(status.code(), StatusCode::kDisagreement) << status.to_string();
    const std::string message(status.message());
    const auto named = [&](const char* part) { return message.find(part) != std::string::npos; };
    EXPECT_TRUE(named("rank 1 has 49999 elements")) << message;
    EXPECT_TRUE(named("rank 0 has 50000") || named("rank 2 has 50000")) << message;
  }

  Cluster cluster_;
  std::vector<std::vector<float>> inputs_;
  std::vector<std::vector<float>> outputs_;

 private:
  static ClusterOptions options() {
    ClusterOptions options;
    options.kind = GetParam();
    options.size = 3;
    return options;
  }
};

TEST_P(LateRank, HearsOfADisagreementAtItsNextCall) {
  std::vector<Work> works = {start(0, kCount, kExact), start(1, kCount - 1, kExact)};
  for (const Status& status : cluster_.finish(works)) expect_disagreement(status);
  works = {start(2, kCount, kExact)};
  for (const Status& status : cluster_.finish(works)) expect_disagreement(status);
  expect_inputs_intact();
  expect_usable();
}

TEST_P(LateRank, HearsOfItWhileTheOthersAreInTheirNextCall) {
  std::vector<Work> works = {start(0, kCount, kExact), start(1, kCount - 1, kExact)};
  for (const Status& status : cluster_.finish(works)) expect_disagreement(status);
  std::vector<Work> next = {start(1, kCount, kExact), start(0, kCount, kExact)};
  works = {start(2, kCount, kExact)};
  for (const Status& status : cluster_.finish(works)) expect_disagreement(status);
  next.push_back(start(2, kCount, kExact));
  for (const Status& status : cluster_.finish(next)) EXPECT_TRUE(status.ok()) << status.to_string();
  for (const auto& output : outputs_) EXPECT_EQ(output, std::vector<float>(kCount, 3.0F));
  expect_inputs_intact();
}

TEST_P(LateRank, LeavesTheOthersInputsIntactWhenTheyStopWaiting) {
  const CallOptions soon{"exact", PlanKind::kAuto, 200};
  std::vector<Work> works = {start(0, kCount, soon), start(1, kCount, soon)};
  for (const Status& status : cluster_.finish(works)) {
    EXPECT_EQ(status.code(), StatusCode::kTimeout) << status.to_string();
  }
  expect_inputs_intact();
}

INSTANTIATE_TEST_SUITE_P(Kinds, LateRank,
                         ::testing::Values(ClusterKind::kLocal, ClusterKind::kSim,
                                           ClusterKind::kTcp, ClusterKind::kShm),
                         [](const auto& info) { return cluster_kind_name(info.param); });

}  // namespace
}  // namespace tersum::testing
