// One suite over dtype x operation x codec x plan x transport x group size x length: every result
// is inside its stated bound and the same bytes on every rank.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "collective_fixture.h"
#include "support/every_plan.h"

namespace tersum::testing {
namespace {

constexpr Shape kShapes[] = {
    {DataType::kFloat32, ReduceOp::kSum, "exact"},
    {DataType::kFloat32, ReduceOp::kAverage, "exact"},
    {DataType::kFloat32, ReduceOp::kMax, "exact"},
    {DataType::kFloat32, ReduceOp::kMin, "int8"},
    {DataType::kFloat32, ReduceOp::kSum, "bf16"},
    {DataType::kFloat32, ReduceOp::kSum, "int8"},
    {DataType::kFloat32, ReduceOp::kAverage, "int8/32"},
    {DataType::kFloat32, ReduceOp::kSum, "int8/1024"},
    {DataType::kFloat32, ReduceOp::kSum, "int4/32"},
    {DataType::kFloat32, ReduceOp::kSum, "int4/128"},
    {DataType::kFloat32, ReduceOp::kSum, "int4/32+sparse:1%"},
    {DataType::kFloat32, ReduceOp::kSum, "int8/32+rows:200"},
    {DataType::kFloat16, ReduceOp::kAverage, "int5/32+mixed"},
    {DataType::kFloat32, ReduceOp::kSum, "int4/64+adaptive"},
    {DataType::kFloat32, ReduceOp::kSum, "int4/128+clip:learned"},
    {DataType::kFloat16, ReduceOp::kAverage, "int6/32+hadamard+clip:learned"},
    {DataType::kBFloat16, ReduceOp::kAverage, "int6/64+rows:1000+sparse:1%"},
    {DataType::kFloat32, ReduceOp::kSum, "int8/32+shiftadd+hops"},
    {DataType::kBFloat16, ReduceOp::kAverage, "int5/64+hadamard+shiftadd+hops"},
    {DataType::kFloat16, ReduceOp::kAverage, "int8/64+sparse:10%+hadamard"},
    {DataType::kFloat32, ReduceOp::kSum, "sum8/64"},
    {DataType::kBFloat16, ReduceOp::kAverage, "sum8"},
    {DataType::kFloat32, ReduceOp::kAverage, "sum8/64+rows:200"},
    {DataType::kFloat16, ReduceOp::kSum, "sum8/32+rows:33+hadamard+sr"},
    {DataType::kFloat16, ReduceOp::kSum, "sum8/32+sr"},
    {DataType::kBFloat16, ReduceOp::kSum, "sum8/64+hadamard"},
    {DataType::kFloat32, ReduceOp::kAverage, "sum8:tensor+hadamard"},
    {DataType::kBFloat16, ReduceOp::kSum, "exact"},
    {DataType::kBFloat16, ReduceOp::kAverage, "int8/64"},
    {DataType::kFloat16, ReduceOp::kSum, "exact"},
    {DataType::kFloat16, ReduceOp::kSum, "int8"},
    {DataType::kFloat64, ReduceOp::kSum, "exact"},
    {DataType::kFloat64, ReduceOp::kSum, "int8"},
    {DataType::kInt32, ReduceOp::kSum, "exact"},
    {DataType::kInt64, ReduceOp::kMax, "exact"},
    {DataType::kInt32, ReduceOp::kAverage, "int8"},
    {DataType::kUint8, ReduceOp::kSum, "exact"},
};

class CollectiveSuite : public CollectiveFixture {};

TEST_P(CollectiveSuite, AllReduceOfEveryShape) {
  constexpr size_t kCounts[] = {0, 1, 127, 1009, 40'009};
  for (const Shape& shape : kShapes) {
    for (const PlanKind plan : kEveryPlan) {
      for (const size_t count : kCounts) {
        check_all_reduce(shape, plan, count, (count + static_cast<size_t>(plan)) % 2 == 0);
        if (HasFatalFailure()) return;
      }
    }
  }
}

// What the shapes above leave out, at one length: the exact sum, average, maximum and minimum of
// every type, and every block of int8 and int4.
TEST_P(CollectiveSuite, AllReduceOfEveryTypeOperationAndBlock) {
  std::vector<Shape> shapes;
  for (const DataType type :
       {DataType::kFloat32, DataType::kBFloat16, DataType::kFloat16, DataType::kFloat64,
        DataType::kInt32, DataType::kInt64, DataType::kUint8}) {
    for (const ReduceOp op : {ReduceOp::kSum, ReduceOp::kAverage, ReduceOp::kMax, ReduceOp::kMin}) {
      shapes.push_back({type, op, "exact"});
    }
  }
  for (const char* const codec :
       {"int8/32", "int8/64", "int8/128", "int8/256", "int8/512", "int8/1024", "int4/32", "int4/64",
        "int4/128", "int4/256", "int4/512", "int4/1024"}) {
    shapes.push_back({DataType::kFloat32, ReduceOp::kSum, codec});
  }
  for (const Shape& shape : shapes) {
    for (const PlanKind plan : kEveryPlan) {
      check_all_reduce(shape, plan, 3001, plan == PlanKind::kTwoStep);
      if (HasFatalFailure()) return;
    }
  }
}

constexpr PlanKind kPlansOfParts[] = {
    PlanKind::kTwoStep,         PlanKind::kRing,  PlanKind::kBidirectionalRing,
    PlanKind::kHalvingDoubling, PlanKind::kTorus, PlanKind::kTree};

TEST_P(CollectiveSuite, ReduceScatterOfEveryShape) {
  for (const Shape& shape : kShapes) {
    for (const PlanKind plan : kPlansOfParts) {
      for (const size_t count : {size_t{0}, size_t{1}, size_t{509}, size_t{5003}}) {
        check_reduce_scatter(shape, plan, count);
        if (HasFatalFailure()) return;
      }
    }
  }
}

TEST_P(CollectiveSuite, AllGatherKeepsOrderAndBytes) {
  const auto size = static_cast<size_t>(cluster_->size());
  for (const PlanKind plan : kPlansOfParts) {
    for (const size_t count : {size_t{0}, size_t{1}, size_t{733}, size_t{9001}}) {
      const std::vector<TypedArray> ranks = random_ranks(DataType::kInt64, count);
      std::vector<std::vector<std::byte>> outputs(size, std::vector<std::byte>(count * size * 8));
      const CallOptions options{"exact", plan, 0};
      const auto statuses = cluster_->run([&](int rank, Communicator& communicator) {
        return communicator.start_all_gather(ranks[static_cast<size_t>(rank)].bytes.data(),
                                             outputs[static_cast<size_t>(rank)].data(), count,
                                             DataType::kInt64, options);
      });
      std::vector<std::byte> expected;
      for (const TypedArray& rank : ranks) {
        expected.insert(expected.end(), rank.bytes.begin(), rank.bytes.end());
      }
      for (const Status& status : statuses) ASSERT_TRUE(status.ok()) << status.to_string();
      for (const auto& output : outputs) EXPECT_EQ(output, expected);
    }
  }
}

TEST_P(CollectiveSuite, BroadcastFromEveryRoot) {
  const auto size = static_cast<size_t>(cluster_->size());
  for (int root = 0; root < cluster_->size(); ++root) {
    for (const char* codec : {"exact", "int8/32"}) {
      std::vector<TypedArray> ranks = random_ranks(DataType::kFloat32, 5003);
      const std::vector<std::byte> sent = ranks[static_cast<size_t>(root)].bytes;
      const CallOptions options{codec, root % 2 == 0 ? PlanKind::kAuto : PlanKind::kRing, 0};
      const auto statuses = cluster_->run([&](int rank, Communicator& communicator) {
        return communicator.start_broadcast(ranks[static_cast<size_t>(rank)].bytes.data(), 5003,
                                            DataType::kFloat32, root, options);
      });
      for (size_t r = 0; r < size; ++r) {
        ASSERT_TRUE(statuses[r].ok()) << statuses[r].to_string();
        EXPECT_EQ(ranks[r].bytes, ranks[0].bytes);
      }
      const bool verbatim = std::string(codec) == "exact" || size == 1;
      EXPECT_TRUE(!verbatim || ranks[0].bytes == sent) << codec;
    }
  }
}

TEST_P(CollectiveSuite, BarrierAndManyCallsInFlight) {
  constexpr size_t kCalls = 12;
  const auto size = static_cast<size_t>(cluster_->size());
  std::vector<std::vector<float>> data(size * kCalls, std::vector<float>(3001));
  std::vector<Work> works;
  for (size_t r = 0; r < size; ++r) {
    Communicator& communicator = cluster_->at(static_cast<int>(r));
    for (size_t c = 0; c < kCalls; ++c) {
      std::vector<float>& values = data[r * kCalls + c];
      std::fill(values.begin(), values.end(), static_cast<float>(c + r));
      works.push_back(communicator.start_all_reduce(values.data(), values.data(), values.size(),
                                                    DataType::kFloat32, ReduceOp::kSum,
                                                    {"exact", PlanKind::kAuto, 0}));
    }
    works.push_back(communicator.start_barrier());
  }
  for (const Status& status : cluster_->finish(works))
    EXPECT_TRUE(status.ok()) << status.to_string();
  for (size_t c = 0; c < kCalls; ++c) {
    const auto expected = static_cast<float>(size * c + size * (size - 1) / 2);
    for (size_t r = 0; r < size; ++r) {
      EXPECT_EQ(data[r * kCalls + c], std::vector<float>(3001, expected)) << c << " rank " << r;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Local, CollectiveSuite,
                         ::testing::Combine(::testing::Range(1, 10),
                                            ::testing::Values(ClusterKind::kLocal)),
                         point_name);
INSTANTIATE_TEST_SUITE_P(Sim, CollectiveSuite,
                         ::testing::Combine(::testing::Values(2, 3, 5, 9),
                                            ::testing::Values(ClusterKind::kSim)),
                         point_name);
INSTANTIATE_TEST_SUITE_P(Tcp, CollectiveSuite,
                         ::testing::Combine(::testing::Values(2, 3, 4, 7),
                                            ::testing::Values(ClusterKind::kTcp)),
                         point_name);
INSTANTIATE_TEST_SUITE_P(Shm, CollectiveSuite,
                         ::testing::Combine(::testing::Values(2, 3, 4, 8),
                                            ::testing::Values(ClusterKind::kShm)),
                         point_name);

// Of the group sizes that the instantiations above leave out, one shape of a kind: all of them at
// every size would take minutes, and what depends on the transport is not the shape.
class CollectiveSizes : public CollectiveFixture {};

TEST_P(CollectiveSizes, OneShapeOfAKind) {
  constexpr Shape kOfAKind[] = {
      {DataType::kFloat32, ReduceOp::kSum, "exact"},
      {DataType::kInt64, ReduceOp::kMax, "exact"},
      {DataType::kFloat32, ReduceOp::kSum, "int8"},
      {DataType::kBFloat16, ReduceOp::kAverage, "int4/32"},
      {DataType::kFloat16, ReduceOp::kSum, "sum8/32+sr"},
  };
  for (const Shape& shape : kOfAKind) {
    for (const PlanKind plan : {PlanKind::kAuto, PlanKind::kTwoStep, PlanKind::kRing,
                                PlanKind::kOneShot, PlanKind::kTree}) {
      for (const size_t count : {size_t{1}, size_t{1009}, size_t{5003}}) {
        check_all_reduce(shape, plan, count, (count + static_cast<size_t>(plan)) % 2 == 0);
        if (HasFatalFailure()) return;
        if (plan == PlanKind::kOneShot) continue;
        check_reduce_scatter(shape, plan, count);
        if (HasFatalFailure()) return;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Sim, CollectiveSizes,
                         ::testing::Combine(::testing::Values(1, 4, 6, 7, 8),
                                            ::testing::Values(ClusterKind::kSim)),
                         point_name);
INSTANTIATE_TEST_SUITE_P(Tcp, CollectiveSizes,
                         ::testing::Combine(::testing::Values(1, 5, 8, 9),
                                            ::testing::Values(ClusterKind::kTcp)),
                         point_name);
INSTANTIATE_TEST_SUITE_P(Shm, CollectiveSizes,
                         ::testing::Combine(::testing::Values(1, 5, 9),
                                            ::testing::Values(ClusterKind::kShm)),
                         point_name);

}  // namespace
}  // namespace tersum::testing
