// From what size on results are stored past the cache: all ranks of a host fill the same one.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "codec/codec.h"
#include "codec/decode_past_cache.h"
#include "runtime/compiled_plan.h"
#include "runtime/plan_run.h"
#include "runtime/rendezvous.h"
#include "support/cluster.h"

namespace tersum::testing {
namespace {

constexpr size_t kMiB = size_t{1} << 20;
static_assert(kPastCacheBytesMin == 32 * kMiB);

// Of a sum of `bytes` of float32 a rank, of which `ranks_of_host` live on one host.
bool past_cache(const std::string& spec, size_t bytes, size_t ranks_of_host, bool in_place,
                size_t cache_bytes = 0) {
  const Codec* codec = find_codec(spec, DataType::kFloat32, ReduceOp::kSum).value();
  PlanRequest request;
  request.collective = Collective::kAllReduce;
  request.kind = PlanKind::kTwoStep;
  request.size = 8;
  request.count = bytes / sizeof(float);
  static float input;
  static float output;
  PlanRun run(false);
  run.plan = compile_plan(request, *codec, 0, SliceLimits()).value();
  run.arrays = {&input, in_place ? &input : &output, request.count, DataType::kFloat32,
                ReduceOp::kSum};
  run.ranks_of_host = ranks_of_host;
  run.cache_bytes = cache_bytes;
  return run.past_cache();
}

TEST(PastCache, BeginsWhereTheArraysOfAHostHold64MiB) {
  for (const size_t ranks : {2, 4, 8}) {
    const size_t least = 64 * kMiB / ranks;
    EXPECT_TRUE(past_cache("exact", least, ranks, true)) << ranks;
    EXPECT_FALSE(past_cache("exact", least - 4, ranks, true)) << ranks;
    EXPECT_TRUE(past_cache("exact", least / 2, ranks, false)) << ranks;
    EXPECT_FALSE(past_cache("exact", least / 2 - 4, ranks, false)) << ranks;
  }
}

TEST(PastCache, OfARankAloneOnItsHostBeginsAsOfTwo) {
  EXPECT_TRUE(past_cache("exact", 32 * kMiB, 1, true));
  EXPECT_FALSE(past_cache("exact", 32 * kMiB - 4, 1, true));
}

TEST(PastCache, OfCodedValuesBeginsAsOfTwoRanks) {
  EXPECT_TRUE(past_cache("int8/128", 32 * kMiB, 8, true));
  EXPECT_FALSE(past_cache("int8/128", 32 * kMiB - 4, 8, true));
}

// Of more than eight, as of eight.
TEST(PastCache, BeginsNoSoonerForMoreRanksThanWereMeasured) {
  EXPECT_TRUE(past_cache("exact", 8 * kMiB, 100, true));
  EXPECT_FALSE(past_cache("exact", 8 * kMiB - 4, 100, true));
}

TEST(PastCache, BeginsInPlaceWhereTheArraysOfAHostFillHalfOfALargeCache) {
  const size_t cache_bytes = 260 * kMiB;
  for (const char* const spec : {"exact", "int8/128"}) {
    for (const size_t ranks : {2, 4}) {
      const size_t least = 130 * kMiB / ranks;
      EXPECT_TRUE(past_cache(spec, least, ranks, true, cache_bytes)) << spec << ranks;
      EXPECT_FALSE(past_cache(spec, least - 4, ranks, true, cache_bytes)) << spec << ranks;
    }
    EXPECT_TRUE(past_cache(spec, 16 * kMiB, 2, false, cache_bytes)) << spec << " elsewhere";
    EXPECT_TRUE(past_cache(spec, 32 * kMiB, 100, true, cache_bytes)) << spec << " of many ranks";
    EXPECT_TRUE(past_cache(spec, 32 * kMiB, 2, true, 32 * kMiB)) << spec << " of a smaller cache";
  }
}

TEST(PastCache, CountsTheRanksOfItsOwnHost) {
  std::vector<RankCarrier> members(5);
  members[1].host = members[4].host = 1;
  EXPECT_EQ(ranks_together(members, 2), 3u);
  EXPECT_EQ(ranks_together(members, 4), 2u);
}

TEST(PastCache, KnowsTheCpusThatAllRanksShare) {
  std::vector<RankCarrier> members(3, RankCarrier{0, false, "3"});
  EXPECT_EQ(cpus_together(members), 2) << "of all the same two";
  members[1].cpus = "08";
  EXPECT_EQ(cpus_together(members), 3) << "one is bound to CPU 7";
  members[2].cpus = "";
  EXPECT_EQ(cpus_together(members), 0) << "of an earlier version";
  members[2] = {1, false, "3"};
  EXPECT_EQ(cpus_together(members), 0) << "of two hosts";
  EXPECT_EQ(cpus_together({}), 0);
}

TEST(PastCache, KnowsWhetherEveryRankOfAHostHasACpu) {
  // Two ranks of two CPUs on one host, two of one on another.
  std::vector<RankCarrier> members(2, RankCarrier{0, false, "3"});
  members.resize(4, RankCarrier{1, false, "4"});
  EXPECT_TRUE(has_cpu_each(members, 1));
  EXPECT_FALSE(has_cpu_each(members, 2));
  members[0].cpus = "";
  EXPECT_FALSE(has_cpu_each(members, 1)) << "one does not say";
}

TEST(PastCache, KnowsTheMostCrowdedHost) {
  // Two hosts of four CPUs and of one; three ranks on the first, two on the second.
  std::vector<RankCarrier> members(5, RankCarrier{0, false, "f"});
  members[3] = members[4] = {1, false, "1"};
  EXPECT_EQ(most_crowded(members).ranks, 2);
  EXPECT_EQ(most_crowded(members).cpus, 1);
  members[4].cpus = "";
  EXPECT_EQ(most_crowded(members).ranks, most_crowded(members).cpus) << "one rank does not say";
  EXPECT_EQ(most_crowded({}).ranks, most_crowded({}).cpus);
}

// 17 MiB of four ranks: past the cache, by way of what peers have written.
TEST(PastCache, SumsInPlaceAreRight) {
  constexpr int kRanks = 4;
  constexpr size_t kCount = 17 * kMiB / sizeof(float) + 3;
  ClusterOptions options;
  options.kind = ClusterKind::kShm;
  options.size = kRanks;
  Cluster cluster(options);
  std::vector<std::vector<float>> values(kRanks, std::vector<float>(kCount));
  for (int rank = 0; rank < kRanks; ++rank) {
    float* const of_rank = values[static_cast<size_t>(rank)].data();
    for (size_t i = 0; i < kCount; ++i) of_rank[i] = static_cast<float>(i % 1009 + rank);
  }
  for (const Status& status : cluster.run([&](int rank, Communicator& group) {
         float* const own = values[static_cast<size_t>(rank)].data();
         return group.start_all_reduce(own, own, kCount, DataType::kFloat32, ReduceOp::kSum,
                                       {"exact", PlanKind::kTwoStep, 0});
       })) {
    EXPECT_TRUE(status.ok()) << status.to_string();
  }
  for (const std::vector<float>& sums : values) {
    size_t wrong = 0;
    for (size_t i = 0; i < kCount; ++i) {
      wrong += sums[i] == static_cast<float>(i % 1009 * kRanks + 6) ? 0 : 1;
    }
    EXPECT_EQ(wrong, 0u);
  }
}

}  // namespace
}  // namespace tersum::testing
