// What calls have learned is reset and loaded between calls only; one whose codec is open is in
// flight from its sample on. Real engine, two ranks that are threads.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

#include "runtime/call_counters.h"
#include "support/cluster.h"

namespace tersum::testing {
namespace {

using ::testing::HasSubstr;

constexpr size_t kChannels = 64;
constexpr size_t kCount = 256 * kChannels;

class FlattenChanges : public ::testing::Test {
 protected:
  FlattenChanges() {
    // Or a table that an earlier run has kept would be taken.
    setenv("TERSUM_CACHE_DIR", "", 1);
    for (auto& values : values_) {
      for (size_t i = 0; i < kCount; ++i) {
        values[i] = static_cast<float>(i * 7 % 101) - 50.0F;
        if (i % kChannels == 5) values[i] *= 100;
      }
    }
  }
  ~FlattenChanges() override { unsetenv("TERSUM_CACHE_DIR"); }

  // A call of one rank, on a thread of its own, which ends when the other one's has come.
  std::thread start_sum(int rank) {
    return std::thread([this, rank] {
      CallOptions options;
      options.codec = "auto";
      options.max_rel_error = max_rel_error_;
      options.channels = kChannels;
      options.site = "layer";
      const auto& values = values_[static_cast<size_t>(rank)];
      std::vector<float> sum(kCount);
      const Status status = cluster_.at(rank).all_reduce(
          values.data(), sum.data(), kCount, DataType::kFloat32, ReduceOp::kSum, options);
      EXPECT_TRUE(status.ok()) << status.to_string();
    });
  }
  void sum_of_both() {
    std::thread other = start_sum(1);
    start_sum(0).join();
    other.join();
  }

  double max_rel_error_ = 0.02;
  Cluster cluster_{ClusterOptions{}};
  std::vector<std::vector<float>> values_ =
      std::vector<std::vector<float>>(2, std::vector<float>(kCount));
};

// What a call teaches takes as long as summing a short array. One in 256 is sampled for, by lot,
// and teaches all the same.
TEST_F(FlattenChanges, AreNotTaughtOnceASampleHasJudgedThem) {
  max_rel_error_ = 1e-12;  // exact alone
  sum_of_both();
  const std::vector<std::byte> first = cluster_.at(0).save_flatten().value();
  sum_of_both();
  std::vector<std::byte> before = cluster_.at(0).save_flatten().value();
  EXPECT_NE(first, before) << "the second call is sampled for";
  int equal = 0;
  for (int i = 0; i < 6; ++i) {
    sum_of_both();
    std::vector<std::byte> known = cluster_.at(0).save_flatten().value();
    EXPECT_EQ(known, cluster_.at(1).save_flatten().value());
    equal += known == before ? 1 : 0;
    before = std::move(known);
  }
  EXPECT_GE(equal, 4);
}

TEST_F(FlattenChanges, WaitForASampleThatIsUnderWay) {
  sum_of_both();  // tunes, samples, and teaches the channels
  ASSERT_EQ(CallCounters::process().read().calls_in_flight, 0U);
  const std::vector<std::byte> saved = cluster_.at(0).save_flatten().value();
  // A site's second call is sampled for, too.
  std::thread first = start_sum(0);
  for (int ms = 0; CallCounters::process().read().calls_in_flight == 0; ++ms) {
    if (ms == 20'000) {
      first.join();
      FAIL() << "the call ended without being sampled for";
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  for (const Status& status :
       {cluster_.at(0).reset_flatten(), cluster_.at(0).reset_flatten("layer"),
        cluster_.at(0).load_flatten(saved)}) {
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(status.message()), HasSubstr("in flight"));
  }
  start_sum(1).join();
  first.join();
  for (int rank = 0; rank < 2; ++rank) {
    EXPECT_TRUE(cluster_.at(rank).load_flatten(saved).ok());
    EXPECT_TRUE(cluster_.at(rank).reset_flatten().ok());
  }
  sum_of_both();
}

}  // namespace
}  // namespace tersum::testing
