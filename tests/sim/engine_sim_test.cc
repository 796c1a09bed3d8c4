// Whole clusters on a virtual clock, from one seed: whatever the network does, a call ends, in the
// same bytes everywhere or in an error everywhere.
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>
#include <vector>

#include "support/cluster.h"
#include "support/every_plan.h"
#include "transport/sim/sim_clock.h"

namespace tersum::testing {
namespace {

constexpr int64_t kTimeoutMs = 2'000;

struct RandomCall {
  Cluster& cluster;
  SimRandom& random;
  std::vector<std::vector<float>> data;
  std::vector<Work> works;
  size_t count = 0;

  // The calls of a victim never end by themselves, and their buffers are here.
  ~RandomCall() {
    for (int rank = 0; rank < cluster.size(); ++rank) cluster.at(rank).close();
  }

  // Starts one random all_reduce on every rank.
  void start() {
    constexpr const char* kCodecs[] = {"exact", "int8", "int4/32", "bf16"};
    count = random.below(30'000);
    const CallOptions options{kCodecs[random.below(4)],
                              kEveryPlan[random.below(std::size(kEveryPlan))], kTimeoutMs};
    data.assign(static_cast<size_t>(cluster.size()), {});
    works.clear();
    for (int rank = 0; rank < cluster.size(); ++rank) {
      auto& values = data[static_cast<size_t>(rank)];
      values.resize(count);
      for (float& value : values) value = static_cast<float>(random.below(2001)) - 1000.0F;
      works.push_back(cluster.at(rank).start_all_reduce(
          values.data(), values.data(), count, DataType::kFloat32, ReduceOp::kSum, options));
    }
  }
};

ClusterOptions sim_options(uint64_t seed) {
  SimRandom random(seed);
  ClusterOptions options;
  options.kind = ClusterKind::kSim;
  options.seed = seed;
  options.size = 2 + static_cast<int>(random.below(6));
  options.ranks_per_process = 1 + static_cast<int>(random.below(2));
  options.communicator.slice_bytes = 4096;
  options.communicator.window_bytes = 64 * 1024;
  options.network.hosts = static_cast<int>(random.below(4));
  if (random.below(2) == 1) options.network.cpus = "1";
  return options;
}

class EngineSim : public ::testing::TestWithParam<int> {
 protected:
  // The seed is 1000 plus the number of the test: --gtest_filter replays one.
  const uint64_t seed_ = 1000 + static_cast<uint64_t>(GetParam());
};

TEST_P(EngineSim, CallsAgreeUnderDelayReorderingAndSplitting) {
  Cluster cluster(sim_options(seed_));
  RandomCall run{cluster, cluster.network().random(), {}, {}, 0};
  for (int call = 0; call < 6; ++call) {
    run.start();
    for (const Status& status : cluster.finish(run.works)) {
      ASSERT_TRUE(status.ok()) << status.to_string() << " seed " << seed_;
    }
    for (const auto& values : run.data) ASSERT_EQ(values, run.data[0]) << "seed " << seed_;
  }
}

TEST_P(EngineSim, AKilledProcessEndsTheCallEverywhere) {
  const ClusterOptions options = sim_options(seed_);
  Cluster cluster(options);
  RandomCall run{cluster, cluster.network().random(), {}, {}, 0};
  const int victim =
      cluster.process_of(static_cast<int>(run.random.below(static_cast<uint64_t>(cluster.size()))));
  run.start();
  const uint64_t rounds = run.random.below(60);
  for (uint64_t i = 0; i < rounds; ++i) {
    for (int p = 0; p <= cluster.process_of(cluster.size() - 1); ++p)
      cluster.process(p).node().step();
    cluster.network().advance_to_next_event();
  }
  cluster.network().kill(victim);
  std::vector<Work> survivors;
  for (int rank = 0; rank < cluster.size(); ++rank) {
    if (cluster.process_of(rank) != victim)
      survivors.push_back(run.works[static_cast<size_t>(rank)]);
  }
  for (const Status& status : cluster.finish(survivors)) {
    // A rank that had everything already may have ended well; nobody may hang or name a survivor.
    if (status.ok()) continue;
    EXPECT_TRUE(status.code() == StatusCode::kPeerLost || status.code() == StatusCode::kTimeout)
        << status.to_string() << " seed " << seed_;
    bool names_victim = false;
    for (int rank = 0; rank < cluster.size(); ++rank) {
      if (cluster.process_of(rank) != victim) continue;
      names_victim |=
          std::string(status.message()).find("rank " + std::to_string(rank)) != std::string::npos;
    }
    EXPECT_TRUE(names_victim) << status.to_string() << " seed " << seed_;
  }
}

// What is still on its way then goes nowhere near the callers' arrays.
TEST_P(EngineSim, ArraysAreTheCallersOnceTheirCallHasEnded) {
  Cluster cluster(sim_options(seed_));
  RandomCall run{cluster, cluster.network().random(), {}, {}, 0};
  run.start();
  const auto step_all = [&] {
    for (int p = 0; p <= cluster.process_of(cluster.size() - 1); ++p) {
      cluster.process(p).node().step();
    }
    cluster.network().advance_to_next_event();
  };
  const uint64_t rounds = run.random.below(120);
  for (uint64_t i = 0; i < rounds; ++i) step_all();
  for (int rank = 0; rank < cluster.size(); ++rank) cluster.at(rank).abort("the test's");
  for (const Status& status : cluster.finish(run.works)) {
    EXPECT_TRUE(status.ok() || status.code() == StatusCode::kAborted) << status.to_string();
  }
  const auto marked = std::vector<float>(run.count, 12345.0F);
  for (auto& values : run.data) values = marked;
  for (int i = 0; i < 300; ++i) step_all();
  for (const auto& values : run.data) ASSERT_EQ(values, marked) << "seed " << seed_;
}

TEST_P(EngineSim, AFrozenProcessIsNamedAtTheDeadline) {
  Cluster cluster(sim_options(seed_));
  RandomCall run{cluster, cluster.network().random(), {}, {}, 0};
  const int victim_rank = static_cast<int>(run.random.below(static_cast<uint64_t>(cluster.size())));
  const int victim = cluster.process_of(victim_rank);
  cluster.network().freeze(victim);
  run.start();
  const int64_t start = cluster.network().clock().now_ns();
  std::vector<Work> survivors;
  for (int rank = 0; rank < cluster.size(); ++rank) {
    if (cluster.process_of(rank) != victim)
      survivors.push_back(run.works[static_cast<size_t>(rank)]);
  }
  if (survivors.empty()) GTEST_SKIP() << "seed " << seed_ << " put every rank into one process";
  for (const Status& status : cluster.finish(survivors)) {
    EXPECT_EQ(status.code(), StatusCode::kTimeout) << status.to_string() << " seed " << seed_;
    bool names_victim = false;
    for (int rank = 0; rank < cluster.size(); ++rank) {
      if (cluster.process_of(rank) != victim) continue;
      names_victim |=
          std::string(status.message()).find("rank " + std::to_string(rank)) != std::string::npos;
    }
    EXPECT_TRUE(names_victim) << status.to_string() << " seed " << seed_;
  }
  EXPECT_LE(cluster.network().clock().now_ns() - start, (kTimeoutMs + 100) * 1'000'000);
  cluster.network().thaw(victim);
}

INSTANTIATE_TEST_SUITE_P(Seeds, EngineSim, ::testing::Range(0, 40));

}  // namespace
}  // namespace tersum::testing
