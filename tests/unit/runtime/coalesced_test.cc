// all_reduce_coalesced: every tensor as if reduced alone, whatever travels in one bucket with it.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <numeric>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "runtime/coalesced_call.h"
#include "support/cluster.h"

namespace tersum::testing {
namespace {

using Tensors = std::vector<std::vector<float>>;

// Lengths that meet every edge: nothing, less than a block, a block, a bucket's end, and tensors so
// large that they travel alone.
std::vector<size_t> awkward_lengths(uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<size_t> lengths = {0,      1,      127,    128, 129,    5'000, 0, 65'536,
                                 65'535, 65'537, 63'999, 1,   70'001, 0,     3};
  for (int i = 0; i < 300; ++i) lengths.push_back(random() % 3'000);
  lengths.push_back(262'144);
  lengths.push_back(2);
  return lengths;
}

// Whole numbers, so that a sum in float is exact.
Tensors make_tensors(const std::vector<size_t>& lengths, uint64_t seed) {
  std::mt19937_64 random(seed);
  Tensors tensors;
  for (const size_t length : lengths) {
    std::vector<float> values(length);
    for (float& value : values) value = static_cast<float>(random() % 2001) - 1000.0F;
    tensors.push_back(std::move(values));
  }
  return tensors;
}

std::vector<TensorRef> refer(const Tensors& inputs, Tensors& outputs) {
  std::vector<TensorRef> refs;
  refs.reserve(inputs.size());
  for (size_t i = 0; i < inputs.size(); ++i) {
    refs.push_back({inputs[i].data(), outputs[i].data(), inputs[i].size()});
  }
  return refs;
}

class Coalesced : public ::testing::TestWithParam<ClusterKind> {
 protected:
  static constexpr int kRanks = 3;
  static constexpr uint64_t kSeed = 4711;

  static ClusterOptions options_of(ClusterKind kind, int64_t timeout_ms = 20'000) {
    ClusterOptions options;
    options.kind = kind;
    options.size = kRanks;
    options.communicator.timeout_ms = timeout_ms;
    return options;
  }

  void make(const std::vector<size_t>& lengths) {
    for (uint64_t rank = 0; rank < kRanks; ++rank) {
      inputs_.push_back(make_tensors(lengths, kSeed + rank));
      outputs_.push_back(inputs_.back());
      for (auto& values : outputs_.back()) values.assign(values.size(), -7.0F);
    }
  }

  Work start(int rank, Communicator& communicator, ReduceOp op, const CallOptions& options) {
    const auto index = static_cast<size_t>(rank);
    return communicator.start_all_reduce_coalesced(refer(inputs_[index], outputs_[index]),
                                                   DataType::kFloat32, op, options);
  }

  static void run_or_fail(Cluster& cluster, const std::function<Work(int, Communicator&)>& call) {
    for (const Status& status : cluster.run(call)) {
      EXPECT_TRUE(status.ok()) << status.to_string();
    }
  }

  std::vector<Tensors> inputs_;
  std::vector<Tensors> outputs_;
};

// Copies the tensors into `buffer`, one behind another; outputs lie `shift` values behind inputs.
std::vector<TensorRef> views(const Tensors& tensors, std::vector<float>& buffer, size_t shift) {
  buffer.clear();
  for (const auto& values : tensors) buffer.insert(buffer.end(), values.begin(), values.end());
  buffer.resize(buffer.size() + shift);
  std::vector<TensorRef> refs;
  float* at = buffer.data();
  for (const auto& values : tensors) {
    refs.push_back({at, at + shift, values.size()});
    at += values.size();
  }
  return refs;
}

Tensors split(const std::vector<float>& buffer, size_t from, const std::vector<size_t>& lengths) {
  Tensors tensors;
  auto at = buffer.begin() + static_cast<std::ptrdiff_t>(from);
  for (const size_t length : lengths) {
    const auto end = at + static_cast<std::ptrdiff_t>(length);
    tensors.emplace_back(at, end);
    at = end;
  }
  return tensors;
}

TEST_P(Coalesced, ExactSumsOfEveryLength) {
  Cluster cluster(options_of(GetParam()));
  make(awkward_lengths(kSeed));
  for (int repeat = 0; repeat < 2; ++repeat) {
    for (const Status& status : cluster.run([&](int rank, Communicator& communicator) {
           return start(rank, communicator, ReduceOp::kSum, {"exact", PlanKind::kAuto, 0});
         })) {
      ASSERT_TRUE(status.ok()) << status.to_string();
    }
    for (size_t t = 0; t < inputs_[0].size(); ++t) {
      for (size_t i = 0; i < inputs_[0][t].size(); ++i) {
        const float sum = inputs_[0][t][i] + inputs_[1][t][i] + inputs_[2][t][i];
        ASSERT_EQ(outputs_[0][t][i], sum) << "tensor " << t << " element " << i;
      }
      ASSERT_EQ(outputs_[1][t], outputs_[0][t]);
      ASSERT_EQ(outputs_[2][t], outputs_[0][t]);
    }
  }
}

TEST_P(Coalesced, EachTensorKeepsItsOwnBoundBesideALargeNeighbour) {
  Cluster cluster(options_of(GetParam()));
  make(awkward_lengths(kSeed));
  // Every second tensor is a million times as large.
  for (Tensors& tensors : inputs_) {
    for (size_t t = 0; t < tensors.size(); t += 2) {
      for (float& value : tensors[t]) value *= 1e6F;
    }
  }
  for (const Status& status : cluster.run([&](int rank, Communicator& communicator) {
         return start(rank, communicator, ReduceOp::kAverage, {"int8/128", PlanKind::kAuto, 0});
       })) {
    ASSERT_TRUE(status.ok()) << status.to_string();
  }
  for (size_t t = 0; t < inputs_[0].size(); ++t) {
    const double scale = t % 2 == 0 ? 1e9 : 1e3;
    const double bound = cluster.at(0)
                             .error_bound("int8/128", PlanKind::kRing, inputs_[0][t].size(),
                                          DataType::kFloat32, scale, kRanks * scale)
                             .value() /
                         kRanks;
    for (size_t i = 0; i < inputs_[0][t].size(); ++i) {
      const double sum =
          static_cast<double>(inputs_[0][t][i]) + inputs_[1][t][i] + inputs_[2][t][i];
      ASSERT_LE(std::abs(outputs_[0][t][i] - sum / kRanks), bound + scale * 1e-6)
          << "tensor " << t << " element " << i;
    }
    ASSERT_EQ(outputs_[1][t], outputs_[0][t]);
    ASSERT_EQ(outputs_[2][t], outputs_[0][t]);
  }
}

TEST_P(Coalesced, InPlaceManyAtOnceAndBesideOtherCalls) {
  Cluster cluster(options_of(GetParam()));
  constexpr size_t kCalls = 5;
  std::vector<std::vector<Tensors>> data(kRanks, std::vector<Tensors>(kCalls));
  std::vector<Tensors> plain(kRanks, Tensors(kCalls, std::vector<float>(10'000, 1.0F)));
  std::vector<Work> works;
  const CallOptions exact{"exact", PlanKind::kAuto, 0};
  for (int rank = 0; rank < kRanks; ++rank) {
    const auto r = static_cast<size_t>(rank);
    for (size_t call = 0; call < kCalls; ++call) {
      Tensors& tensors = data[r][call];
      tensors.assign(100 + 300 * call, std::vector<float>(1'000, static_cast<float>(call + 1)));
      works.push_back(cluster.at(rank).start_all_reduce_coalesced(
          refer(tensors, tensors), DataType::kFloat32, ReduceOp::kSum, exact));
      works.push_back(cluster.at(rank).start_all_reduce(plain[r][call].data(),
                                                        plain[r][call].data(), 10'000,
                                                        DataType::kFloat32, ReduceOp::kSum, exact));
    }
  }
  for (const Status& status : cluster.finish(works)) {
    ASSERT_TRUE(status.ok()) << status.to_string();
  }
  for (const auto& calls : data) {
    for (size_t call = 0; call < kCalls; ++call) {
      const std::vector<float> wanted(1'000, static_cast<float>(kRanks * (call + 1)));
      for (const auto& tensor : calls[call]) ASSERT_EQ(tensor, wanted);
    }
  }
  for (const auto& calls : plain) {
    for (const auto& values : calls) EXPECT_EQ(values[9'999], kRanks);
  }
}

// Tensors that are views of one buffer are not copied; the others' lie where they like.
TEST_P(Coalesced, ViewsOfOneBufferGiveTheBitsOfScatteredTensors) {
  // More than a bucket of 4 KiB each; at the end some whose lengths leave no view at a block.
  std::vector<size_t> lengths(300, 1024);
  lengths.insert(lengths.end(), {1000, 24, 2048});
  make(lengths);
  const size_t total = std::accumulate(lengths.begin(), lengths.end(), size_t{0});
  Cluster cluster(options_of(GetParam()));
  for (const char* const codec : {"exact", "int8/128"}) {
    run_or_fail(cluster, [&](int rank, Communicator& communicator) {
      return start(rank, communicator, ReduceOp::kSum, {codec});
    });
    const Tensors scattered = outputs_[0];
    for (const size_t shift : {size_t{0}, total}) {
      std::vector<std::vector<float>> buffers(kRanks);
      run_or_fail(cluster, [&](int rank, Communicator& communicator) {
        if (rank == 1) return start(rank, communicator, ReduceOp::kSum, {codec});
        auto& buffer = buffers[static_cast<size_t>(rank)];
        const auto refs = views(inputs_[static_cast<size_t>(rank)], buffer, shift);
        return communicator.start_all_reduce_coalesced(refs, DataType::kFloat32, ReduceOp::kSum,
                                                       {codec});
      });
      EXPECT_EQ(outputs_[1], scattered) << codec;
      EXPECT_EQ(split(buffers[0], shift, lengths), scattered) << codec << ", shift " << shift;
      EXPECT_EQ(split(buffers[2], shift, lengths), scattered) << codec << ", shift " << shift;
    }
  }
}

// Outputs that lie on other tensors' inputs: all inputs of a bucket are read before one is written.
TEST_P(Coalesced, ViewsThatOverlapAreCopied) {
  const std::vector<size_t> lengths(20, 1024);
  make(lengths);
  Cluster cluster(options_of(GetParam()));
  run_or_fail(cluster, [&](int rank, Communicator& communicator) {
    return start(rank, communicator, ReduceOp::kSum, {"exact"});
  });
  std::vector<std::vector<float>> buffers(kRanks);
  run_or_fail(cluster, [&](int rank, Communicator& communicator) {
    const auto index = static_cast<size_t>(rank);
    return communicator.start_all_reduce_coalesced(views(inputs_[index], buffers[index], 100),
                                                   DataType::kFloat32, ReduceOp::kSum, {"exact"});
  });
  for (const auto& buffer : buffers) EXPECT_EQ(split(buffer, 100, lengths), outputs_[0]);
}

TEST_P(Coalesced, NothingAtAllIsStillACallThatAllMustMake) {
  Cluster cluster(options_of(GetParam()));
  for (const std::vector<size_t>& lengths : {std::vector<size_t>{}, std::vector<size_t>{0, 0}}) {
    inputs_.clear();
    outputs_.clear();
    make(lengths);
    for (const Status& status : cluster.run([&](int rank, Communicator& communicator) {
           return start(rank, communicator, ReduceOp::kSum, {});
         })) {
      EXPECT_TRUE(status.ok()) << status.to_string();
    }
  }
}

TEST_P(Coalesced, ListsThatDifferAreADisagreementAndTheGroupGoesOn) {
  Cluster cluster(options_of(GetParam()));
  // The same total, another division; and lists whose numbers of buckets differ.
  const std::vector<std::pair<std::vector<size_t>, std::vector<size_t>>> pairs = {
      {{128, 256}, {256, 128}},
      {{384}, {128, 256}},
      {std::vector<size_t>(3'000, 1'000), std::vector<size_t>(10, 1'000)},
      {{}, {1}}};
  for (const auto& [one, other] : pairs) {
    inputs_.clear();
    outputs_.clear();
    make(one);
    inputs_[1] = make_tensors(other, kSeed);
    outputs_[1] = inputs_[1];
    const auto statuses = cluster.run([&](int rank, Communicator& communicator) {
      return start(rank, communicator, ReduceOp::kSum, {});
    });
    for (const Status& status : statuses) {
      EXPECT_EQ(status.code(), StatusCode::kDisagreement) << status.to_string();
      const std::string text(status.message());
      EXPECT_NE(text.find(std::to_string(one.size()) + " tensors"), std::string::npos) << text;
      EXPECT_NE(text.find(std::to_string(other.size()) + " tensors"), std::string::npos) << text;
    }
    inputs_.clear();
    outputs_.clear();
    make({1'000, 300'000, 5});
    for (const Status& status : cluster.run([&](int rank, Communicator& communicator) {
           return start(rank, communicator, ReduceOp::kMax, {});
         })) {
      EXPECT_TRUE(status.ok()) << status.to_string();
    }
  }
}

TEST_P(Coalesced, ACoalescedAndAPlainCallDisagree) {
  Cluster cluster(options_of(GetParam()));
  make({128});
  for (const Status& status : cluster.run([&](int rank, Communicator& communicator) {
         if (rank != 2) return start(rank, communicator, ReduceOp::kSum, {});
         float* const values = inputs_[2][0].data();
         return communicator.start_all_reduce(values, values, 128, DataType::kFloat32,
                                              ReduceOp::kSum);
       })) {
    EXPECT_EQ(status.code(), StatusCode::kDisagreement) << status.to_string();
    EXPECT_NE(status.message().find("one array"), std::string_view::npos) << status.to_string();
  }
}

TEST_P(Coalesced, AMissingRankEndsEveryBucketAtTheDeadline) {
  make(awkward_lengths(kSeed));
  for (const char* const codec : {"int8/128", "exact"}) {
    Cluster cluster(options_of(GetParam(), 300));
    const auto before = inputs_;
    std::vector<Work> works;
    for (const int rank : {0, 2}) {
      works.push_back(start(rank, cluster.at(rank), ReduceOp::kSum, {codec}));
    }
    for (const Status& status : cluster.finish(works)) {
      EXPECT_EQ(status.code(), StatusCode::kTimeout) << status.to_string();
      EXPECT_NE(status.message().find("rank 1"), std::string_view::npos) << status.to_string();
    }
    EXPECT_EQ(inputs_, before);
    Work later = start(0, cluster.at(0), ReduceOp::kSum, {codec});
    std::vector<Work> laters = {later};
    EXPECT_EQ(cluster.finish(laters)[0].code(), StatusCode::kTimeout);
  }
}

TEST_P(Coalesced, BadInputNamesTheTensorAndStartsNothing) {
  Cluster cluster(options_of(GetParam()));
  std::vector<float> values(10);
  std::vector<TensorRef> tensors = {{values.data(), values.data(), 10}, {nullptr, nullptr, 1}};
  Communicator& group = cluster.at(0);
  const auto code = [&](const CallOptions& options) {
    return group.all_reduce_coalesced(tensors, DataType::kFloat32, ReduceOp::kSum, options);
  };
  EXPECT_NE(code({}).message().find("tensor 1"), std::string_view::npos);
  tensors[1] = {values.data(), values.data(), SIZE_MAX / 8};
  EXPECT_NE(code({}).message().find("tensor 1"), std::string_view::npos);
  tensors.pop_back();
  EXPECT_EQ(code({"int9", PlanKind::kAuto, 0}).code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(code({"exact", PlanKind::kAuto, -1}).code(), StatusCode::kInvalidArgument);
}

INSTANTIATE_TEST_SUITE_P(Kinds, Coalesced,
                         ::testing::Values(ClusterKind::kLocal, ClusterKind::kTcp,
                                           ClusterKind::kShm, ClusterKind::kSim),
                         [](const auto& info) { return cluster_kind_name(info.param); });

// Aborts and closes while buckets are in flight: every Work ends, and nothing is left behind.
void expect_ends(bool abort, const std::string& codec) {
  ClusterOptions options;
  options.kind = ClusterKind::kTcp;
  Cluster cluster(options);
  // Each call has its own tensors: what is in flight may be written at any time.
  std::vector<Tensors> data(6, Tensors(1'500, std::vector<float>(1'000)));
  std::vector<Work> works;
  for (int rank = 0; rank < 2; ++rank) {
    for (int call = 0; call < 3; ++call) {
      Tensors& tensors = data[works.size()];
      works.push_back(cluster.at(rank).start_all_reduce_coalesced(
          refer(tensors, tensors), DataType::kFloat32, ReduceOp::kSum, {codec}));
    }
  }
  if (abort) {
    cluster.at(0).abort("enough");
  } else {
    cluster.at(0).close();
  }
  for (size_t i = 0; i < works.size(); ++i) {
    const Status status = works[i].wait();
    EXPECT_TRUE(status.ok() || status.is_retryable()) << status.to_string();
    data[i] = {};  // nobody touches it any more
  }
}

TEST(CoalescedEnds, AbortAndCloseEndWhatIsInFlight) {
  for (const char* const codec : {"int8/128", "exact"}) {
    for (const bool abort : {true, false}) expect_ends(abort, codec);
  }
}

// The blocking form drives itself, from two threads in turn with plain calls.
TEST(CoalescedEnds, BlockingCallsOfTwoRanks) {
  ClusterOptions options;
  options.kind = ClusterKind::kShm;
  Cluster cluster(options);
  std::vector<Tensors> data(2, Tensors(2'000, std::vector<float>(1'024, 1.0F)));
  const auto body = [&](int rank) {
    auto& tensors = data[static_cast<size_t>(rank)];
    for (int i = 0; i < 5; ++i) {
      const Status status =
          cluster.at(rank).all_reduce_coalesced(refer(tensors, tensors), DataType::kFloat32,
                                                ReduceOp::kSum, {"exact", PlanKind::kAuto, 0});
      EXPECT_TRUE(status.ok()) << status.to_string();
      EXPECT_TRUE(cluster.at(rank).barrier().ok());
    }
  };
  std::thread other([&] { body(1); });
  body(0);
  other.join();
  for (const auto& tensors : data) {
    for (const auto& tensor : tensors) ASSERT_EQ(tensor[1'023], 32.0F);
  }
}

}  // namespace
}  // namespace tersum::testing
