// Collectives of denormals, called by threads that flush them to zero.
//
// A blocking caller moves and adds the values itself, in its own thread, so the engine must set the
// control word around its work and put it back.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <thread>
#include <vector>

#include "support/cluster.h"
#include "support/flush_denormals.h"

namespace tersum::testing {
namespace {

constexpr size_t kCount = 5003;
constexpr const char* kCodecs[] = {"exact", "bf16", "int8/32", "int4/32"};

// Multiples of 2^-136 on both sides of 2^-126, below which float32 has denormals.
std::vector<float> tiny_values(int rank) {
  std::vector<float> values(kCount);
  for (size_t i = 0; i < kCount; ++i) {
    const int steps = static_cast<int>((i * 37 + static_cast<size_t>(rank) * 101) % 1801) - 900;
    values[i] = std::ldexp(static_cast<float>(steps), -136);
  }
  return values;
}

using Call = std::function<Status(Communicator&, std::vector<float>&, const CallOptions&)>;

Status blocking(Communicator& communicator, std::vector<float>& values,
                const CallOptions& options) {
  return communicator.all_reduce(values.data(), values.data(), kCount, DataType::kFloat32,
                                 ReduceOp::kSum, options);
}

Status in_the_background(Communicator& communicator, std::vector<float>& values,
                         const CallOptions& options) {
  Work work = communicator.start_all_reduce(values.data(), values.data(), kCount,
                                            DataType::kFloat32, ReduceOp::kSum, options);
  return work.wait();
}

// What each rank has after `call`; of threads that flush denormals, or of none.
std::vector<std::vector<float>> sums(ClusterKind kind, const char* codec, const Call& call,
                                     bool flushes) {
  ClusterOptions options;
  options.kind = kind;
  options.size = 2;
  Cluster cluster(options);
  std::vector<std::vector<float>> data = {tiny_values(0), tiny_values(1)};
  std::vector<std::thread> threads;
  for (int rank = 0; rank < 2; ++rank) {
    threads.emplace_back([&, rank] {
      const auto run = [&] {
        const Status status =
            call(cluster.at(rank), data[static_cast<size_t>(rank)], {codec, PlanKind::kAuto, 0});
        EXPECT_TRUE(status.ok()) << status.to_string();
      };
      if (!flushes) return run();
      const FlushDenormals flush;
      run();
      EXPECT_TRUE(FlushDenormals::on()) << "the caller's control word must be put back";
    });
  }
  for (std::thread& thread : threads) thread.join();
  return data;
}

class DenormalCalls : public ::testing::TestWithParam<ClusterKind> {};

TEST_P(DenormalCalls, HaveTheSameBitsWhateverTheThreadDoesWithThem) {
  if (!FlushDenormals::kWorks) GTEST_SKIP() << "no way to flush denormals on this architecture";
  const std::vector<float> first = tiny_values(0);
  const std::vector<float> second = tiny_values(1);
  for (const char* const codec : kCodecs) {
    for (const Call& call : {Call(blocking), Call(in_the_background)}) {
      const auto expected = sums(GetParam(), codec, call, false);
      const auto flushed = sums(GetParam(), codec, call, true);
      EXPECT_EQ(expected[0], expected[1]) << codec;
      EXPECT_EQ(flushed, expected) << codec;
      if (std::string_view(codec) != "exact") continue;
      for (size_t i = 0; i < kCount; ++i) ASSERT_EQ(flushed[0][i], first[i] + second[i]) << i;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Kinds, DenormalCalls,
                         ::testing::Values(ClusterKind::kLocal, ClusterKind::kTcp,
                                           ClusterKind::kShm),
                         [](const auto& info) { return cluster_kind_name(info.param); });

}  // namespace
}  // namespace tersum::testing
