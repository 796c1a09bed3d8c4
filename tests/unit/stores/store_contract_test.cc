// What include/tersum/store.h promises, for every kind of store.
#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "store_fixture.h"
#include "tersum/store.h"

namespace tersum::testing {
namespace {

enum class Kind { kTcp, kFile };

class StoreContract : public ::testing::TestWithParam<Kind> {
 protected:
  void SetUp() override { first_ = GetParam() == Kind::kTcp ? must_serve(&port_) : another(); }

  // One more rank's view of the same store.
  std::shared_ptr<Store> another() {
    if (GetParam() == Kind::kTcp) return must_connect(port_);
    auto store = make_file_store(directory_.path() + "/made/if/absent");
    EXPECT_TRUE(store.ok()) << store.status().to_string();
    return std::move(store).value();
  }

  void expect_value(Store& store, std::string_view key, std::string_view value) {
    const Result<std::string> got = store.wait(key, kPatienceMs);
    ASSERT_TRUE(got.ok()) << got.status().to_string();
    EXPECT_EQ(got.value(), value);
  }

  TemporaryDirectory directory_;
  uint16_t port_ = 0;
  std::shared_ptr<Store> first_;
};

TEST_P(StoreContract, WhatOneSetsAnotherReads) {
  const auto second = another();
  ASSERT_TRUE(second->set("key", "value").ok());
  expect_value(*first_, "key", "value");
  expect_value(*second, "key", "value");
}

TEST_P(StoreContract, AWaitEndsWhenTheKeyIsSet) {
  const auto second = another();
  std::atomic<bool> got{false};
  std::thread waiter([&] {
    expect_value(*second, "late", "here");
    got = true;
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(30));
  EXPECT_FALSE(got);
  ASSERT_TRUE(first_->set("late", "here").ok());
  waiter.join();
  EXPECT_TRUE(got);
}

// Each blocked call of one object has a connection of its own, or this would never end.
TEST_P(StoreContract, WaitsOfSomeThreadsDoNotHoldUpSetsOfAnother) {
  std::vector<std::thread> waiters;
  for (int i = 0; i < 6; ++i) {
    waiters.emplace_back([&, i] { expect_value(*first_, "k" + std::to_string(i), "v"); });
  }
  for (int i = 5; i >= 0; --i) {
    const Status status = first_->set("k" + std::to_string(i), "v");
    EXPECT_TRUE(status.ok()) << status.to_string();
  }
  for (std::thread& waiter : waiters) waiter.join();
}

TEST_P(StoreContract, AnyBytesAreValues) {
  std::string bytes;
  for (int i = 0; i < 256; ++i) bytes.push_back(static_cast<char>(i));
  const std::string largest(64 * 1024 - 1, '\xff');
  ASSERT_TRUE(first_->set("bytes", bytes).ok());
  ASSERT_TRUE(first_->set("empty", "").ok());
  ASSERT_TRUE(first_->set("largest", largest).ok());
  const auto second = another();
  expect_value(*second, "bytes", bytes);
  expect_value(*second, "empty", "");
  expect_value(*second, "largest", largest);
}

TEST_P(StoreContract, KeysThatLookAlikeStayApart) {
  const std::string keys[] = {"a",
                              "A",
                              "a/b",
                              "a%2fb",
                              "../a",
                              "..",
                              ".",
                              "/",
                              "a.key",
                              std::string("a\0b", 3),
                              " ",
                              "a\\b",
                              "\xc3\xa4",
                              std::string(200, 'x'),
                              std::string(201, 'x'),
                              std::string(202, 'x'),
                              std::string(1024, '/'),
                              std::string(1023, '/') + "x"};
  for (const std::string& key : keys) {
    const Status status = first_->set(key, "value of " + key);
    EXPECT_TRUE(status.ok()) << status.to_string();
  }
  const auto second = another();
  for (const std::string& key : keys) expect_value(*second, key, "value of " + key);
}

TEST_P(StoreContract, AKeyIsSetOnce) {
  const auto second = another();
  ASSERT_TRUE(first_->set("once", "one").ok());
  EXPECT_TRUE(first_->set("once", "one").ok());
  EXPECT_TRUE(second->set("once", "one").ok());
  for (const char* other : {"two", "", "one ", "on"}) {
    const Status status = second->set("once", other);
    EXPECT_TRUE(says(status, StatusCode::kInvalidArgument, "\"once\"")) << other;
    EXPECT_TRUE(says(status, StatusCode::kInvalidArgument, "already holds other bytes"));
  }
  expect_value(*first_, "once", "one");
}

TEST_P(StoreContract, OfRacingSettersOneWins) {
  for (int round = 0; round < 10; ++round) {
    const std::string key = "race " + std::to_string(round);
    std::atomic<int> winners{0};
    std::atomic<int> losers{0};
    std::vector<std::thread> setters;
    for (int i = 0; i < 6; ++i) {
      setters.emplace_back([&, i] {
        const Status status = first_->set(key, std::to_string(i));
        ++(status.ok() ? winners : losers);
        if (!status.ok()) {
          EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << status.to_string();
        }
      });
    }
    for (std::thread& setter : setters) setter.join();
    EXPECT_EQ(winners, 1);
    EXPECT_EQ(losers, 5);
  }
}

TEST_P(StoreContract, ATimeoutNamesTheKey) {
  const auto began = std::chrono::steady_clock::now();
  const Result<std::string> got = first_->wait("never/set\n", 60);
  EXPECT_GE(std::chrono::steady_clock::now() - began, std::chrono::milliseconds(60));
  EXPECT_TRUE(says(got.status(), StatusCode::kTimeout, "\"never/set\\x0a\""));
  EXPECT_TRUE(says(got.status(), StatusCode::kTimeout, "60 ms"));
  EXPECT_TRUE(says(got.status(), StatusCode::kTimeout, "check that every rank was started"));
  const std::string place = GetParam() == Kind::kTcp ? "tcp://127.0.0.1:" + std::to_string(port_)
                                                     : directory_.path() + "/made/if/absent";
  EXPECT_TRUE(says(got.status(), StatusCode::kTimeout, place));
  // The store is as good as before.
  ASSERT_TRUE(first_->set("never/set\n", "after all").ok());
  expect_value(*first_, "never/set\n", "after all");
}

TEST_P(StoreContract, AWaitOfNoTimeLooksOnce) {
  EXPECT_TRUE(says(first_->wait("absent", 0).status(), StatusCode::kTimeout, "\"absent\""));
  EXPECT_TRUE(says(first_->wait("absent", -5).status(), StatusCode::kTimeout, "\"absent\""));
  ASSERT_TRUE(first_->set("present", "1").ok());
  const Result<std::string> got = first_->wait("present", 0);
  ASSERT_TRUE(got.ok()) << got.status().to_string();
  EXPECT_EQ(got.value(), "1");
}

TEST_P(StoreContract, WhatIsTooLongIsRefused) {
  EXPECT_TRUE(says(first_->set("", "v"), StatusCode::kInvalidArgument, "1 to 1024"));
  EXPECT_TRUE(says(first_->wait("", 10).status(), StatusCode::kInvalidArgument, "1 to 1024"));
  const std::string key(1025, 'k');
  EXPECT_TRUE(says(first_->set(key, "v"), StatusCode::kInvalidArgument, "1025"));
  EXPECT_TRUE(says(first_->wait(key, 10).status(), StatusCode::kInvalidArgument, "1025"));
  const std::string value(64 * 1024, 'v');
  EXPECT_TRUE(says(first_->set("k", value), StatusCode::kInvalidArgument, "65536"));
}

// What a rendezvous does: everybody sets its own and waits for all the others', in its own order.
TEST_P(StoreContract, ManyRanksMeet) {
  constexpr int kRanks = 24;
  const uint64_t seed = std::random_device{}();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::vector<std::thread> ranks;
  for (int rank = 0; rank < kRanks; ++rank) {
    ranks.emplace_back([&, rank] {
      const auto store = another();
      ASSERT_NE(store, nullptr);
      std::mt19937_64 random(seed + static_cast<uint64_t>(rank));
      const std::string own = std::to_string(rank);
      ASSERT_TRUE(store->set("rank/" + own, "address of " + own).ok());
      for (int i = 0; i < kRanks; ++i) {
        const std::string peer = std::to_string((i + static_cast<int>(random() % kRanks)) % kRanks);
        expect_value(*store, "rank/" + peer, "address of " + peer);
      }
    });
  }
  for (std::thread& rank : ranks) rank.join();
}

TEST_P(StoreContract, HostIsWhereTheStoreIs) {
  EXPECT_EQ(first_->host(), GetParam() == Kind::kTcp ? "127.0.0.1" : "");
}

INSTANTIATE_TEST_SUITE_P(Kinds, StoreContract, ::testing::Values(Kind::kTcp, Kind::kFile),
                         [](const auto& info) {
                           return info.param == Kind::kTcp ? "Tcp" : "File";
                         });

}  // namespace
}  // namespace tersum::testing
