// +clip:learned in calls: every rank learns the same by every plan, calls of a site run in order,
// and a state that is saved goes on where it was.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <thread>
#include <vector>

#include "support/small_slices.h"

namespace tersum::testing {
namespace {

using ::testing::HasSubstr;
using Floats = std::vector<float>;

constexpr uint64_t kSeed = 20261122;
constexpr size_t kCount = 20'011;
constexpr const char* kSpec = "int4/128+clip:learned";
// By then a clip is trusted.
constexpr int kCallsToLearn = 14;

// Expects the same bits on all ranks; gives them.
Floats call(Cluster& cluster, uint64_t seed, const CallOptions& options,
            ReduceOp op = ReduceOp::kSum, size_t count = kCount) {
  const int size = cluster.size();
  const std::vector<Floats> ranks = normal_ranks(size, count, seed);
  std::vector<Floats> outputs(ranks.size(), Floats(count));
  const auto statuses = cluster.run([&](int rank, Communicator& communicator) {
    const auto r = static_cast<size_t>(rank);
    return communicator.start_all_reduce(ranks[r].data(), outputs[r].data(), count,
                                         DataType::kFloat32, op, options);
  });
  for (const Status& status : statuses) EXPECT_TRUE(status.ok()) << status.to_string();
  for (const Floats& output : outputs) EXPECT_EQ(output, outputs[0]) << "seed " << seed;
  return outputs[0];
}

CallOptions options_with(PlanKind plan, std::string_view site = {}) {
  CallOptions options;
  options.codec = kSpec;
  options.plan = plan;
  options.site = site;
  return options;
}

int64_t bytes_of_call(Cluster& cluster, uint64_t seed, const CallOptions& options) {
  const auto sent = [&] { return static_cast<int64_t>(cluster.at(0).stats().wire_bytes_sent); };
  const int64_t before = sent();
  call(cluster, seed, options);
  return sent() - before;
}

double rel_error(const Floats& got, int size, uint64_t seed) {
  const std::vector<Floats> ranks = normal_ranks(size, got.size(), seed);
  double off = 0;
  double all = 0;
  for (size_t i = 0; i < got.size(); ++i) {
    double exact = 0;
    for (const Floats& rank : ranks) exact += double{rank[i]};
    off += std::pow(double{got[i]} - exact, 2);
    all += exact * exact;
  }
  return std::sqrt(off / all);
}

class ClipCallsBy : public ::testing::TestWithParam<PlanKind> {};

// Shorter messages and no greater error, as the state is the same on all ranks.
TEST_P(ClipCallsBy, LearnTheSameOnAllRanks) {
  constexpr int kSize = 4;
  Cluster cluster = make_small_slices(kSize, kSeed);
  const CallOptions options = options_with(GetParam());
  const int64_t first_bytes = bytes_of_call(cluster, 1, options);
  const double first = rel_error(call(cluster, 2, options), kSize, 2);
  for (uint64_t i = 0; i < kCallsToLearn; ++i) call(cluster, 3 + i, options);
  EXPECT_LT(bytes_of_call(cluster, 100, options), first_bytes);
  EXPECT_LT(rel_error(call(cluster, 101, options), kSize, 101), 1.02 * first);
  std::vector<std::vector<std::byte>> saved;
  for (int rank = 0; rank < kSize; ++rank) {
    saved.push_back(cluster.at(rank).save_flatten().value());
    EXPECT_EQ(saved.back(), saved.front()) << "rank " << rank;
  }
}

INSTANTIATE_TEST_SUITE_P(Plans, ClipCallsBy,
                         ::testing::Values(PlanKind::kTwoStep, PlanKind::kRing, PlanKind::kOneShot,
                                           PlanKind::kBidirectionalRing, PlanKind::kHalvingDoubling,
                                           PlanKind::kTree));

TEST(ClipCalls, ASlowNetworkChangesNoBits) {
  const CallOptions options = options_with(PlanKind::kTwoStep);
  Cluster quick = make_small_slices(3, kSeed);
  Cluster slow = make_small_slices(3, kSeed, ClusterKind::kSim);
  for (uint64_t i = 0; i < kCallsToLearn; ++i) {
    ASSERT_EQ(call(quick, i, options, ReduceOp::kAverage),
              call(slow, i, options, ReduceOp::kAverage));
  }
}

TEST(ClipCalls, SitesAndShapesLearnApart) {
  Cluster cluster = make_small_slices(2, kSeed);
  const CallOptions here = options_with(PlanKind::kTwoStep, "here");
  for (uint64_t i = 0; i < kCallsToLearn; ++i) call(cluster, i, here);
  const int64_t held = bytes_of_call(cluster, 50, here);
  EXPECT_GT(bytes_of_call(cluster, 51, options_with(PlanKind::kTwoStep, "there")), held);
  // Another operation is another state, and so is another length.
  call(cluster, 52, here, ReduceOp::kAverage);
  call(cluster, 53, here, ReduceOp::kSum, kCount - 1);
  EXPECT_EQ(bytes_of_call(cluster, 54, here), held);
  ASSERT_TRUE(cluster.at(0).reset_flatten("here").ok());
  ASSERT_TRUE(cluster.at(1).reset_flatten("here").ok());
  EXPECT_GT(bytes_of_call(cluster, 55, here), held);
}

TEST(ClipCalls, ASavedStateGoesOnWhereItWas) {
  Cluster first = make_small_slices(2, kSeed);
  Cluster second = make_small_slices(2, kSeed);
  const CallOptions options = options_with(PlanKind::kTwoStep, "layer 7");
  for (uint64_t i = 0; i < kCallsToLearn; ++i) call(first, i, options);
  const std::vector<std::byte> saved = first.at(0).save_flatten().value();
  for (int rank = 0; rank < 2; ++rank) ASSERT_TRUE(second.at(rank).load_flatten(saved).ok());
  EXPECT_EQ(call(first, 70, options), call(second, 70, options));
  EXPECT_EQ(first.at(0).save_flatten().value(), second.at(1).save_flatten().value());
  // Any byte that is wrong is noticed, and nothing has changed.
  for (size_t at = 0; at < saved.size(); at += 5) {
    std::vector<std::byte> bad = saved;
    bad[at] ^= std::byte{1};
    EXPECT_FALSE(second.at(0).load_flatten(bad).ok()) << at;
  }
  EXPECT_EQ(first.at(0).save_flatten().value(), second.at(0).save_flatten().value());
}

TEST(ClipCalls, RanksThatKnowDifferentThingsDisagree) {
  Cluster cluster = make_small_slices(2, kSeed);
  const CallOptions options = options_with(PlanKind::kTwoStep);
  for (uint64_t i = 0; i < kCallsToLearn; ++i) call(cluster, i, options);
  ASSERT_TRUE(cluster.at(1).reset_flatten().ok());
  Floats values(kCount, 1.0F);
  std::vector<Floats> outputs(2, Floats(kCount));
  const auto statuses = cluster.run([&](int rank, Communicator& communicator) {
    return communicator.start_all_reduce(values.data(), outputs[static_cast<size_t>(rank)].data(),
                                         kCount, DataType::kFloat32, ReduceOp::kSum, options);
  });
  for (const Status& status : statuses) {
    EXPECT_EQ(status.code(), StatusCode::kDisagreement);
    EXPECT_THAT(std::string(status.message()), HasSubstr("+clip"));
  }
  ASSERT_TRUE(cluster.at(0).reset_flatten().ok());
  call(cluster, 60, options);
}

// Calls that are in flight together take the state one after the other.
TEST(ClipCalls, CallsOfOneSiteInFlightTogetherAreThoseInARow) {
  constexpr int kSize = 3;
  constexpr uint64_t kRounds = 6;
  const CallOptions options = options_with(PlanKind::kAuto);
  Cluster apart = make_small_slices(kSize, kSeed);
  Cluster together = make_small_slices(kSize, kSeed);
  std::vector<std::vector<Floats>> outputs(kRounds, std::vector<Floats>(kSize, Floats(kCount)));
  std::vector<std::vector<Floats>> ranks;
  for (uint64_t i = 0; i < kRounds; ++i) ranks.push_back(normal_ranks(kSize, kCount, i));
  std::vector<Work> works;
  for (uint64_t i = 0; i < kRounds; ++i) {
    for (int rank = 0; rank < kSize; ++rank) {
      const auto r = static_cast<size_t>(rank);
      works.push_back(together.at(rank).start_all_reduce(ranks[i][r].data(), outputs[i][r].data(),
                                                         kCount, DataType::kFloat32, ReduceOp::kSum,
                                                         options));
    }
  }
  for (Work& work : works) ASSERT_TRUE(work.wait().ok());
  for (uint64_t i = 0; i < kRounds; ++i) {
    const Floats expected = call(apart, i, options);
    for (const Floats& output : outputs[i]) EXPECT_EQ(output, expected) << "round " << i;
  }
}

// Elsewhere than in all_reduce slices are in blocks, and nothing is learned.
TEST(ClipCalls, OtherCallsLearnNothing) {
  constexpr size_t kSize = 3;
  Cluster cluster = make_small_slices(kSize, kSeed);
  const std::vector<Floats> ranks = normal_ranks(kSize, kSize * 500, kSeed);
  std::vector<Floats> parts(kSize, Floats(500));
  for (int i = 0; i < 6; ++i) {
    const auto statuses = cluster.run([&](int rank, Communicator& communicator) {
      const auto r = static_cast<size_t>(rank);
      return communicator.start_reduce_scatter(ranks[r].data(), parts[r].data(), 500,
                                               DataType::kFloat32, ReduceOp::kSum,
                                               options_with(PlanKind::kAuto));
    });
    for (const Status& status : statuses) ASSERT_TRUE(status.ok()) << status.to_string();
  }
  Cluster untouched = make_small_slices(kSize, kSeed);
  EXPECT_EQ(cluster.at(0).save_flatten().value(), untouched.at(0).save_flatten().value());
}

TEST(ClipCalls, ARankThatKnowsNothingReceivesWhatAnotherHasLearned) {
  ClusterOptions options;
  options.size = 3;
  Cluster cluster(options);
  const CallOptions with = options_with(PlanKind::kTwoStep, "a");
  for (int round = 0; round < kCallsToLearn; ++round) call(cluster, kSeed + 1, with);
  const std::vector<std::byte> learned = cluster.at(0).save_flatten().value();
  ASSERT_TRUE(cluster.at(1).reset_flatten().ok());
  std::vector<std::thread> ranks;
  std::vector<Status> statuses(3);
  for (int rank = 0; rank < 3; ++rank) {
    ranks.emplace_back([&, rank] {
      statuses[static_cast<size_t>(rank)] = cluster.at(rank).share_flatten(2, 20'000);
    });
  }
  for (std::thread& rank : ranks) rank.join();
  for (int rank = 0; rank < 3; ++rank) {
    EXPECT_TRUE(statuses[static_cast<size_t>(rank)].ok());
    EXPECT_EQ(cluster.at(rank).save_flatten().value(), learned) << "rank " << rank;
  }
  call(cluster, kSeed + 2, with);
  EXPECT_FALSE(Communicator().share_flatten(0).ok());
}

}  // namespace
}  // namespace tersum::testing
