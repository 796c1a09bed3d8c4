// One suite over dtype x operation x codec x plan x transport x group size x length: every result
// is inside its stated bound and the same bytes on every rank.
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>
#include <tuple>
#include <vector>

#include "codec/codec.h"
#include "plan/host_topology.h"
#include "plan/plan.h"
#include "support/cluster.h"
#include "support/oracle.h"

namespace tersum::testing {
namespace {

struct Shape {
  DataType type;
  ReduceOp op;
  const char* codec;
};

std::string shape_name(const Shape& shape) {
  std::string name(data_type_name(shape.type));
  name += "_" + std::string(reduce_op_name(shape.op)) + "_" + shape.codec;
  std::replace(name.begin(), name.end(), '/', '_');
  return name;
}

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

using Point = std::tuple<int, ClusterKind>;

class CollectiveSuite : public ::testing::TestWithParam<Point> {
 protected:
  void SetUp() override {
    const auto [size, kind] = GetParam();
    ClusterOptions options;
    options.kind = kind;
    options.size = size;
    options.ranks_per_process = size > 3 ? 2 : 1;
    options.seed = seed_;
    // Messages of a call overtake each other where a link has several streams.
    if (kind == ClusterKind::kTcp && size % 2 == 1) options.communicator.tcp_streams = 3;
    // Small slices, so that short arrays have many of them and windows fill up.
    options.communicator.slice_bytes = 4096;
    options.communicator.window_bytes = 64 * 1024;
    options.communicator.timeout_ms = 20'000;
    cluster_ = std::make_unique<Cluster>(options);
    hosts_ = topology_of_hosts(cluster_->at(0).hosts());
    RecordProperty("seed", std::to_string(seed_));
  }

  std::vector<TypedArray> random_ranks(DataType type, size_t count) {
    std::vector<TypedArray> ranks;
    for (int r = 0; r < cluster_->size(); ++r) ranks.push_back(random_array(type, count, random_));
    return ranks;
  }

  Plan plan_for(Collective collective, const Shape& shape, PlanKind kind, size_t count) {
    const Codec* codec = find_codec(shape.codec, shape.type, shape.op).value();
    PlanRequest request{collective, kind, cluster_->size(), count, codec->block(), 0};
    request.topology = hosts_.get();
    if (kind == PlanKind::kAuto) {
      const bool per_rank = collective != Collective::kAllReduce;
      const size_t own = per_rank ? count / static_cast<size_t>(cluster_->size()) : count;
      request.kind =
          choose_plan(collective, cluster_->size(), codec->wire_bytes(own), hosts_.get());
    }
    return make_plan(request).value();
  }

  void check_all_reduce(const Shape& shape, PlanKind plan, size_t count, bool in_place);
  void check_reduce_scatter(const Shape& shape, PlanKind plan, size_t count);

  const uint64_t seed_ = std::random_device{}();
  std::mt19937_64 random_{seed_};
  std::unique_ptr<Cluster> cluster_;
  std::shared_ptr<const Topology> hosts_;  // as the group has found them
};

void CollectiveSuite::check_all_reduce(const Shape& shape, PlanKind plan, size_t count,
                                       bool in_place) {
  const std::vector<TypedArray> ranks = random_ranks(shape.type, count);
  std::vector<std::vector<std::byte>> outputs;
  for (const TypedArray& rank : ranks) {
    outputs.push_back(in_place ? rank.bytes : std::vector<std::byte>(rank.bytes.size()));
  }
  CallOptions options{shape.codec, plan, 0};
  const auto statuses = cluster_->run([&](int rank, Communicator& communicator) {
    auto& output = outputs[static_cast<size_t>(rank)];
    const void* input = in_place ? output.data() : ranks[static_cast<size_t>(rank)].bytes.data();
    return communicator.start_all_reduce(input, output.data(), count, shape.type, shape.op,
                                         options);
  });
  const std::string where = shape_name(shape) + " plan " + std::string(plan_kind_name(plan)) +
                            " count " + std::to_string(count) + " seed " + std::to_string(seed_);
  for (const Status& status : statuses) ASSERT_TRUE(status.ok()) << status.to_string() << where;
  for (const auto& output : outputs) ASSERT_EQ(output, outputs[0]) << "ranks differ: " << where;
  const Codec* codec = find_codec(shape.codec, shape.type, shape.op).value();
  const Plan made = plan_for(Collective::kAllReduce, shape, plan, count);
  EXPECT_EQ(check_reduction(*codec, made, shape.op, ranks, outputs[0], 0, 0), "") << where;
}

void CollectiveSuite::check_reduce_scatter(const Shape& shape, PlanKind plan, size_t count) {
  const auto size = static_cast<size_t>(cluster_->size());
  const std::vector<TypedArray> ranks = random_ranks(shape.type, count * size);
  std::vector<std::vector<std::byte>> outputs(
      size, std::vector<std::byte>(count * element_bytes(shape.type)));
  CallOptions options{shape.codec, plan, 0};
  const auto statuses = cluster_->run([&](int rank, Communicator& communicator) {
    return communicator.start_reduce_scatter(ranks[static_cast<size_t>(rank)].bytes.data(),
                                             outputs[static_cast<size_t>(rank)].data(), count,
                                             shape.type, shape.op, options);
  });
  const Codec* codec = find_codec(shape.codec, shape.type, shape.op).value();
  const Plan made = plan_for(Collective::kReduceScatter, shape, plan, count * size);
  for (size_t r = 0; r < size; ++r) {
    ASSERT_TRUE(statuses[r].ok()) << statuses[r].to_string();
    EXPECT_EQ(check_reduction(*codec, made, shape.op, ranks, outputs[r], r * count,
                              std::max<size_t>(count, 1)),
              "")
        << shape_name(shape) << " rank " << r << " count " << count << " seed " << seed_;
  }
}

TEST_P(CollectiveSuite, AllReduceOfEveryShape) {
  constexpr PlanKind kPlans[] = {PlanKind::kAuto,
                                 PlanKind::kTwoStep,
                                 PlanKind::kRing,
                                 PlanKind::kOneShot,
                                 PlanKind::kBidirectionalRing,
                                 PlanKind::kHalvingDoubling,
                                 PlanKind::kTorus,
                                 PlanKind::kTree,
                                 PlanKind::kHierarchical};
  constexpr size_t kCounts[] = {0, 1, 127, 1009, 40'009};
  for (const Shape& shape : kShapes) {
    for (const PlanKind plan : kPlans) {
      for (const size_t count : kCounts) {
        check_all_reduce(shape, plan, count, (count + static_cast<size_t>(plan)) % 2 == 0);
        if (HasFatalFailure()) return;
      }
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

std::string point_name(const ::testing::TestParamInfo<Point>& info) {
  return cluster_kind_name(std::get<1>(info.param)) + "_" + std::to_string(std::get<0>(info.param));
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

}  // namespace
}  // namespace tersum::testing
