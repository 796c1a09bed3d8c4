// Payloads past the caches, over whole groups: the bits of ordinary stores by every plan, and
// counted.
#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "codec/codec.h"
#include "codec/decode_past_cache.h"
#include "support/cluster.h"
#include "support/small_slices.h"
#include "support/streamed_bytes.h"

namespace tersum::testing {
namespace {

constexpr size_t kCount = 40'003;
constexpr int kRanks = 3;
constexpr uint64_t kSeed = 31;

struct Outcome {
  std::vector<float> results;  // of every rank, one behind the other
  uint64_t streamed = 0;
};

using Start =
    std::function<Work(Communicator& group, const float* input, float* output, size_t count)>;

// One call over `count` values, of which every rank receives `received`.
Outcome outcome_of(PayloadStores stores, size_t count, size_t received, const Start& start) {
  ClusterOptions options;
  options.kind = ClusterKind::kShm;
  options.size = kRanks;
  options.stores = stores;
  options.communicator.slice_bytes = 8192;
  Cluster cluster(options);
  const uint64_t before = streamed_bytes();
  const std::vector<std::vector<float>> inputs = normal_ranks(kRanks, count, kSeed);
  std::vector<std::vector<float>> outputs(kRanks, std::vector<float>(received));
  for (const Status& status : cluster.run([&](int rank, Communicator& communicator) {
         const auto index = static_cast<size_t>(rank);
         return start(communicator, inputs[index].data(), outputs[index].data(), count);
       })) {
    EXPECT_TRUE(status.ok()) << status.to_string();
  }
  Outcome outcome;
  for (const auto& output : outputs) {
    outcome.results.insert(outcome.results.end(), output.begin(), output.end());
  }
  outcome.streamed = streamed_bytes() - before;
  return outcome;
}

// At least half of what one rank holds is streamed, as `start` sends it, and no bit differs.
void expect_streams(const std::string& name, size_t count, size_t received, size_t wire_bytes,
                    const Start& start) {
  const Outcome cached = outcome_of(PayloadStores::kCached, count, received, start);
  EXPECT_EQ(cached.streamed, 0u) << name;
  const Outcome streamed = outcome_of(PayloadStores::kStreamed, count, received, start);
  EXPECT_GT(streamed.streamed, wire_bytes / 2) << name;
  ASSERT_EQ(cached.results.size(), streamed.results.size());
  EXPECT_EQ(std::memcmp(cached.results.data(), streamed.results.data(),
                        cached.results.size() * sizeof(float)),
            0)
      << name;
}

void expect_sum_streams(const std::string& codec, PlanKind plan, size_t count) {
  const Codec& found = *find_codec(codec, DataType::kFloat32, ReduceOp::kAverage).value();
  expect_streams(codec + ' ' + std::string(plan_kind_name(plan)), count, count,
                 found.wire_bytes(count),
                 [&](Communicator& group, const float* input, float* output, size_t values) {
                   return group.start_all_reduce(input, output, values, DataType::kFloat32,
                                                 ReduceOp::kAverage, {codec, plan, 0});
                 });
}

TEST(FarPeers, GetTheBitsOfNearOnesByEveryPlan) {
  for (const char* codec : {"exact", "bf16", "int8/128", "int4/32+hadamard", "sum8/256"}) {
    for (const PlanKind plan : {PlanKind::kTwoStep, PlanKind::kRing, PlanKind::kOneShot,
                                PlanKind::kTree, PlanKind::kHalvingDoubling}) {
      expect_sum_streams(codec, plan, kCount);
    }
  }
}

// Where results go past the cache, too.
TEST(FarPeers, GetTheBitsOfNearOnesInLargeArrays) {
  constexpr size_t kLarge = (kPastCacheBytesMin / sizeof(float) + 1) / 2 + 77;
  expect_sum_streams("exact", PlanKind::kTwoStep, kLarge);
  expect_sum_streams("int8/128", PlanKind::kTwoStep, kLarge);
}

TEST(FarPeers, GetWhatTravelsOnUnchanged) {
  expect_streams("all_gather", kCount, kRanks * kCount, kCount * sizeof(float),
                 [](Communicator& group, const float* input, float* output, size_t count) {
                   return group.start_all_gather(input, output, count, DataType::kFloat32,
                                                 {"exact", PlanKind::kRing, 0});
                 });
}

}  // namespace
}  // namespace tersum::testing
