// The arena: sizes, reuse, sharing, bounds.
#include "transport/arena.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <set>
#include <vector>

#include "transport/grow_ring.h"

namespace tersum {
namespace {

class ArenaTest : public ::testing::TestWithParam<bool> {
 protected:
  std::unique_ptr<Arena> make(size_t capacity_bytes = size_t{1} << 28) {
    Result<std::unique_ptr<Arena>> arena = Arena::create(GetParam(), capacity_bytes);
    EXPECT_TRUE(arena.ok()) << arena.status().to_string();
    return std::move(arena).value();
  }
};

TEST_P(ArenaTest, SlotsAreLargeEnoughAlignedAndApart) {
  const uint64_t seed = std::random_device()();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937_64 random(seed);
  const auto arena = make();
  EXPECT_EQ(arena->memfd() >= 0, GetParam());
  std::vector<std::pair<SlotRef, std::byte>> live;
  for (int i = 0; i < 3000; ++i) {
    if (!live.empty() && random() % 3 == 0) {
      std::swap(live[random() % live.size()], live.back());
      const auto& [slot, mark] = live.back();
      for (const size_t at : {size_t{0}, slot.bytes().size() - 1}) {
        ASSERT_EQ(slot.bytes()[at], mark) << "slots overlap";
      }
      live.pop_back();
    } else {
      const size_t bytes = 1 + random() % (size_t{1} << (random() % 17));
      Result<SlotRef> slot = arena->reserve(bytes);
      ASSERT_TRUE(slot.ok());
      ASSERT_GE(slot->bytes().size(), bytes);
      ASSERT_LE(slot->bytes().size(), std::max<size_t>(256, bytes + bytes / 4 + 64));
      ASSERT_EQ(reinterpret_cast<uintptr_t>(slot->bytes().data()) % 64, 0u);
      ASSERT_EQ(arena->base() + arena->offset(*slot), slot->bytes().data());
      const auto mark = static_cast<std::byte>(random());
      slot->bytes().front() = slot->bytes().back() = mark;
      if (random() % 2 == 0) arena->lend(*slot);
      live.emplace_back(std::move(slot).value(), mark);
    }
  }
  live.clear();
  EXPECT_EQ(arena->used_bytes(), 0u);
  EXPECT_GT(arena->high_water_bytes(), 0u);
}

TEST_P(ArenaTest, LargeSlotsBeginHalfwayIntoAPage) {
  const auto arena = make();
  std::vector<SlotRef> slots;
  for (const size_t bytes : std::initializer_list<size_t>{1, 4096, 300, 4097, 65'536, 1 << 20}) {
    slots.push_back(arena->reserve(bytes).value());
    if (bytes < 4096) continue;
    EXPECT_EQ(arena->offset(slots.back()) % 4096, 2048u)
        << bytes << ": far from where arrays begin";
  }
}

TEST_P(ArenaTest, NoSlotReachesBeyondTheEnd) {
  for (const size_t bytes : {size_t{4096}, size_t{5000}, size_t{1} << 20, size_t{4} << 20}) {
    const auto arena = make(size_t{8} << 20);
    std::vector<SlotRef> slots;
    for (Result<SlotRef> slot = arena->reserve(bytes); slot.ok(); slot = arena->reserve(bytes)) {
      EXPECT_LE(arena->offset(*slot) + slot->bytes().size(), arena->capacity_bytes()) << bytes;
      slots.push_back(std::move(slot).value());
    }
    EXPECT_GT((slots.size() + 2) * slots.front().bytes().size(), arena->capacity_bytes() / 2)
        << bytes;
  }
}

TEST_P(ArenaTest, ASlotReturnsWithItsLastReference) {
  const auto arena = make();
  SlotRef first = arena->reserve(1000).value();
  const uint32_t index = first.index();
  SlotRef second = first;
  SlotRef third;
  third = second;
  first = SlotRef();
  second = SlotRef();
  EXPECT_NE(arena->reserve(1000)->index(), index) << "still referenced";
  third = SlotRef();
  EXPECT_EQ(arena->used_bytes(), 0u);
  EXPECT_EQ(arena->high_water_bytes(), 2 * 1024u);
}

TEST_P(ArenaTest, ReuseKeepsTheAddressSpaceBounded) {
  const auto arena = make(8 << 20);
  for (int i = 0; i < 10'000; ++i) {
    Result<SlotRef> slot = arena->reserve(64 * 1024 + 40);
    ASSERT_TRUE(slot.ok());
  }
  EXPECT_LE(arena->high_water_bytes(), 100'000u);
}

// Slots that a peer has read, in the order in which they were taken.
std::vector<uint32_t> lend_one_by_one(Arena& arena, size_t bytes, int times) {
  std::vector<uint32_t> taken;
  for (int i = 0; i < times; ++i) {
    const SlotRef slot = arena.reserve(bytes).value();
    arena.lend(slot);
    taken.push_back(slot.index());
  }
  return taken;
}

TEST_P(ArenaTest, WhatAPeerHasReadRestsUntilEnoughElseWasGivenBack) {
  const auto arena = make();
  const std::vector<uint32_t> taken = lend_one_by_one(*arena, 32 * 1024, 40);
  const std::vector<uint32_t> first(taken.begin(), taken.begin() + 6);
  EXPECT_EQ(std::set<uint32_t>(first.begin(), first.end()).size(), 6u) << "192 KiB apart";
  for (size_t i = 6; i < taken.size(); ++i) EXPECT_EQ(taken[i], taken[i - 6]) << i;
}

TEST_P(ArenaTest, WhatRestsWaitsForSlotsOfAnySize) {
  const auto arena = make();
  const std::vector<uint32_t> taken = lend_one_by_one(*arena, 32 * 1024, 3);
  lend_one_by_one(*arena, 64 * 1024, 1);
  EXPECT_NE(arena->reserve(32 * 1024)->index(), taken.front()) << "160 KiB";
  lend_one_by_one(*arena, 48 * 1024, 1);
  EXPECT_EQ(lend_one_by_one(*arena, 32 * 1024, 1).front(), taken.front()) << "208 KiB";
}

TEST_P(ArenaTest, OfThoseThatHaveRestedTheNewestIsTakenAndOfOthersTheLastOne) {
  const auto arena = make();
  const std::vector<uint32_t> taken = lend_one_by_one(*arena, 1000, 3);
  EXPECT_EQ(std::set<uint32_t>(taken.begin(), taken.end()).size(), 3u);
  lend_one_by_one(*arena, 256 * 1024, 1);
  {
    const SlotRef slot = arena->reserve(1000).value();
    EXPECT_EQ(slot.index(), taken.back());
  }
  EXPECT_EQ(arena->reserve(1000)->index(), taken.back()) << "not lent this time";
}

TEST_P(ArenaTest, AFullArenaTakesWhatHasNotRestedYet) {
  const auto arena = make(size_t{64} << 20);
  std::vector<SlotRef> held;
  const uint32_t lent = lend_one_by_one(*arena, 1000, 1).front();
  for (size_t bytes = size_t{1} << 20; bytes >= 2048; bytes /= 2) {
    for (Result<SlotRef> slot = arena->reserve(bytes); slot.ok(); slot = arena->reserve(bytes)) {
      held.push_back(std::move(slot).value());
    }
  }
  // There may be room for one more of that size.
  held.push_back(arena->reserve(1000).value());
  if (held.back().index() != lent) held.push_back(arena->reserve(1000).value());
  EXPECT_EQ(held.back().index(), lent);
  EXPECT_FALSE(arena->reserve(1000).ok());
}

TEST_P(ArenaTest, AFullArenaSaysSoAndRecovers) {
  const auto arena = make(8 << 20);
  std::vector<SlotRef> slots;
  for (;;) {
    Result<SlotRef> slot = arena->reserve(kPayloadBytesMax);
    if (!slot.ok()) {
      EXPECT_EQ(slot.status().code(), StatusCode::kSystem);
      EXPECT_NE(slot.status().message().find("window_bytes"), std::string_view::npos);
      break;
    }
    slots.push_back(std::move(slot).value());
    ASSERT_LT(slots.size(), 10u);
  }
  slots.pop_back();
  EXPECT_TRUE(arena->reserve(kPayloadBytesMax).ok());
}

INSTANTIATE_TEST_SUITE_P(Kinds, ArenaTest, ::testing::Bool(),
                         [](const auto& info) { return info.param ? "shared" : "own"; });

TEST(GrowRing, IsFirstInFirstOutAcrossGrowthAndWrapping) {
  GrowRing<int> ring;
  int pushed = 0;
  int popped = 0;
  for (int round = 0; round < 200; ++round) {
    for (int i = 0; i < round % 37; ++i) ring.push() = pushed++;
    for (int i = 0; i < round % 31 && !ring.empty(); ++i) {
      ASSERT_EQ(ring.front(), popped++);
      ring.pop();
    }
    ASSERT_EQ(ring.size(), static_cast<size_t>(pushed - popped));
  }
  ring.clear();
  EXPECT_TRUE(ring.empty());
}

}  // namespace
}  // namespace tersum
