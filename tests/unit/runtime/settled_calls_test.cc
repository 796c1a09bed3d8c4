// Calls within an error, most of which find with one look what they took before: alike on all
// ranks, within the error, and beside threads that ask meanwhile. Real engine, ranks are threads.
#include <gtest/gtest.h>

#include <atomic>
#include <cmath>
#include <cstdlib>
#include <thread>
#include <vector>

#include "support/cluster.h"

namespace tersum::testing {
namespace {

constexpr int kRanks = 2;
constexpr int kCalls = 600;  // one in 256 is sampled for, besides the first two
constexpr double kError = 1e-2;

class SettledCalls : public ::testing::Test {
 protected:
  // Or a table that an earlier run has kept would be taken.
  SettledCalls() { setenv("TERSUM_CACHE_DIR", "", 1); }
  ~SettledCalls() override { unsetenv("TERSUM_CACHE_DIR"); }

  static CallOptions within(double rel_error) {
    CallOptions options;
    options.codec = "auto";
    options.max_rel_error = rel_error;
    return options;
  }

  static float value(int rank, int call, size_t i) {
    return std::sin(static_cast<float>(i) * 0.37F + static_cast<float>(rank + 3 * call));
  }

  // One rank's sums, one after the other; two lengths take turns, the second with another error.
  std::vector<std::vector<float>> sums_of(int rank) {
    std::vector<std::vector<float>> sums;
    for (int call = 0; call < kCalls; ++call) {
      const bool is_other = call % 3 == 2;
      std::vector<float> x(is_other ? 700 : 1000);
      for (size_t i = 0; i < x.size(); ++i) x[i] = value(rank, call, i);
      const CallOptions options = within(is_other ? 1e-9 : kError);
      std::vector<float> sum(x.size());
      const Status status = cluster_.at(rank).all_reduce(
          x.data(), sum.data(), x.size(), DataType::kFloat32, ReduceOp::kSum, options);
      EXPECT_TRUE(status.ok()) << status.to_string();
      sums.push_back(std::move(sum));
    }
    return sums;
  }

  Cluster cluster_{ClusterOptions{}};
};

TEST_F(SettledCalls, AreAlikeOnAllRanksAndWithinTheError) {
  std::vector<std::vector<std::vector<float>>> sums(kRanks);
  std::atomic<bool> over{false};
  // Asks what a call would take, and what was learned, while calls settle.
  std::thread asking([&] {
    while (!over.load()) {
      (void)cluster_.at(0).choose(Collective::kAllReduce, 1000, DataType::kFloat32, ReduceOp::kSum,
                                  within(kError));
      (void)cluster_.at(0).save_flatten();
      (void)cluster_.at(0).stats();
    }
  });
  std::vector<std::thread> ranks;
  for (int rank = 0; rank < kRanks; ++rank) {
    ranks.emplace_back([&, rank] { sums[static_cast<size_t>(rank)] = sums_of(rank); });
  }
  for (std::thread& rank : ranks) rank.join();
  over.store(true);
  asking.join();
  for (int call = 0; call < kCalls; ++call) {
    const auto& sum = sums[0][static_cast<size_t>(call)];
    ASSERT_EQ(sum, sums[1][static_cast<size_t>(call)]) << "call " << call;
    double moved = 0, size = 0;
    for (size_t i = 0; i < sum.size(); ++i) {
      const double exact =
          static_cast<double>(value(0, call, i)) + static_cast<double>(value(1, call, i));
      moved += std::pow(static_cast<double>(sum[i]) - exact, 2);
      size += exact * exact;
    }
    // What samples show is usual; float32's own rounding is what is left of exact sums.
    const double allowed = call % 3 == 2 ? 1e-6 : 2 * kError;
    EXPECT_LE(std::sqrt(moved / size), allowed) << "call " << call;
  }
}

}  // namespace
}  // namespace tersum::testing
