#include "xla/ffi_call_key.h"

#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <set>
#include <thread>
#include <vector>

namespace tersum::xla_ffi {
namespace {

const std::vector<int64_t> kGroups = {0, 1, 2048, 2049};

CallIdentity identity() { return {kGroups, 2, {0x1234567890abcdefULL, 7}, 42, 3, 1}; }

TEST(CallKey, is_the_same_for_the_same_call) {
  EXPECT_EQ(call_key(identity()), call_key(identity()));
}

// Keys travel between processes of different builds: the value itself is part of the contract.
TEST(CallKey, has_a_stable_value) { EXPECT_EQ(call_key(identity()), 0xebe4b006e99a17f5ULL); }

TEST(CallKey, changes_with_every_field) {
  const std::vector<int64_t> permuted = {1, 0, 2048, 2049};
  const std::vector<std::function<void(CallIdentity&)>> changes = {
      [](CallIdentity&) {},
      [&](CallIdentity& it) { it.groups = permuted; },
      [](CallIdentity& it) { it.group_size = 4; },
      [](CallIdentity& it) { it.operation.fingerprint += 1; },
      [](CallIdentity& it) { it.operation.operation += 1; },
      [](CallIdentity& it) { it.run_id += 1; },
      [](CallIdentity& it) { it.occurrence += 1; },
      [](CallIdentity& it) { it.operand += 1; },
  };
  std::set<uint64_t> keys;
  for (const auto& change : changes) {
    CallIdentity changed = identity();
    change(changed);
    keys.insert(call_key(changed));
  }
  EXPECT_EQ(keys.size(), changes.size());
}

TEST(OccurrenceCounter, counts_per_device_operation_and_run) {
  OccurrenceCounter counter;
  const OperationId operation{1, 2};
  EXPECT_EQ(counter.next(0, operation, 10), 0u);
  EXPECT_EQ(counter.next(0, operation, 10), 1u);
  EXPECT_EQ(counter.next(1, operation, 10), 0u);
  EXPECT_EQ(counter.next(0, {1, 3}, 10), 0u);
  EXPECT_EQ(counter.next(0, {2, 2}, 10), 0u);
  EXPECT_EQ(counter.next(0, operation, 11), 0u);
  EXPECT_EQ(counter.next(0, operation, 10), 2u);
}

// Runs of one program overlap on one device: each keeps its own count.
TEST(OccurrenceCounter, keeps_overlapping_runs_apart) {
  OccurrenceCounter counter;
  constexpr int64_t kRuns = 32;  // XLA's limit of programs in flight per device
  for (uint32_t round = 0; round < 100; ++round) {
    for (int64_t run = 0; run < kRuns; ++run) {
      ASSERT_EQ(counter.next(0, {1, 2}, (run * 7) % kRuns), round);
    }
  }
}

// A run that pauses keeps its count while as many newer runs come and go as a table holds.
TEST(OccurrenceCounter, keeps_a_paused_run) {
  OccurrenceCounter counter;
  EXPECT_EQ(counter.next(0, {1, 2}, -1), 0u);
  for (size_t run = 1; run < OccurrenceCounter::kRunsPerTable; ++run) {
    EXPECT_EQ(counter.next(0, {1, 2}, static_cast<int64_t>(run)), 0u);
  }
  EXPECT_EQ(counter.next(0, {1, 2}, -1), 1u);
}

TEST(OccurrenceCounter, has_bounded_memory) {
  OccurrenceCounter counter(16);
  for (int64_t i = 0; i < 1000; ++i) {
    EXPECT_EQ(counter.next(0, {static_cast<uint64_t>(i), 0}, i), 0u);
    EXPECT_EQ(counter.next(0, {0, 12345}, 1), static_cast<uint32_t>(i));  // used often, so kept
  }
  EXPECT_EQ(counter.table_count(), 16u);
}

TEST(OccurrenceCounter, may_be_used_from_many_threads) {
  OccurrenceCounter counter;
  std::vector<std::thread> threads;
  std::atomic<int> wrong = 0;
  for (int64_t device = 0; device < 8; ++device) {
    threads.emplace_back([&, device] {
      for (uint32_t i = 0; i < 1000; ++i) wrong += counter.next(device, {1, 2}, 5) != i;
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
}

}  // namespace
}  // namespace tersum::xla_ffi
