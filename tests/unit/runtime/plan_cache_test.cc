// What is remembered of compiled plans: each by all that it was compiled for, and cycles of many
// shapes without compiling again.
#include "runtime/plan_cache.h"

#include <gtest/gtest.h>

#include <memory>

#include "codec/codec.h"

namespace tersum {
namespace {

const Codec& codec_of(const char* spec) {
  return *find_codec(spec, DataType::kFloat32, ReduceOp::kSum).value();
}

PlanRequest request_of(size_t count) {
  PlanRequest request;
  request.size = 2;
  request.count = count;
  request.granule = 128;
  return request;
}

std::shared_ptr<const CompiledPlan> compiled(const PlanRequest& request, const char* spec,
                                             const SliceLimits& limits) {
  return compile_plan(request, codec_of(spec), 0, limits).value();
}

// One pass over the shapes 1 to `shapes`; how many had to be compiled.
size_t misses(PlanCache& cache, size_t shapes) {
  const Codec& codec = codec_of("int8/128");
  size_t missed = 0;
  for (size_t count = 1; count <= shapes; ++count) {
    if (const auto known = cache.find(request_of(count), codec, {})) {
      EXPECT_EQ(known->request.count, count);
      continue;
    }
    ++missed;
    cache.add(compiled(request_of(count), "int8/128", {}));
  }
  return missed;
}

TEST(PlanCache, ACycleOfManyShapesIsCompiledOnce) {
  PlanCache cache;
  EXPECT_EQ(misses(cache, PlanCache::kKept), PlanCache::kKept);
  EXPECT_EQ(misses(cache, PlanCache::kKept), 0U);
}

TEST(PlanCache, HoldsNoMoreThanItsRoomAndKeepsMostOfALongerCycle) {
  PlanCache cache;
  const size_t shapes = PlanCache::kKept + PlanCache::kKept / 8;
  EXPECT_EQ(misses(cache, shapes), shapes);
  EXPECT_EQ(cache.size(), PlanCache::kKept);
  for (int pass = 0; pass < 3; ++pass) EXPECT_LT(misses(cache, shapes), shapes / 2);
  EXPECT_EQ(cache.size(), PlanCache::kKept);
}

TEST(PlanCache, WhatAPlanWasCompiledForTellsItApart) {
  PlanCache cache;
  const Codec& codec = codec_of("int8/128");
  const PlanRequest request = request_of(1000);
  cache.add(compiled(request, "int8/128", {}));
  ASSERT_NE(cache.find(request, codec, {}), nullptr);
  EXPECT_EQ(cache.find(request, codec_of("int4/128"), {}), nullptr);
  SliceLimits limits;
  limits.slice_bytes = 4096;
  EXPECT_EQ(cache.find(request, codec, limits), nullptr);
  PlanRequest other = request;
  other.kind = PlanKind::kRing;
  EXPECT_EQ(cache.find(other, codec, {}), nullptr);
  other = request;
  other.collective = Collective::kBroadcast;
  EXPECT_EQ(cache.find(other, codec, {}), nullptr);
  other = request;
  other.root = 1;
  EXPECT_EQ(cache.find(other, codec, {}), nullptr);
  other = request;
  other.granule = 64;
  EXPECT_EQ(cache.find(other, codec, {}), nullptr);
}

TEST(PlanCache, APlanThatIsAddedTwiceIsKeptOnce) {
  PlanCache cache;
  cache.add(compiled(request_of(5), "int8/128", {}));
  const auto second = compiled(request_of(5), "int8/128", {});
  cache.add(second);
  EXPECT_EQ(cache.size(), 1U);
  EXPECT_EQ(cache.find(request_of(5), codec_of("int8/128"), {}), second);
}

}  // namespace
}  // namespace tersum
