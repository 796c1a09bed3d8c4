// What is remembered of calls' choices: any one of them by all that it went by, and cycles of many
// shapes without choosing again.
#include "runtime/tuning/choice_cache.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

namespace tersum {
namespace {

ChoiceKey key_of(size_t count) {
  ChoiceKey key;
  key.count = count;
  key.codec = "int8/128";
  return key;
}

// One pass over the shapes 1 to `shapes`; how many had to be chosen for.
size_t misses(ChoiceCache& cache, size_t shapes) {
  size_t missed = 0;
  for (size_t count = 1; count <= shapes; ++count) {
    if (const auto known = cache.find(key_of(count))) {
      EXPECT_EQ(known->codec, std::to_string(count));
      continue;
    }
    ++missed;
    cache.add(key_of(count), {std::to_string(count), PlanKind::kRing});
  }
  return missed;
}

TEST(ChoiceCache, ACycleOfManyShapesIsChosenForOnce) {
  ChoiceCache cache;
  EXPECT_EQ(misses(cache, 1000), 1000U);
  EXPECT_EQ(misses(cache, 1000), 0U);
  cache.clear();
  EXPECT_EQ(misses(cache, ChoiceCache::kKept), ChoiceCache::kKept);
  EXPECT_EQ(misses(cache, ChoiceCache::kKept), 0U);
}

// The oldest one would be the next one that is needed: every call would choose anew.
TEST(ChoiceCache, ACycleBeyondItsRoomStillFindsMost) {
  constexpr size_t kShapes = ChoiceCache::kKept + ChoiceCache::kKept / 4;
  ChoiceCache cache;
  size_t missed = 0;
  for (int pass = 0; pass < 10; ++pass) {
    missed = misses(cache, kShapes);
    EXPECT_EQ(cache.size(), ChoiceCache::kKept);
  }
  EXPECT_LT(missed, kShapes / 2);
}

TEST(ChoiceCache, WhateverAChoiceGoesByTellsItApart) {
  ChoiceCache cache;
  std::vector<ChoiceKey> keys(9, key_of(1000));
  keys[1].collective = Collective::kReduceScatter;
  keys[2].type = DataType::kBFloat16;
  keys[3].op = ReduceOp::kAverage;
  keys[4].plan = PlanKind::kTwoStep;
  keys[5].count = 1001;
  keys[6].max_rel_error = 0.01;
  keys[7].codec = "int8/64";
  keys[8].sampled = 5;
  for (size_t i = 0; i < keys.size(); ++i) {
    EXPECT_EQ(cache.find(keys[i]), nullptr) << i;
    cache.add(keys[i], {std::to_string(i), PlanKind::kRing});
  }
  for (size_t i = 0; i < keys.size(); ++i) EXPECT_EQ(cache.find(keys[i])->codec, std::to_string(i));
}

TEST(ChoiceCache, KeepsItsOwnTextsAndWhatACallerHolds) {
  ChoiceCache cache;
  auto text = std::make_unique<std::string>("int6/128+flatten");
  ChoiceKey key = key_of(7);
  key.codec = *text;
  const auto held = cache.add(key, {*text, PlanKind::kTwoStep});
  text.reset();
  const std::string again = "int6/128+flatten";
  key.codec = again;
  EXPECT_EQ(cache.find(key), held);
  EXPECT_EQ(cache.add(key, {"exact", PlanKind::kRing}), held) << "what is known stands";
  cache.clear();
  EXPECT_EQ(cache.find(key), nullptr);
  EXPECT_EQ(held->codec, again);
}

}  // namespace
}  // namespace tersum
