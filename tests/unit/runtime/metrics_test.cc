// Counters of the process: they add up to what the communicators say, and the text holds them.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "runtime/call_counters.h"
#include "support/cluster.h"
#include "support/memory_store.h"
#include "tersum/metrics.h"

namespace tersum::testing {
namespace {

CallMetrics find_call(const Metrics& metrics, const std::string& collective,
                      const std::string& codec) {
  for (const CallMetrics& call : metrics.calls) {
    if (call.collective == collective && call.codec == codec) return call;
  }
  return {};
}

uint64_t find_failures(const Metrics& metrics, StatusCode code) {
  uint64_t calls = 0;
  for (const FailureMetrics& failure : metrics.failures) {
    if (failure.code == code) calls += failure.calls;
  }
  return calls;
}

TEST(Metrics, CallsAreCountedByCollectiveAndByTheCodecThatReallyServed) {
  const Metrics before = metrics();
  ClusterOptions options;
  options.kind = ClusterKind::kTcp;
  Cluster cluster(options);
  EXPECT_EQ(metrics().links_opened - before.links_opened, 2U) << "one link, seen from both ends";
  std::vector<std::vector<float>> data(2, std::vector<float>(100'000));
  for (int i = 0; i < 3; ++i) {
    for (const Status& status : cluster.run([&](int rank, Communicator& communicator) {
           float* values = data[static_cast<size_t>(rank)].data();
           return communicator.start_all_reduce(values, values, data[0].size(), DataType::kFloat32,
                                                ReduceOp::kSum);
         })) {
      ASSERT_TRUE(status.ok()) << status.to_string();
    }
  }
  // A quantizing codec cannot add integers: the exact path serves.
  for (const Status& status : cluster.run([&](int rank, Communicator& communicator) {
         float* values = data[static_cast<size_t>(rank)].data();
         return communicator.start_all_reduce(values, values, 1000, DataType::kInt32,
                                              ReduceOp::kSum);
       })) {
    ASSERT_TRUE(status.ok()) << status.to_string();
  }
  const Metrics after = metrics();
  const CallMetrics int8 = find_call(after, "all_reduce", "int8/128");
  const CallMetrics int8_before = find_call(before, "all_reduce", "int8/128");
  EXPECT_EQ(int8.calls - int8_before.calls, 6U);
  EXPECT_EQ(int8.payload_bytes - int8_before.payload_bytes, 6U * 400'000);
  EXPECT_GT(int8.slices_sent, int8_before.slices_sent);
  EXPECT_GT(int8.seconds, int8_before.seconds);
  const CallMetrics exact = find_call(after, "all_reduce", "exact");
  const CallMetrics exact_before = find_call(before, "all_reduce", "exact");
  EXPECT_EQ(exact.calls - exact_before.calls, 2U);
  const uint64_t sent =
      cluster.at(0).stats().wire_bytes_sent + cluster.at(1).stats().wire_bytes_sent;
  EXPECT_EQ(int8.wire_bytes_sent - int8_before.wire_bytes_sent + exact.wire_bytes_sent -
                exact_before.wire_bytes_sent,
            sent);
  EXPECT_EQ(int8.wire_bytes_received - int8_before.wire_bytes_received,
            int8.wire_bytes_sent - int8_before.wire_bytes_sent);
  uint64_t durations = 0;
  for (const uint64_t count : int8.durations) durations += count;
  EXPECT_EQ(durations, int8.calls);
  EXPECT_EQ(after.calls_in_flight, before.calls_in_flight);
}

TEST(Metrics, FailuresAreCountedByCodeAndLostLinksAreNotClosedOnes) {
  const Metrics before = metrics();
  {
    ClusterOptions options;
    options.kind = ClusterKind::kTcp;
    Cluster cluster(options);
    std::vector<float> values(100);
    Work late =
        cluster.at(0).start_all_reduce(values.data(), values.data(), 100, DataType::kFloat32,
                                       ReduceOp::kSum, {"exact", PlanKind::kAuto, 50});
    EXPECT_EQ(metrics().calls_in_flight, before.calls_in_flight + 1);
    EXPECT_EQ(late.wait().code(), StatusCode::kTimeout);
  }
  const Metrics after = metrics();
  EXPECT_EQ(find_failures(after, StatusCode::kTimeout),
            find_failures(before, StatusCode::kTimeout) + 1);
  EXPECT_EQ(after.calls_in_flight, before.calls_in_flight);
  EXPECT_EQ(after.links, before.links) << "two ends went up, two went away";
}

TEST(Metrics, TheEngineShowsItsMemoryWhileThereIsOne) {
  EXPECT_FALSE(metrics().engine.running);
  EXPECT_EQ(metrics_text().find("tersum_arena_used_bytes"), std::string::npos);
  auto made = Communicator::create(0, 1, std::make_shared<MemoryStore>());
  ASSERT_TRUE(made.ok()) << made.status().to_string();
  const Metrics now = metrics();
  EXPECT_TRUE(now.engine.running);
  EXPECT_GT(now.engine.arena_capacity_bytes, 0U);
  EXPECT_EQ(now.engine.backlog_bytes, 0U);
  const std::string text = metrics_text();
  EXPECT_NE(text.find("\ntersum_arena_used_bytes 0\n"), std::string::npos) << text;
  EXPECT_NE(text.find("# TYPE tersum_call_duration_seconds histogram\n"), std::string::npos);
  EXPECT_EQ(text.back(), '\n');
}

TEST(CallCounters, ElementTypesOfOneCodecAreAddedUp) {
  CallCounters counters;
  for (const DataType type : {DataType::kFloat32, DataType::kBFloat16}) {
    CallCount call;
    call.collective = Collective::kAllReduce;
    call.codec = find_codec("int8", type, ReduceOp::kSum).value();
    call.code = StatusCode::kAborted;
    call.seconds = 1e-4;
    counters.count_ended(call);
  }
  const Metrics read = counters.read();
  ASSERT_EQ(read.calls.size(), 1U);
  EXPECT_EQ(read.calls[0].calls, 2U);
  EXPECT_EQ(read.calls[0].durations[2], 2U) << "a bound belongs to its bucket";
  ASSERT_EQ(read.failures.size(), 1U);
  EXPECT_EQ(read.failures[0].calls, 2U);
}

}  // namespace
}  // namespace tersum::testing
