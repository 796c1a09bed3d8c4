// What the suites of collectives share: a cluster per point (group size, transport), and checks of
// one call against the float64 oracle, its bound, and the other ranks' bits.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
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

struct Shape {
  DataType type;
  ReduceOp op;
  const char* codec;
};

inline std::string shape_name(const Shape& shape) {
  std::string name(data_type_name(shape.type));
  name += "_" + std::string(reduce_op_name(shape.op)) + "_" + shape.codec;
  std::replace(name.begin(), name.end(), '/', '_');
  return name;
}

using Point = std::tuple<int, ClusterKind>;

class CollectiveFixture : public ::testing::TestWithParam<Point> {
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
      const CallOptions open{shape.codec, PlanKind::kAuto, 0};
      request.kind = cluster_->at(0).choose(collective, own, shape.type, shape.op, open)->plan;
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

inline void CollectiveFixture::check_all_reduce(const Shape& shape, PlanKind plan, size_t count,
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

inline void CollectiveFixture::check_reduce_scatter(const Shape& shape, PlanKind plan,
                                                    size_t count) {
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

inline std::string point_name(const ::testing::TestParamInfo<Point>& info) {
  return cluster_kind_name(std::get<1>(info.param)) + "_" + std::to_string(std::get<0>(info.param));
}

}  // namespace tersum::testing
