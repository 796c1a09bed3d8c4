// No heap allocation after the first call of a size; memory in flight bounded whatever the group
// size.
#include <gtest/gtest.h>

#include <atomic>
#include <barrier>
#include <cerrno>
#include <cstdlib>
#include <thread>
#include <vector>

#include "plan/topology.h"
#include "support/cluster.h"

// Every way to the heap is counted: operators new, aligned ones too, end in these, and so do
// libraries in C. Sanitizers bring an allocator of their own, under which this test is not built
// for counting.
namespace {

std::atomic<uint64_t> allocations{0};

void* counted(void* memory) {
  allocations.fetch_add(1, std::memory_order_relaxed);
  return memory;
}

}  // namespace

extern "C" {

void* __libc_malloc(size_t bytes);
void* __libc_calloc(size_t count, size_t bytes);
void* __libc_realloc(void* memory, size_t bytes);
void* __libc_memalign(size_t alignment, size_t bytes);

void* malloc(size_t bytes) { return counted(__libc_malloc(bytes)); }
void* calloc(size_t count, size_t bytes) { return counted(__libc_calloc(count, bytes)); }
void* realloc(void* memory, size_t bytes) { return counted(__libc_realloc(memory, bytes)); }
void* memalign(size_t alignment, size_t bytes) {
  return counted(__libc_memalign(alignment, bytes));
}
void* aligned_alloc(size_t alignment, size_t bytes) {
  return counted(__libc_memalign(alignment, bytes));
}
int posix_memalign(void** memory, size_t alignment, size_t bytes) {
  *memory = counted(__libc_memalign(alignment, bytes));
  return *memory == nullptr ? ENOMEM : 0;
}

}  // extern "C"

namespace tersum::testing {
namespace {

enum class Move { kAllReduce, kReduceScatter, kAllGather };

// What a rank of a group reads and writes; one length of the whole array for every kind of call.
struct Arrays {
  explicit Arrays(int size)
      : part(1'000'003 / static_cast<size_t>(size)), whole(part * static_cast<size_t>(size)) {}
  size_t part;
  std::vector<float> whole;
  std::vector<float> own = std::vector<float>(part);
};

Status call(Communicator& communicator, Move move, Arrays& arrays) {
  switch (move) {
    case Move::kAllReduce:
      return communicator.all_reduce(arrays.whole.data(), arrays.whole.data(), arrays.whole.size(),
                                     DataType::kFloat32, ReduceOp::kSum);
    case Move::kReduceScatter:
      return communicator.reduce_scatter(arrays.whole.data(), arrays.own.data(), arrays.part,
                                         DataType::kFloat32, ReduceOp::kSum);
    case Move::kAllGather:
      return communicator.all_gather(arrays.own.data(), arrays.whole.data(), arrays.part,
                                     DataType::kFloat32, {"exact", PlanKind::kAuto, 0});
  }
  return {};
}

// What blocking calls on all ranks allocate, a thread each: counted from when all threads run until
// all calls have ended, so that the threads' own memory stays out of it.
uint64_t allocations_of_calls(Cluster& cluster, std::vector<Arrays>& arrays, Move move, int calls) {
  const int size = cluster.size();
  std::barrier line(size + 1);
  std::vector<std::thread> threads;
  std::atomic<int> failed{0};
  for (int rank = 0; rank < size; ++rank) {
    threads.emplace_back([&, rank] {
      line.arrive_and_wait();  // everybody runs
      line.arrive_and_wait();  // and is counted from here
      for (int i = 0; i < calls; ++i) {
        if (!call(cluster.at(rank), move, arrays[static_cast<size_t>(rank)]).ok()) ++failed;
      }
      line.arrive_and_wait();
    });
  }
  line.arrive_and_wait();
  const uint64_t before = allocations.load();
  line.arrive_and_wait();
  line.arrive_and_wait();
  const uint64_t made = allocations.load() - before;
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(failed.load(), 0);
  return made;
}

// The fewest of up to twenty runs of 50 calls, after 20; the first run without any ends it. A queue
// grows when peers run further apart than ever before, which is for the scheduler to say: on two
// idle cores the first call of a size takes 70 to 270 allocations, the next 20 together up to 23,
// and 50 later ones none, or now and then up to 2; beside other programs three runs of 50 in turn
// have grown one. What a call takes each time, or each fiftieth time, is in every run.
uint64_t fewest_allocations(Cluster& cluster, Move move) {
  std::vector<Arrays> arrays(static_cast<size_t>(cluster.size()), Arrays(cluster.size()));
  allocations_of_calls(cluster, arrays, move, 20);
  uint64_t fewest = UINT64_MAX;
  for (int i = 0; i < 20 && fewest > 0; ++i) {
    fewest = std::min(fewest, allocations_of_calls(cluster, arrays, move, 50));
  }
  return fewest;
}

class Memory : public ::testing::TestWithParam<ClusterKind> {};

TEST(AllocationCounter, SeesEveryWayToTheHeap) {
  const auto counts = [](auto allocate) {
    const uint64_t before = allocations.load();
    allocate();
    return allocations.load() - before;
  };
  struct alignas(64) Line {
    std::byte bytes[64];
  };
  // Where a pointer escapes to, or the compiler leaves the pair out.
  static std::atomic<void*> kept;
  EXPECT_EQ(counts([] { kept = new int(1); }), 1U);
  delete static_cast<int*>(kept.load());
  EXPECT_EQ(counts([] { kept = new Line; }), 1U);
  delete static_cast<Line*>(kept.load());
  EXPECT_EQ(counts([] { kept = std::malloc(10); }), 1U);
  EXPECT_EQ(counts([] { kept = std::realloc(kept, 10'000); }), 1U);
  std::free(kept);
  EXPECT_EQ(counts([] { kept = std::calloc(2, 10); }), 1U);
  std::free(kept);
  EXPECT_EQ(counts([] { kept = std::aligned_alloc(64, 128); }), 1U);
  std::free(kept);
}

TEST_P(Memory, BlockingCallsDoNotAllocateAfterTheFirstOfASize) {
  for (const int size : {2, 3}) {
    ClusterOptions options;
    options.kind = GetParam();
    options.size = size;
    Cluster cluster(options);
    for (const Move move : {Move::kAllReduce, Move::kReduceScatter, Move::kAllGather}) {
      EXPECT_EQ(fewest_allocations(cluster, move), 0U)
          << "50 calls number " << static_cast<int>(move) << " of a known size on " << size
          << " ranks";
    }
  }
}

TEST_P(Memory, ATraceDoesNotAllocateOnceItsRingIsFull) {
  ClusterOptions options;
  options.kind = GetParam();
  options.trace_events = 500;
  Cluster cluster(options);
  EXPECT_EQ(fewest_allocations(cluster, Move::kAllReduce), 0U)
      << "50 traced calls of a known size on two ranks";
  EXPECT_EQ(cluster.trace(0).size(), options.trace_events);
  EXPECT_GT(cluster.trace(0).dropped(), 0U);
}

// Which plan they take the cost model is asked once for each shape.
TEST(MemoryOfChoices, CallsOnDescribedLinksDoNotAllocateAfterTheFirstOfASize) {
  ClusterOptions options;
  options.size = 4;
  options.communicator.topology = describe_topology(*make_topology("star4", 31.25e6, 0).value());
  Cluster cluster(options);
  EXPECT_EQ(fewest_allocations(cluster, Move::kAllReduce), 0U);
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
