// More than 2^31 elements: where a 32-bit index would wrap.
#include <gtest/gtest.h>

#include <unistd.h>

#include <cstdint>
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

}  // namespace
}  // namespace tersum::testing
