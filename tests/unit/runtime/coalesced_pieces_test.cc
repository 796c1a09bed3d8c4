// Coalesced tensors of codecs that take parts, which are read and written where they are: the bits
// of those that are copied into buckets.
#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "support/cluster.h"
#include "support/every_plan.h"
#include "support/streamed_bytes.h"
#include "tersum/options.h"

namespace tersum::testing {
namespace {

constexpr uint64_t kSeed = 90;

using Bytes = std::vector<std::byte>;

// The tensors of one rank, of any type.
struct Rank {
  std::vector<Bytes> inputs;
  std::vector<Bytes> outputs;
};

struct Case {
  DataType type = DataType::kFloat32;
  ReduceOp op = ReduceOp::kSum;
  std::string codec = "exact";
  PlanKind plan = PlanKind::kAuto;
};

// Any bits: infinities, numbers that are none, denormals.
std::vector<Rank> random_ranks(int ranks, const std::vector<size_t>& lengths, DataType type) {
  std::mt19937_64 random(kSeed);
  std::vector<Rank> made(static_cast<size_t>(ranks));
  for (Rank& rank : made) {
    for (const size_t length : lengths) {
      Bytes bytes(length * element_bytes(type));
      for (std::byte& byte : bytes) byte = static_cast<std::byte>(random());
      rank.outputs.emplace_back(bytes.size());
      rank.inputs.push_back(std::move(bytes));
    }
  }
  return made;
}

// With the same array as input of two tensors a bucket is copied as a whole.
std::vector<TensorRef> refer(Rank& rank, DataType type, bool copied) {
  std::vector<TensorRef> refs;
  for (size_t i = 0; i < rank.inputs.size(); ++i) {
    const size_t count = rank.inputs[i].size() / element_bytes(type);
    refs.push_back({rank.inputs[i].data(), rank.outputs[i].data(), count});
  }
  if (copied) refs[1].input = refs[0].input;
  return refs;
}

void run(Cluster& cluster, std::vector<Rank>& ranks, const Case& how, bool copied) {
  for (Rank& rank : ranks) {
    for (Bytes& output : rank.outputs) output.assign(output.size(), std::byte{0x5a});
  }
  for (const Status& status : cluster.run([&](int rank, Communicator& group) {
         return group.start_all_reduce_coalesced(
             refer(ranks[static_cast<size_t>(rank)], how.type, copied), how.type, how.op,
             {how.codec, how.plan, 0});
       })) {
    EXPECT_TRUE(status.ok()) << status.to_string();
  }
}

// By pieces and by copies on a group of `options`, over lists in which slices hold many tensors and
// tensors have several slices.
void expect_same_bits(ClusterOptions options, const std::vector<Case>& cases) {
  std::vector<size_t> lengths = {700, 700, 5'000, 1, 2, 40'000, 3'000};
  lengths.insert(lengths.end(), 30, 13);
  options.communicator.slice_bytes = 4096;
  Cluster cluster(options);
  for (const Case& how : cases) {
    std::vector<Rank> ranks = random_ranks(options.size, lengths, how.type);
    for (Rank& rank : ranks) rank.inputs[1] = rank.inputs[0];
    run(cluster, ranks, how, true);
    const std::vector<Rank> copied = ranks;
    run(cluster, ranks, how, false);
    for (const Rank& rank : ranks) {
      EXPECT_TRUE(rank.outputs == copied[0].outputs)
          << how.codec << ' ' << data_type_name(how.type) << ' ' << plan_kind_name(how.plan);
    }
  }
}

std::vector<Case> every_type() {
  std::vector<Case> cases;
  for (const DataType type : {DataType::kFloat32, DataType::kBFloat16, DataType::kFloat16,
                              DataType::kFloat64, DataType::kInt32, DataType::kInt64}) {
    for (const ReduceOp op : {ReduceOp::kSum, ReduceOp::kMax}) cases.push_back({type, op});
  }
  cases.push_back({DataType::kFloat32, ReduceOp::kAverage});
  cases.push_back({DataType::kFloat32, ReduceOp::kAverage, "bf16"});
  // Of most tensors the last few values are no whole block.
  for (const DataType type : {DataType::kFloat32, DataType::kBFloat16, DataType::kFloat16}) {
    for (const char* const codec : {"int8", "int8/32", "int4/256"}) {
      cases.push_back({type, ReduceOp::kSum, codec});
    }
  }
  cases.push_back({DataType::kFloat32, ReduceOp::kAverage, "int8"});
  return cases;
}

std::vector<Case> by_plans(std::span<const PlanKind> plans) {
  std::vector<Case> cases;
  for (const PlanKind plan : plans) {
    for (const char* const codec : {"exact", "bf16", "int8", "int4/32"}) {
      cases.push_back({DataType::kFloat32, ReduceOp::kSum, codec, plan});
    }
  }
  return cases;
}

TEST(CoalescedPieces, HaveTheBitsOfCopiesOfEveryType) {
  ClusterOptions options;
  options.kind = ClusterKind::kTcp;
  options.size = 3;
  expect_same_bits(options, every_type());
}

TEST(CoalescedPieces, HaveThemToFarPeers) {
  ClusterOptions options;
  options.kind = ClusterKind::kShm;
  options.size = 2;
  options.stores = PayloadStores::kStreamed;
  const uint64_t before = streamed_bytes();
  expect_same_bits(options, every_type());
  EXPECT_GT(streamed_bytes(), before);
}

TEST(CoalescedPieces, HaveThemByEveryPlan) {
  ClusterOptions options;
  options.kind = ClusterKind::kShm;
  options.size = 4;
  expect_same_bits(options, by_plans(kEveryPlan));
}

TEST(CoalescedPieces, HaveThemOnWires) {
  ClusterOptions options;
  options.kind = ClusterKind::kTcp;
  options.size = 4;
  options.communicator.topology = "torus2x2";
  constexpr PlanKind kPlans[] = {PlanKind::kTorus, PlanKind::kRing, PlanKind::kTree};
  expect_same_bits(options, by_plans(kPlans));
}

// More contributions than are added up at once.
TEST(CoalescedPieces, HaveThemOfManyRanks) {
  ClusterOptions options;
  options.size = 11;
  constexpr PlanKind kPlans[] = {PlanKind::kTwoStep, PlanKind::kOneShot};
  expect_same_bits(options, by_plans(kPlans));
}

// Value number `at` of the last of 200 tensors of `length`, in which rank 0 finds another when it
// has started and rank 1 has not: that one if tensors are read where they are. Nothing runs
// meanwhile.
float sum_of_a_late_change(const std::string& codec, size_t length, size_t at) {
  ClusterOptions options;
  options.kind = ClusterKind::kSim;
  Cluster cluster(options);
  std::vector<std::vector<std::vector<float>>> data(
      2, std::vector<std::vector<float>>(200, std::vector<float>(length, 1.0F)));
  std::vector<Work> works;
  for (auto& tensors : data) {
    std::vector<TensorRef> refs;
    refs.reserve(tensors.size());
    for (auto& tensor : tensors) refs.push_back({tensor.data(), tensor.data(), length});
    works.push_back(cluster.at(static_cast<int>(works.size()))
                        .start_all_reduce_coalesced(refs, DataType::kFloat32, ReduceOp::kSum,
                                                    {codec, PlanKind::kTwoStep, 0}));
    if (works.size() == 1) tensors.back()[at] = 100.0F;
  }
  for (const Status& status : cluster.finish(works)) {
    EXPECT_TRUE(status.ok()) << status.to_string();
  }
  return data[1].back()[at];
}

TEST(CoalescedPieces, AreReadWhereTheyAreFrom2KiBOn) {
  EXPECT_EQ(sum_of_a_late_change("exact", 511, 510), 2.0F);
  EXPECT_EQ(sum_of_a_late_change("exact", 512, 511), 101.0F);
}

TEST(CoalescedPieces, OfBlocksAreReadWhereTheyAreButForTheirEnds) {
  EXPECT_NEAR(sum_of_a_late_change("int8/128", 600, 511), 101.0F, 1.0F);
  EXPECT_NEAR(sum_of_a_late_change("int8/128", 600, 512), 2.0F, 0.1F);
  EXPECT_NEAR(sum_of_a_late_change("int8/128", 384, 0), 2.0F, 0.1F) << "copied whole";
}

}  // namespace
}  // namespace tersum::testing
