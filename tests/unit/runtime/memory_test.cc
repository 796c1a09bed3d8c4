// No heap allocation after the first call of a size; memory in flight bounded whatever the group
// size.
#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <new>
#include <vector>

#include "support/cluster.h"

namespace {

std::atomic<uint64_t> allocations{0};

}  // namespace

void* operator new(size_t bytes) {
  allocations.fetch_add(1, std::memory_order_relaxed);
  if (void* memory = std::malloc(bytes)) return memory;
  std::abort();
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, size_t /*bytes*/) noexcept { std::free(memory); }

namespace tersum::testing {
namespace {

// A blocking call on rank 0 while rank 1 answers from a thread of its own; counts what both
// allocate.
uint64_t allocations_of_calls(Cluster& cluster, std::vector<std::vector<float>>& data, int calls) {
  std::atomic<int> go{0};
  std::thread other([&] {
    while (go.load() == 0) std::this_thread::yield();
    for (int i = 0; i < calls; ++i) {
      EXPECT_TRUE(cluster.at(1)
                      .all_reduce(data[1].data(), data[1].data(), data[1].size(),
                                  DataType::kFloat32, ReduceOp::kSum)
                      .ok());
    }
  });
  const uint64_t before = allocations.load();
  go.store(1);
  for (int i = 0; i < calls; ++i) {
    EXPECT_TRUE(cluster.at(0)
                    .all_reduce(data[0].data(), data[0].data(), data[0].size(), DataType::kFloat32,
                                ReduceOp::kSum)
                    .ok());
  }
  other.join();
  return allocations.load() - before;
}

class Memory : public ::testing::TestWithParam<ClusterKind> {};

TEST_P(Memory, BlockingCallsDoNotAllocateAfterTheFirstOfASize) {
  ClusterOptions options;
  options.kind = GetParam();
  Cluster cluster(options);
  std::vector<std::vector<float>> data(2, std::vector<float>(1'000'003));
  allocations_of_calls(cluster, data, 20);  // queues reach their high-water mark
  uint64_t fewest = UINT64_MAX;
  // Thread start-up and a queue that grows once more are not what is meant: three tries.
  for (int i = 0; i < 3; ++i) fewest = std::min(fewest, allocations_of_calls(cluster, data, 50));
  EXPECT_LE(fewest, 3U) << "50 calls of a known size on two ranks";
}

TEST_P(Memory, ATraceDoesNotAllocateOnceItsRingIsFull) {
  ClusterOptions options;
  options.kind = GetParam();
  options.trace_events = 500;
  Cluster cluster(options);
  std::vector<std::vector<float>> data(2, std::vector<float>(1'000'003));
  allocations_of_calls(cluster, data, 20);
  EXPECT_EQ(cluster.trace(0).size(), options.trace_events);
  uint64_t fewest = UINT64_MAX;
  for (int i = 0; i < 3; ++i) fewest = std::min(fewest, allocations_of_calls(cluster, data, 50));
  EXPECT_LE(fewest, 3U) << "50 traced calls of a known size on two ranks";
  EXPECT_GT(cluster.trace(0).dropped(), 0U);
}

TEST_P(Memory, InFlightIsBoundedByTheWindow) {
  for (const int size : {2, 4, 8}) {
    ClusterOptions options;
    options.kind = GetParam();
    options.size = size;
    options.communicator.window_bytes = 1024 * 1024;
    Cluster cluster(options);
    std::vector<std::vector<float>> data(static_cast<size_t>(size), std::vector<float>(8'000'000));
    for (const PlanKind plan : {PlanKind::kTwoStep, PlanKind::kRing}) {
      const CallOptions call{"exact", plan, 0};
      const auto statuses = cluster.run([&](int rank, Communicator& communicator) {
        float* values = data[static_cast<size_t>(rank)].data();
        return communicator.start_all_reduce(values, values, data[0].size(), DataType::kFloat32,
                                             ReduceOp::kSum, call);
      });
      for (const Status& status : statuses) ASSERT_TRUE(status.ok()) << status.to_string();
    }
    // Received payloads stay below the window; what is sent but not yet taken is held by the
    // sender, and is bounded by the receivers' windows. Rounding up to size classes may double
    // both.
    size_t high_water = cluster.process(0).node().transport().arena().high_water_bytes();
    const int ranks = GetParam() == ClusterKind::kLocal ? size : 1;
    EXPECT_LE(high_water, static_cast<size_t>(ranks) * 4 * options.communicator.window_bytes)
        << size << " ranks";
  }
}

INSTANTIATE_TEST_SUITE_P(Kinds, Memory,
                         ::testing::Values(ClusterKind::kLocal, ClusterKind::kTcp,
                                           ClusterKind::kShm),
                         [](const auto& info) { return cluster_kind_name(info.param); });

}  // namespace
}  // namespace tersum::testing
