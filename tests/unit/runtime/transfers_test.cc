// What moves between single ranks: send and recv, gather, scatter, all_to_all.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <string>
#include <tuple>
#include <vector>

#include "support/cluster.h"

namespace tersum::testing {
namespace {

constexpr CallOptions kExact{"exact", PlanKind::kAuto, 0};
constexpr uint64_t kSeed = 90210;

// A value that says where it came from.
float mark(int from, int to, size_t i) {
  return static_cast<float>(from * 1'000 + to * 100) + static_cast<float>(i % 97);
}

std::vector<float> marks(int from, int to, size_t count) {
  std::vector<float> values(count);
  for (size_t i = 0; i < count; ++i) values[i] = mark(from, to, i);
  return values;
}

class Transfers : public ::testing::TestWithParam<ClusterKind> {
 protected:
  static ClusterOptions options_of(ClusterKind kind, int size, int64_t timeout_ms = 20'000) {
    ClusterOptions options;
    options.kind = kind;
    options.size = size;
    options.ranks_per_process = 2;
    options.communicator.timeout_ms = timeout_ms;
    return options;
  }

  static void expect_ok(const std::vector<Status>& statuses) {
    for (const Status& status : statuses) ASSERT_TRUE(status.ok()) << status.to_string();
  }
};

TEST_P(Transfers, EveryPairEveryLength) {
  Cluster cluster(options_of(GetParam(), 3));
  for (const size_t count : {size_t{0}, size_t{1}, size_t{1'000}, size_t{2'049}, size_t{200'003}}) {
    for (int from = 0; from < 3; ++from) {
      for (int to = 0; to < 3; ++to) {
        if (from == to) continue;
        const std::vector<float> sent = marks(from, to, count);
        std::vector<float> got(count, -1.0F);
        std::vector<Work> works = {
            cluster.at(to).start_recv(got.data(), count, DataType::kFloat32, from, 7, kExact),
            cluster.at(from).start_send(sent.data(), count, DataType::kFloat32, to, 7, kExact)};
        expect_ok(cluster.finish(works));
        ASSERT_EQ(got, sent);
      }
    }
  }
}

// Every rank sends to and receives from every other, several times per tag, and takes part in sums
// meanwhile; each rank starts in an order of its own.
TEST_P(Transfers, MixedBatchesInAnyOrderMatchByTagAndNumber) {
  constexpr int kRanks = 4;
  constexpr int kTags = 3;
  constexpr int kRepeats = 3;
  Cluster cluster(options_of(GetParam(), kRanks));
  std::mt19937_64 random(kSeed);
  struct Transfer {
    int from, to, tag;
    std::vector<float> sent, got;
  };
  std::vector<Transfer> transfers;
  for (int from = 0; from < kRanks; ++from) {
    for (int to = 0; to < kRanks; ++to) {
      for (int tag = 0; from != to && tag < kTags; ++tag) {
        for (int repeat = 0; repeat < kRepeats; ++repeat) {
          // Equal lengths per tag: only order tells the repeats apart.
          std::vector<float> sent(static_cast<size_t>(3'000 * tag + 5));
          for (float& value : sent) value = static_cast<float>(random() % 1'000'000);
          transfers.push_back({from, to, tag, sent, std::vector<float>(sent.size())});
        }
      }
    }
  }
  std::vector<std::vector<float>> sums(kRanks, std::vector<float>(50'000, 1.0F));
  std::vector<Work> works;
  for (int rank = 0; rank < kRanks; ++rank) {
    // (tag, sends, peer) in any order; the repeats of each in theirs.
    std::vector<size_t> order;
    for (size_t i = 0; i < transfers.size(); ++i) {
      if (transfers[i].from == rank || transfers[i].to == rank) order.push_back(i);
    }
    std::vector<uint64_t> salt(transfers.size() / kRepeats);
    for (uint64_t& value : salt) value = random();
    std::stable_sort(order.begin(), order.end(),
                     [&](size_t a, size_t b) { return salt[a / kRepeats] < salt[b / kRepeats]; });
    float* const values = sums[static_cast<size_t>(rank)].data();
    for (size_t i = 0; i < order.size(); ++i) {
      Transfer& transfer = transfers[order[i]];
      Communicator& communicator = cluster.at(rank);
      if (i == order.size() / 2) {
        works.push_back(communicator.start_all_reduce(values, values, 50'000, DataType::kFloat32,
                                                      ReduceOp::kSum, kExact));
      }
      if (transfer.from == rank) {
        works.push_back(communicator.start_send(transfer.sent.data(), transfer.sent.size(),
                                                DataType::kFloat32, transfer.to, transfer.tag,
                                                kExact));
      } else {
        works.push_back(communicator.start_recv(transfer.got.data(), transfer.got.size(),
                                                DataType::kFloat32, transfer.from, transfer.tag,
                                                kExact));
      }
    }
  }
  expect_ok(cluster.finish(works));
  for (const Transfer& transfer : transfers) {
    ASSERT_EQ(transfer.got, transfer.sent)
        << transfer.from << " to " << transfer.to << " tag " << transfer.tag << " seed " << kSeed;
  }
  for (const auto& values : sums) EXPECT_EQ(values[49'999], kRanks);
}

TEST_P(Transfers, ALossySendLeavesTheSendersDataAlone) {
  Cluster cluster(options_of(GetParam(), 2));
  const CallOptions int8{"int8/128", PlanKind::kAuto, 0};
  std::mt19937_64 random(kSeed);
  std::normal_distribution<float> normal;
  std::vector<float> sent(100'001);
  for (float& value : sent) value = normal(random);
  const std::vector<float> before = sent;
  std::vector<float> got(sent.size());
  std::vector<Work> works = {
      cluster.at(1).start_send(sent.data(), sent.size(), DataType::kFloat32, 0, 0, int8),
      cluster.at(0).start_recv(got.data(), got.size(), DataType::kFloat32, 1, 0, int8)};
  expect_ok(cluster.finish(works));
  EXPECT_EQ(sent, before);
  const Codec& codec = *find_codec("int8/128", DataType::kFloat32, ReduceOp::kSum).value();
  for (size_t block = 0; block < sent.size(); block += 128) {
    const size_t end = std::min(block + 128, sent.size());
    float absmax = 0;
    for (size_t i = block; i < end; ++i) absmax = std::max(absmax, std::abs(sent[i]));
    const double bound = codec.block_error_bound(static_cast<double>(absmax));
    for (size_t i = block; i < end; ++i) {
      ASSERT_LE(std::abs(static_cast<double>(got[i]) - sent[i]), bound) << "element " << i;
    }
  }
  EXPECT_NE(got, sent) << "it was quantized";
}

TEST_P(Transfers, EndsThatDisagreeNameTheCommunicatorsRanksAndGoOn) {
  Cluster cluster(options_of(GetParam(), 4));
  std::vector<float> data(100), out(100);
  std::vector<Work> works = {
      cluster.at(3).start_send(data.data(), 100, DataType::kFloat32, 2, 0, kExact),
      cluster.at(2).start_recv(out.data(), 99, DataType::kFloat32, 3, 0, kExact)};
  for (const Status& status : cluster.finish(works)) {
    EXPECT_EQ(status.code(), StatusCode::kDisagreement);
    EXPECT_NE(status.message().find("rank 2 has 99 elements, rank 3 has 100 elements"),
              std::string_view::npos)
        << status.to_string();
  }
  data = marks(3, 2, 100);
  works = {cluster.at(3).start_send(data.data(), 100, DataType::kFloat32, 2, 0, kExact),
           cluster.at(2).start_recv(out.data(), 100, DataType::kFloat32, 3, 0, kExact)};
  expect_ok(cluster.finish(works));
  EXPECT_EQ(out, data);
}

TEST_P(Transfers, AReceiverThatDoesNotComeIsNamedAndEndsTheCommunicator) {
  Cluster cluster(options_of(GetParam(), 4, 300));
  std::vector<float> data(100'000);
  std::vector<Work> works = {
      cluster.at(1).start_send(data.data(), data.size(), DataType::kFloat32, 3, 0, kExact)};
  const Status status = cluster.finish(works)[0];
  EXPECT_EQ(status.code(), StatusCode::kTimeout);
  EXPECT_NE(status.message().find("rank 3"), std::string_view::npos) << status.to_string();
  works = {cluster.at(1).start_barrier()};
  EXPECT_EQ(cluster.finish(works)[0].code(), StatusCode::kTimeout) << "poisoned by its lane";
}

TEST_P(Transfers, TwoRanksGoOnWhenAThirdHasLeft) {
  Cluster cluster(options_of(GetParam(), 3));
  cluster.at(0).close();
  std::vector<Work> works = {cluster.at(1).start_barrier(), cluster.at(2).start_barrier()};
  for (const Status& status : cluster.finish(works)) {
    EXPECT_EQ(status.code(), StatusCode::kPeerLost) << status.to_string();
  }
  const std::vector<float> sent = marks(1, 2, 10'000);
  std::vector<float> got(sent.size());
  works = {cluster.at(1).start_send(sent.data(), sent.size(), DataType::kFloat32, 2, 0, kExact),
           cluster.at(2).start_recv(got.data(), got.size(), DataType::kFloat32, 1, 0, kExact)};
  expect_ok(cluster.finish(works));
  EXPECT_EQ(got, sent);
  works = {cluster.at(1).start_send(sent.data(), sent.size(), DataType::kFloat32, 0, 0, kExact)};
  EXPECT_EQ(cluster.finish(works)[0].code(), StatusCode::kPeerLost);
}

TEST_P(Transfers, BadInput) {
  Cluster cluster(options_of(GetParam(), 2));
  std::vector<float> data(10);
  Communicator& group = cluster.at(0);
  const auto send = [&](const void* values, int to, int tag) {
    return group.send(values, 10, DataType::kFloat32, to, tag, kExact);
  };
  for (const Status& status :
       {send(data.data(), 0, 0), send(data.data(), 2, 0), send(data.data(), -1, 0),
        send(data.data(), 1, -1), send(nullptr, 1, 0),
        group.recv(nullptr, 10, DataType::kFloat32, 1, 0, kExact),
        group.scatter(nullptr, data.data(), 1, DataType::kFloat32, 0, kExact),
        group.gather(data.data(), nullptr, 1, DataType::kFloat32, 0, kExact),
        group.gather(data.data(), data.data(), 1, DataType::kFloat32, 2, kExact),
        group.all_to_all(data.data(), nullptr, 1, DataType::kFloat32, kExact)}) {
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << status.to_string();
  }
  EXPECT_NE(send(data.data(), 0, 0).message().find("another rank than 0"), std::string_view::npos);
}

TEST_P(Transfers, GatherScatterAndAllToAllOfOddLengths) {
  for (const int size : {1, 2, 3, 5}) {
    Cluster cluster(options_of(GetParam(), size));
    for (const size_t count : {size_t{0}, size_t{1}, size_t{777}, size_t{33'001}}) {
      const auto ranks = static_cast<size_t>(size);
      const int root = static_cast<int>(count % ranks);
      std::vector<std::vector<float>> all(ranks), out(ranks);
      std::vector<float> by_root, gathered(ranks * count, -1.0F);
      for (int rank = 0; rank < size; ++rank) {
        auto& own = all[static_cast<size_t>(rank)];
        for (int to = 0; to < size; ++to) {
          const std::vector<float> part = marks(rank, to, count);
          own.insert(own.end(), part.begin(), part.end());
        }
        out[static_cast<size_t>(rank)].assign(ranks * count, -1.0F);
      }
      expect_ok(cluster.run([&](int rank, Communicator& communicator) {
        const auto r = static_cast<size_t>(rank);
        return communicator.start_all_to_all(all[r].data(), out[r].data(), count,
                                             DataType::kFloat32, kExact);
      }));
      for (int rank = 0; rank < size; ++rank) {
        for (int from = 0; from < size; ++from) {
          for (size_t i = 0; i < count; ++i) {
            ASSERT_EQ(out[static_cast<size_t>(rank)][static_cast<size_t>(from) * count + i],
                      mark(from, rank, i));
          }
        }
      }
      expect_ok(cluster.run([&](int rank, Communicator& communicator) {
        return communicator.start_gather(all[static_cast<size_t>(rank)].data(),
                                         rank == root ? gathered.data() : nullptr, count,
                                         DataType::kFloat32, root, kExact);
      }));
      for (int from = 0; from < size; ++from) {
        for (size_t i = 0; i < count; ++i) {
          ASSERT_EQ(gathered[static_cast<size_t>(from) * count + i], mark(from, 0, i));
        }
      }
      expect_ok(cluster.run([&](int rank, Communicator& communicator) {
        const auto r = static_cast<size_t>(rank);
        return communicator.start_scatter(rank == root ? all[r].data() : nullptr, out[r].data(),
                                          count, DataType::kFloat32, root, kExact);
      }));
      for (int rank = 0; rank < size; ++rank) {
        for (size_t i = 0; i < count; ++i) {
          ASSERT_EQ(out[static_cast<size_t>(rank)][i], mark(root, rank, i));
        }
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Kinds, Transfers,
                         ::testing::Values(ClusterKind::kLocal, ClusterKind::kTcp,
                                           ClusterKind::kShm, ClusterKind::kSim),
                         [](const auto& info) { return cluster_kind_name(info.param); });

TEST(TransfersEnd, CloseEndsWhatIsInFlight) {
  ClusterOptions options;
  options.kind = ClusterKind::kTcp;
  Cluster cluster(options);
  std::vector<float> data(100'000);
  Work send = cluster.at(0).start_send(data.data(), data.size(), DataType::kFloat32, 1, 0, kExact);
  Work recv = cluster.at(0).start_recv(data.data(), data.size(), DataType::kFloat32, 1, 1, kExact);
  cluster.at(0).close();
  EXPECT_EQ(send.wait().code(), StatusCode::kClosed);
  EXPECT_EQ(recv.wait().code(), StatusCode::kClosed);
  EXPECT_EQ(cluster.at(0).send(data.data(), 1, DataType::kFloat32, 1, 0, kExact).code(),
            StatusCode::kClosed);
  EXPECT_EQ(Communicator().send(data.data(), 1, DataType::kFloat32, 1, 0, kExact).code(),
            StatusCode::kClosed);
}

}  // namespace
}  // namespace tersum::testing
