// Payloads past the caches, over whole groups: the bits of ordinary stores by every plan, and
// counted.
#include <gtest/gtest.h>

#include <cstring>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "support/cluster.h"
#include "tersum/metrics.h"

namespace tersum::testing {
namespace {

constexpr size_t kCount = 40'003;
constexpr int kRanks = 3;

std::vector<float> contribution(int rank) {
  std::mt19937 random(31 + static_cast<uint32_t>(rank));
  std::normal_distribution<float> normal;
  std::vector<float> values(kCount);
  for (float& value : values) value = normal(random);
  return values;
}

uint64_t streamed_bytes() {
  uint64_t bytes = 0;
  for (const CallMetrics& call : metrics().calls) bytes += call.wire_bytes_streamed;
  return bytes;
}

// What every rank receives, one behind the other, by the calls below; and the bytes streamed.
struct Outcome {
  std::vector<float> results;
  uint64_t streamed = 0;
};

Outcome outcome_with(PayloadStores stores) {
  ClusterOptions options;
  options.kind = ClusterKind::kShm;
  options.size = kRanks;
  options.stores = stores;
  options.communicator.slice_bytes = 8192;
  Cluster cluster(options);
  const uint64_t before = streamed_bytes();
  Outcome outcome;
  std::vector<std::vector<float>> inputs, outputs(kRanks, std::vector<float>(kRanks * kCount));
  for (int rank = 0; rank < kRanks; ++rank) inputs.push_back(contribution(rank));
  const auto run = [&](size_t received, auto&& start) {
    for (const Status& status : cluster.run([&](int rank, Communicator& communicator) {
           const auto index = static_cast<size_t>(rank);
           return start(communicator, inputs[index].data(), outputs[index].data());
         })) {
      EXPECT_TRUE(status.ok()) << status.to_string();
    }
    for (const auto& output : outputs) {
      outcome.results.insert(outcome.results.end(), output.begin(),
                             output.begin() + static_cast<ptrdiff_t>(received));
    }
  };
  for (const char* codec : {"exact", "bf16", "int8/128", "int4/32+hadamard"}) {
    for (const PlanKind plan : {PlanKind::kTwoStep, PlanKind::kRing, PlanKind::kOneShot,
                                PlanKind::kTree, PlanKind::kHalvingDoubling}) {
      run(kCount, [&](Communicator& group, const float* input, float* output) {
        return group.start_all_reduce(input, output, kCount, DataType::kFloat32, ReduceOp::kAverage,
                                      {codec, plan, 0});
      });
    }
    run(kRanks * kCount, [&](Communicator& group, const float* input, float* output) {
      return group.start_all_gather(input, output, kCount, DataType::kFloat32,
                                    {codec, PlanKind::kRing, 0});
    });
  }
  outcome.streamed = streamed_bytes() - before;
  return outcome;
}

TEST(FarPeers, GetTheBitsOfNearOnesByEveryPlan) {
  const Outcome cached = outcome_with(PayloadStores::kCached);
  EXPECT_EQ(cached.streamed, 0u);
  const Outcome streamed = outcome_with(PayloadStores::kStreamed);
  // Exactly the smallest of these calls alone has this much.
  EXPECT_GT(streamed.streamed, kRanks * kCount * sizeof(float));
  ASSERT_EQ(cached.results.size(), streamed.results.size());
  EXPECT_EQ(std::memcmp(cached.results.data(), streamed.results.data(),
                        cached.results.size() * sizeof(float)),
            0);
}

}  // namespace
}  // namespace tersum::testing
