// Sums whose ranks touch each other's arrays: the bits of sums by messages, whoever cannot be
// reached, and nothing written once a call has ended.
#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <vector>

#include "platform/cache_size.h"
#include "platform/cpu_count.h"
#include "runtime/node.h"
#include "support/cluster.h"
#include "support/small_slices.h"
#include "support/streamed_bytes.h"

namespace tersum::testing {
namespace {

constexpr uint64_t kSeed = 77;
constexpr size_t kKiB = 1024;
constexpr CallOptions kExact{"exact", PlanKind::kTwoStep, 0};

// Values of four bytes: more than the 256 KiB for every rank (128 of two) that are reached at all,
// and no whole number of vectors.
constexpr size_t count_of(int ranks) {
  return static_cast<size_t>(ranks) * (ranks == 2 ? 33 : 65) * kKiB + 18;
}

struct Case {
  int ranks = 2;
  DataType type = DataType::kFloat32;
  ReduceOp op = ReduceOp::kSum;
  bool in_place = false;
};

// Whether this machine has the cache and the CPUs for ranks with `arrays` such arrays each, an
// input and an output or one in place, and lets memory be reached.
bool has_place_for(int ranks, size_t arrays, size_t floats) {
  ArrayDoor door;
  door.start();
  if (door.number() == 0) return false;
  const size_t room = last_level_cache_bytes() / 4 / static_cast<size_t>(ranks);
  return arrays * floats * sizeof(float) < room && ranks <= 2 * count_cpus(own_cpus());
}
bool has_place_for(const Case& c) {
  return has_place_for(c.ranks, c.in_place ? 1 : 2, count_of(c.ranks));
}
bool has_place_in_place(int ranks, size_t floats) { return has_place_for(ranks, 1, floats); }

ClusterOptions options_of(int ranks, ArrayReachPolicy reach) {
  ClusterOptions options;
  options.kind = ClusterKind::kShm;
  options.size = ranks;
  options.reach = reach;
  options.stores = PayloadStores::kCached;  // never taken for far
  return options;
}

// Arrays of ones, in place, which must become the number of ranks.
void sum_ones(Cluster& cluster, size_t count) {
  std::vector<std::vector<float>> arrays(static_cast<size_t>(cluster.size()),
                                         std::vector<float>(count, 1.0F));
  for (const Status& status : cluster.run([&](int rank, Communicator& communicator) {
         float* const array = arrays[static_cast<size_t>(rank)].data();
         return communicator.start_all_reduce(array, array, count, DataType::kFloat32,
                                              ReduceOp::kSum, kExact);
       })) {
    EXPECT_TRUE(status.ok()) << status.to_string();
  }
  const auto sum = static_cast<float>(cluster.size());
  for (const auto& array : arrays) EXPECT_EQ(array, std::vector<float>(count, sum));
}

// A call with which the ranks' doors begin; the next is the first that can be reached.
void open_doors(Cluster& cluster) { sum_ones(cluster, count_of(cluster.size())); }

struct Outcome {
  std::vector<std::vector<std::byte>> results;  // by rank
  uint64_t placed = 0;
};

Outcome outcome_of(const Case& c, const ClusterOptions& options) {
  Cluster cluster(options);
  const uint64_t before = placed_bytes();
  const size_t floats = count_of(c.ranks);
  const size_t count = floats * sizeof(float) / element_bytes(c.type);
  const auto inputs = normal_ranks(c.ranks, floats, kSeed);
  Outcome outcome;
  for (const auto& input : inputs) {
    const auto* const bytes = reinterpret_cast<const std::byte*>(input.data());
    outcome.results.emplace_back(bytes, bytes + floats * sizeof(float));
    if (!c.in_place)
      std::fill(outcome.results.back().begin(), outcome.results.back().end(), std::byte{0});
  }
  open_doors(cluster);
  for (const Status& status : cluster.run([&](int rank, Communicator& communicator) {
         const auto index = static_cast<size_t>(rank);
         std::byte* const output = outcome.results[index].data();
         const void* const input = c.in_place ? static_cast<const void*>(output)
                                              : static_cast<const void*>(inputs[index].data());
         return communicator.start_all_reduce(input, output, count, c.type, c.op, kExact);
       })) {
    EXPECT_TRUE(status.ok()) << status.to_string();
  }
  outcome.placed = placed_bytes() - before;
  return outcome;
}

TEST(ReachedArrays, HoldTheBitsThatMessagesBring) {
  std::string skipped;
  for (const Case& c : {Case{2}, Case{3, DataType::kFloat32, ReduceOp::kAverage, true},
                        Case{4, DataType::kInt32, ReduceOp::kMax}, Case{3},
                        Case{3, DataType::kFloat64, ReduceOp::kSum, true},
                        Case{2, DataType::kInt64, ReduceOp::kMin, true},
                        Case{4, DataType::kUint8, ReduceOp::kSum, true}}) {
    if (!has_place_for(c)) {
      skipped += " " + std::to_string(c.ranks);
      continue;
    }
    const Outcome reached = outcome_of(c, options_of(c.ranks, ArrayReachPolicy::kAuto));
    const Outcome sent = outcome_of(c, options_of(c.ranks, ArrayReachPolicy::kOff));
    EXPECT_EQ(sent.placed, 0u);
    EXPECT_EQ(reached.placed, static_cast<uint64_t>(c.ranks - 1) * 4 * count_of(c.ranks))
        << "every rank's chunk is written to all others";
    EXPECT_EQ(reached.results, sent.results) << c.ranks << " ranks";
    for (const auto& result : reached.results) EXPECT_EQ(result, reached.results[0]);
  }
  if (!skipped.empty()) {
    GTEST_SKIP() << "too little cache, too few CPUs, or it is forbidden, for groups of" << skipped;
  }
}

TEST(ReachedArrays, ARankThatCannotTurnsAllToMessages) {
  const Case c{3};
  ClusterOptions options = options_of(c.ranks, ArrayReachPolicy::kAuto);
  options.unreached_process = 1;
  const Outcome mixed = outcome_of(c, options);
  EXPECT_EQ(mixed.placed, 0u);
  EXPECT_EQ(mixed.results, outcome_of(c, options_of(c.ranks, ArrayReachPolicy::kOff)).results);
}

TEST(ReachedArrays, OfMoreCallsThanThereAreGrantsAllEndWell) {
  constexpr int kRanks = 2;
  constexpr size_t kCalls = 2 * kArrayGrantsMax + 1;
  Cluster cluster(options_of(kRanks, ArrayReachPolicy::kAuto));
  open_doors(cluster);
  const uint64_t before = placed_bytes();
  const size_t count = count_of(kRanks);
  std::vector<std::vector<float>> arrays(kRanks * kCalls, std::vector<float>(count, 1.0F));
  std::vector<Work> works;
  for (size_t call = 0; call < kCalls; ++call) {
    for (int rank = 0; rank < kRanks; ++rank) {
      float* const array = arrays[call * kRanks + static_cast<size_t>(rank)].data();
      works.push_back(cluster.at(rank).start_all_reduce(array, array, count, DataType::kFloat32,
                                                        ReduceOp::kSum, kExact));
    }
  }
  for (const Status& status : cluster.finish(works)) EXPECT_TRUE(status.ok()) << status.to_string();
  for (const auto& array : arrays) EXPECT_EQ(array, std::vector<float>(count, 2.0F));
  EXPECT_EQ(placed_bytes() > before, has_place_in_place(kRanks, count));
}

TEST(ReachedArrays, ADisagreementLeavesThemAloneAndTheGroupUsable) {
  constexpr int kRanks = 3;
  Cluster cluster(options_of(kRanks, ArrayReachPolicy::kAuto));
  open_doors(cluster);
  const uint64_t before = placed_bytes();
  const size_t count = count_of(kRanks);
  std::vector<std::vector<float>> arrays(kRanks, std::vector<float>(count, 1.0F));
  const auto start = [&](int rank, size_t values) {
    float* const array = arrays[static_cast<size_t>(rank)].data();
    return cluster.at(rank).start_all_reduce(array, array, values, DataType::kFloat32,
                                             ReduceOp::kSum, kExact);
  };
  for (const Status& status : cluster.run(
           [&](int rank, Communicator&) { return start(rank, rank == 1 ? count - 1 : count); })) {
    EXPECT_EQ(status.code(), StatusCode::kDisagreement) << status.to_string();
  }
  for (const auto& array : arrays) EXPECT_EQ(array, std::vector<float>(count, 1.0F));
  for (const Status& status :
       cluster.run([&](int rank, Communicator&) { return start(rank, count); })) {
    EXPECT_TRUE(status.ok()) << status.to_string();
  }
  for (const auto& array : arrays) EXPECT_EQ(array, std::vector<float>(count, 3.0F));
  EXPECT_EQ(placed_bytes() > before, has_place_in_place(kRanks, count));
}

// A write that finds nobody comes again, and the sums in it are not added once more.
TEST(ReachedArrays, SurviveDoorsThatAreRenewedMeanwhile) {
  constexpr int kRanks = 2;
  constexpr size_t kCount = 240 * kKiB;
  if (!has_place_in_place(kRanks, kCount)) GTEST_SKIP() << "nothing would be reached";
  Cluster cluster(options_of(kRanks, ArrayReachPolicy::kAuto));
  open_doors(cluster);
  const uint64_t before = placed_bytes();
  for (int round = 0; round < 100; ++round) {
    std::vector<std::vector<float>> arrays = {std::vector<float>(kCount, 1.0F),
                                              std::vector<float>(kCount, 2.0F)};
    std::vector<Work> works;
    for (int rank = 0; rank < kRanks; ++rank) {
      float* const array = arrays[static_cast<size_t>(rank)].data();
      works.push_back(cluster.at(rank).start_all_reduce(array, array, kCount, DataType::kFloat32,
                                                        ReduceOp::kSum, kExact));
    }
    for (int i = 0; i < 6; ++i) {
      cluster.process(i % kRanks).execute([](Node& node) { node.transport().door()->renew(); });
    }
    for (const Status& status : cluster.finish(works)) {
      EXPECT_TRUE(status.ok()) << status.to_string();
    }
    for (const auto& array : arrays) {
      ASSERT_EQ(array, std::vector<float>(kCount, 3.0F)) << "round " << round;
    }
  }
  EXPECT_GT(placed_bytes(), before);
}

uint64_t placed_by(int ranks, size_t count) {
  Cluster cluster(options_of(ranks, ArrayReachPolicy::kAuto));
  open_doors(cluster);
  const uint64_t before = placed_bytes();
  sum_ones(cluster, count);
  return placed_bytes() - before;
}

// 128 KiB for each of two ranks, 256 KiB for each of more.
TEST(ReachedArrays, AreNotOfShortChunks) {
  EXPECT_EQ(placed_by(2, 64 * kKiB - 1), 0u);
  EXPECT_EQ(placed_by(3, 3 * 64 * kKiB - 1), 0u);
  EXPECT_EQ(placed_by(2, 64 * kKiB) > 0, has_place_in_place(2, 64 * kKiB));
  EXPECT_EQ(placed_by(3, 3 * 64 * kKiB) > 0, has_place_in_place(3, 3 * 64 * kKiB));
}

TEST(ReachedArrays, AreNotOfManyRanksOnFewCpus) {
  const int ranks = 2 * count_cpus(own_cpus()) + 1;
  if (ranks > 33) GTEST_SKIP() << "too many CPUs for a test";
  EXPECT_EQ(placed_by(ranks, count_of(ranks)), 0u);
}

}  // namespace
}  // namespace tersum::testing
