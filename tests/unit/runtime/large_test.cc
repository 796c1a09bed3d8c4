// More than 2^31 elements: where a 32-bit index would wrap.
#include <gtest/gtest.h>

#include <unistd.h>

#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "support/cluster.h"

namespace tersum::testing {
namespace {

TEST(Large, MoreThanTwoToThe31Elements) {
  constexpr size_t kCount = (size_t{1} << 31) + 1009;
  const auto free_bytes =
      static_cast<size_t>(sysconf(_SC_AVPHYS_PAGES)) * static_cast<size_t>(sysconf(_SC_PAGESIZE));
  if (free_bytes < 3 * kCount) {
    GTEST_SKIP() << "needs " << 3 * kCount / (1 << 20) << " MiB of free memory, has "
                 << free_bytes / (1 << 20);
  }
  Cluster cluster(ClusterOptions{});
  std::vector<std::vector<uint8_t>> data(2);
  for (size_t r = 0; r < 2; ++r) data[r].assign(kCount, static_cast<uint8_t>(r + 1));
  data[0][kCount - 1] = 77;
  data[1][size_t{1} << 31] = 50;
  const auto statuses = cluster.run([&](int rank, Communicator& communicator) {
    auto& values = data[static_cast<size_t>(rank)];
    return communicator.start_all_reduce(values.data(), values.data(), kCount, DataType::kUint8,
                                         ReduceOp::kSum, {"exact", PlanKind::kAuto, 120'000});
  });
  for (const Status& status : statuses) ASSERT_TRUE(status.ok()) << status.to_string();
  EXPECT_EQ(data[0][kCount - 1], 79);
  EXPECT_EQ(data[1][kCount - 1], 79);
  EXPECT_EQ(data[0][size_t{1} << 31], 51);
  EXPECT_EQ(data[0][12345], 3);
  EXPECT_TRUE(data[0] == data[1]);
}

// Arrays beyond the cache's size are written by other stores; 8 Mi values and some are enough.
TEST(Large, PastTheCacheTheSumsAreTheSame) {
  constexpr size_t kCount = (size_t{8} << 20) + 77;
  Cluster cluster(ClusterOptions{});
  std::vector<std::vector<float>> data(2);
  for (size_t r = 0; r < 2; ++r) {
    data[r].resize(kCount);
    for (size_t i = 0; i < kCount; ++i) data[r][i] = static_cast<float>((i * (r + 3)) % 1021);
  }
  for (const char* codec : {"exact", "int8/128"}) {
    std::vector<std::vector<float>> sums(2, std::vector<float>(kCount));
    const auto statuses = cluster.run([&](int rank, Communicator& communicator) {
      const auto r = static_cast<size_t>(rank);
      return communicator.start_all_reduce(data[r].data(), sums[r].data(), kCount,
                                           DataType::kFloat32, ReduceOp::kSum,
                                           {codec, PlanKind::kTwoStep, 120'000});
    });
    for (const Status& status : statuses) ASSERT_TRUE(status.ok()) << status.to_string();
    EXPECT_TRUE(sums[0] == sums[1]) << codec;
    // Two contributions of at most 1020 and their sum, each wrong by half a step.
    const float slack = codec == std::string("exact") ? 0 : 2 * 1020 / 127.0F * 1.01F;
    size_t wrong = 0;
    for (size_t i = 0; i < kCount; ++i) {
      wrong += std::abs(sums[0][i] - (data[0][i] + data[1][i])) <= slack ? 0 : 1;
    }
    EXPECT_EQ(wrong, 0u) << codec;
  }
}

}  // namespace
}  // namespace tersum::testing
