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

// How a rank's tensors lie in memory.
enum class Placement : uint8_t {
  kCopied,   // at odd addresses, which no kernel of the engine is given
  kApart,    // each by itself
  kInPlace,  // and its results, too
  kMixed,    // copied by every second rank
};

struct Case {
  DataType type = DataType::kFloat32;
  ReduceOp op = ReduceOp::kSum;
  std::string codec = "exact";
  PlanKind plan = PlanKind::kAuto;
};

// The tensors of one rank, of any type.
class RankTensors {
 public:
  RankTensors(const std::vector<Bytes>& inputs, bool copied, bool in_place)
      : shift_(copied ? 1 : 0), in_place_(in_place) {
    for (const Bytes& input : inputs) {
      Bytes& memory = inputs_.emplace_back(shift_, std::byte{0});
      memory.insert(memory.end(), input.begin(), input.end());
      outputs_.emplace_back(memory.size(), std::byte{0x5a});
    }
  }

  std::vector<TensorRef> refer(DataType type) {
    std::vector<TensorRef> refs;
    for (size_t i = 0; i < inputs_.size(); ++i) {
      std::byte* const input = inputs_[i].data() + shift_;
      std::byte* const output = in_place_ ? input : outputs_[i].data() + shift_;
      refs.push_back({input, output, (inputs_[i].size() - shift_) / element_bytes(type)});
    }
    return refs;
  }
  [[nodiscard]] std::vector<Bytes> results() const {
    std::vector<Bytes> results;
    for (const Bytes& memory : in_place_ ? inputs_ : outputs_) {
      results.emplace_back(memory.begin() + static_cast<ptrdiff_t>(shift_), memory.end());
    }
    return results;
  }

 private:
  size_t shift_;
  bool in_place_;
  std::vector<Bytes> inputs_;
  std::vector<Bytes> outputs_;
};

// Any bits: infinities, numbers that are none, denormals. Per rank, per tensor.
std::vector<std::vector<Bytes>> random_inputs(int ranks, const std::vector<size_t>& lengths,
                                              DataType type) {
  std::mt19937_64 random(kSeed);
  std::vector<std::vector<Bytes>> inputs(static_cast<size_t>(ranks));
  for (std::vector<Bytes>& rank : inputs) {
    for (const size_t length : lengths) {
      Bytes& bytes = rank.emplace_back(length * element_bytes(type));
      for (std::byte& byte : bytes) byte = static_cast<std::byte>(random());
    }
  }
  return inputs;
}

// Per rank the results.
std::vector<std::vector<Bytes>> run(Cluster& cluster, const std::vector<std::vector<Bytes>>& inputs,
                                    const Case& how, Placement placement) {
  std::vector<RankTensors> ranks;
  for (size_t rank = 0; rank < inputs.size(); ++rank) {
    const bool copied =
        placement == Placement::kCopied || (placement == Placement::kMixed && rank % 2 == 1);
    ranks.emplace_back(inputs[rank], copied, placement == Placement::kInPlace);
  }
  for (const Status& status : cluster.run([&](int rank, Communicator& group) {
         return group.start_all_reduce_coalesced(ranks[static_cast<size_t>(rank)].refer(how.type),
                                                 how.type, how.op, {how.codec, how.plan, 0});
       })) {
    EXPECT_TRUE(status.ok()) << status.to_string();
  }
  std::vector<std::vector<Bytes>> results;
  results.reserve(ranks.size());
  for (const RankTensors& rank : ranks) results.push_back(rank.results());
  return results;
}

// Slices hold many tensors, and tensors have several slices; many are no whole blocks.
std::vector<size_t> ragged_lengths() {
  std::vector<size_t> lengths = {700, 700, 5'000, 1, 2, 40'000, 3'000};
  lengths.insert(lengths.end(), 30, 13);
  return lengths;
}

// Copied, where they are, and either on some ranks: on a group of `options`.
void expect_same_bits(ClusterOptions options, const std::vector<Case>& cases,
                      const std::vector<size_t>& lengths = ragged_lengths()) {
  options.communicator.slice_bytes = 4096;
  Cluster cluster(options);
  for (const Case& how : cases) {
    const auto inputs = random_inputs(options.size, lengths, how.type);
    const std::vector<Bytes> copied = run(cluster, inputs, how, Placement::kCopied)[0];
    for (const Placement placement : {Placement::kApart, Placement::kInPlace, Placement::kMixed}) {
      for (const std::vector<Bytes>& results : run(cluster, inputs, how, placement)) {
        EXPECT_TRUE(results == copied)
            << how.codec << ' ' << data_type_name(how.type) << ' ' << plan_kind_name(how.plan)
            << ", placement " << static_cast<int>(placement) << ", seed " << kSeed;
      }
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

// More than one bucket under way, so that scratch is used again.
TEST(CoalescedPieces, HaveThemInManyBuckets) {
  ClusterOptions options;
  options.kind = ClusterKind::kTcp;
  options.size = 2;
  std::vector<size_t> lengths(1'500, 1'290);
  for (size_t i = 0; i < lengths.size(); i += 7) lengths[i] = i % 300;
  expect_same_bits(options,
                   {{DataType::kFloat32, ReduceOp::kSum, "int8/128"},
                    {DataType::kFloat32, ReduceOp::kSum, "exact"}},
                   lengths);
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
  EXPECT_NEAR(sum_of_a_late_change("int8/128", 512, 511), 101.0F, 1.0F);
  EXPECT_NEAR(sum_of_a_late_change("int8/128", 1'500, 1'407), 101.0F, 1.0F);
  EXPECT_NEAR(sum_of_a_late_change("int8/128", 1'500, 1'408), 2.0F, 0.1F);
  EXPECT_NEAR(sum_of_a_late_change("int8/128", 384, 0), 2.0F, 0.1F) << "copied whole";
  EXPECT_NEAR(sum_of_a_late_change("int8/128", 600, 0), 2.0F, 0.1F) << "two parts of 1.2 KiB";
}

}  // namespace
}  // namespace tersum::testing
