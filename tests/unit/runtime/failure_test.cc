// What a group does when a call goes wrong: disagreement, deadlines, aborts, lost peers.
#include <gtest/gtest.h>

#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include "support/cluster.h"

namespace tersum::testing {
namespace {

constexpr CallOptions kExact{"exact", PlanKind::kAuto, 0};

class Failure : public ::testing::TestWithParam<ClusterKind> {
 protected:
  Cluster make_cluster(int size, int64_t timeout_ms = 20'000) {
    ClusterOptions options;
    options.kind = GetParam();
    options.size = size;
    options.communicator.timeout_ms = timeout_ms;
    return Cluster(options);
  }

  // A sum that must work: shows that a communicator is still usable.
  void expect_usable(Cluster& cluster) {
    std::vector<std::vector<float>> data(static_cast<size_t>(cluster.size()),
                                         std::vector<float>(100, 1.0F));
    const auto statuses = cluster.run([&](int rank, Communicator& communicator) {
      auto& values = data[static_cast<size_t>(rank)];
      return communicator.start_all_reduce(values.data(), values.data(), 100, DataType::kFloat32,
                                           ReduceOp::kSum, kExact);
    });
    for (const Status& status : statuses) EXPECT_TRUE(status.ok()) << status.to_string();
    for (const auto& values : data) {
      EXPECT_EQ(values[99], static_cast<float>(cluster.size()));
    }
  }
};

bool names(const Status& status, const std::string& text) {
  return std::string(status.message()).find(text) != std::string::npos;
}

TEST_P(Failure, RanksThatDisagreeOnLengthAllHearBothValuesAndStayUsable) {
  Cluster cluster = make_cluster(3);
  std::vector<std::vector<float>> data(3, std::vector<float>(200, 1.0F));
  const auto before = data;
  std::vector<std::vector<float>> out(3, std::vector<float>(200));
  const auto statuses = cluster.run([&](int rank, Communicator& communicator) {
    const auto index = static_cast<size_t>(rank);
    return communicator.start_all_reduce(data[index].data(), out[index].data(),
                                         rank == 1 ? 99 : 100, DataType::kFloat32, ReduceOp::kSum,
                                         kExact);
  });
  for (const Status& status : statuses) {
    EXPECT_EQ(status.code(), StatusCode::kDisagreement) << status.to_string();
    EXPECT_TRUE(names(status, "99") && names(status, "100") && names(status, "rank 1"))
        << status.to_string();
  }
  EXPECT_EQ(data, before) << "inputs must be intact";
  expect_usable(cluster);
}

TEST_P(Failure, EveryArgumentIsCompared) {
  Cluster cluster = make_cluster(2);
  std::vector<std::vector<float>> data(2, std::vector<float>(64));
  // Each rank hears what differs and both values, and which rank has which.
  const auto expect = [&](const std::string& what, const std::string& value_0,
                          const std::string& value_1, auto start) {
    for (const Status& status : cluster.run(start)) {
      EXPECT_EQ(status.code(), StatusCode::kDisagreement) << what << ": " << status.to_string();
      EXPECT_TRUE(names(status, "ranks disagree on the " + what + ": rank 0 has " + value_0 +
                                    ", rank 1 has " + value_1 + ";"))
          << status.to_string();
    }
    expect_usable(cluster);
  };
  const auto reduce = [&](int rank, Communicator& communicator, DataType type, ReduceOp op,
                          const CallOptions& options) {
    float* values = data[static_cast<size_t>(rank)].data();
    return communicator.start_all_reduce(values, values, 32, type, op, options);
  };
  expect("length", "16 elements", "17 elements", [&](int rank, Communicator& communicator) {
    float* values = data[static_cast<size_t>(rank)].data();
    return communicator.start_all_reduce(values, values, rank == 0 ? 16 : 17, DataType::kFloat32,
                                         ReduceOp::kSum, kExact);
  });
  expect("data type", "float32", "int32", [&](int rank, Communicator& communicator) {
    return reduce(rank, communicator, rank == 0 ? DataType::kFloat32 : DataType::kInt32,
                  ReduceOp::kSum, kExact);
  });
  expect("operation", "sum", "max", [&](int rank, Communicator& communicator) {
    return reduce(rank, communicator, DataType::kFloat32,
                  rank == 0 ? ReduceOp::kSum : ReduceOp::kMax, kExact);
  });
  expect("codec", "int8/128", "int8/32", [&](int rank, Communicator& communicator) {
    return reduce(rank, communicator, DataType::kFloat32, ReduceOp::kSum,
                  {rank == 0 ? "int8" : "int8/32", PlanKind::kAuto, 0});
  });
  expect("plan", "ring", "two_step", [&](int rank, Communicator& communicator) {
    return reduce(rank, communicator, DataType::kFloat32, ReduceOp::kSum,
                  {"exact", rank == 0 ? PlanKind::kRing : PlanKind::kTwoStep, 0});
  });
  expect("collective", "barrier", "all_reduce", [&](int rank, Communicator& communicator) {
    if (rank == 0) return communicator.start_barrier();
    return reduce(rank, communicator, DataType::kFloat32, ReduceOp::kSum, kExact);
  });
  expect("root", "rank 0", "rank 1", [&](int rank, Communicator& communicator) {
    return communicator.start_broadcast(data[static_cast<size_t>(rank)].data(), 32,
                                        DataType::kFloat32, rank, kExact);
  });
}

TEST_P(Failure, ARankThatDoesNotCallIsNamedAtTheDeadlineAndPoisons) {
  Cluster cluster = make_cluster(3);
  std::vector<std::vector<float>> data(3, std::vector<float>(50'000));
  std::vector<Work> works;
  for (const int rank : {0, 1}) {
    float* values = data[static_cast<size_t>(rank)].data();
    works.push_back(cluster.at(rank).start_all_reduce(values, values, 50'000, DataType::kFloat32,
                                                      ReduceOp::kSum,
                                                      {"int8", PlanKind::kAuto, 300}));
  }
  for (const Status& status : cluster.finish(works)) {
    EXPECT_EQ(status.code(), StatusCode::kTimeout) << status.to_string();
    EXPECT_TRUE(names(status, "rank 2")) << status.to_string();
  }
  // The late rank hears of it at its next call, and the first cause stays.
  std::vector<Work> late;
  for (const int rank : {2, 0}) {
    float* values = data[static_cast<size_t>(rank)].data();
    late.push_back(cluster.at(rank).start_all_reduce(values, values, 50'000, DataType::kFloat32,
                                                     ReduceOp::kSum, {"int8", PlanKind::kAuto, 0}));
  }
  for (const Status& status : cluster.finish(late)) {
    EXPECT_EQ(status.code(), StatusCode::kTimeout) << status.to_string();
    EXPECT_TRUE(names(status, "rank 2")) << status.to_string();
  }
}

TEST_P(Failure, AnErrorEndsEverythingInFlightWithItsFirstCause) {
  Cluster cluster = make_cluster(3);
  std::vector<std::vector<float>> data(4, std::vector<float>(50'000));
  std::vector<Work> works;
  for (const int rank : {0, 1}) {
    Communicator& communicator = cluster.at(rank);
    for (const int64_t timeout_ms : {300, 600'000}) {
      float* values = data[works.size()].data();
      works.push_back(communicator.start_all_reduce(values, values, 50'000, DataType::kFloat32,
                                                    ReduceOp::kSum,
                                                    {"exact", PlanKind::kAuto, timeout_ms}));
    }
  }
  // Nobody waits ten minutes for a call whose group has come to its end.
  for (const Status& status : cluster.finish(works)) {
    EXPECT_EQ(status.code(), StatusCode::kTimeout) << status.to_string();
    EXPECT_TRUE(names(status, "300 ms")) << status.to_string();
  }
}

TEST_P(Failure, AbortAfterCloseAndDeadlinesBeyondAllTimeAreHarmless) {
  Cluster cluster = make_cluster(2);
  const auto statuses = cluster.run(
      [](int, Communicator& communicator) { return communicator.start_barrier(INT64_MAX); });
  for (const Status& status : statuses) EXPECT_TRUE(status.ok()) << status.to_string();
  cluster.at(0).close();
  cluster.at(0).abort("too late");
  EXPECT_EQ(cluster.at(0).barrier().code(), StatusCode::kClosed);
}

TEST_P(Failure, AbortReachesEveryRankInTheCall) {
  Cluster cluster = make_cluster(3);
  std::vector<std::vector<float>> data(3, std::vector<float>(1000));
  std::vector<Work> works;
  for (const int rank : {0, 2}) {
    float* values = data[static_cast<size_t>(rank)].data();
    works.push_back(cluster.at(rank).start_all_reduce(values, values, 1000, DataType::kFloat32,
                                                      ReduceOp::kSum, kExact));
  }
  cluster.at(1).abort("the trainer gave up");
  works.push_back(cluster.at(1).start_barrier());
  for (const Status& status : cluster.finish(works)) {
    EXPECT_EQ(status.code(), StatusCode::kAborted) << status.to_string();
    EXPECT_TRUE(names(status, "the trainer gave up")) << status.to_string();
  }
}

TEST_P(Failure, NothingIsWrittenAfterACallHasEnded) {
  Cluster cluster = make_cluster(3);
  std::vector<std::vector<float>> data(3, std::vector<float>(200'000, 1.0F));
  auto out = std::make_unique<std::vector<float>>(200'000);
  std::vector<Work> works;
  works.push_back(cluster.at(0).start_all_reduce(data[0].data(), out->data(), 200'000,
                                                 DataType::kFloat32, ReduceOp::kSum,
                                                 {"exact", PlanKind::kAuto, 100}));
  works.push_back(cluster.at(1).start_all_reduce(data[1].data(), data[1].data(), 200'000,
                                                 DataType::kFloat32, ReduceOp::kSum,
                                                 {"exact", PlanKind::kAuto, 100}));
  for (const Status& status : cluster.finish(works)) EXPECT_FALSE(status.ok());
  out.reset();  // under ASan a late write is an error
  data[0] = {};
  works = {cluster.at(2).start_all_reduce(data[2].data(), data[2].data(), 200'000,
                                          DataType::kFloat32, ReduceOp::kSum, kExact)};
  for (const Status& status : cluster.finish(works)) EXPECT_FALSE(status.ok());
}

TEST_P(Failure, ClosingLeavesTheOthersWithAnError) {
  Cluster cluster = make_cluster(3);
  expect_usable(cluster);
  cluster.at(1).close();
  std::vector<Work> works;
  works.push_back(cluster.at(0).start_barrier(5'000));
  works.push_back(cluster.at(2).start_barrier(5'000));
  for (const Status& status : cluster.finish(works)) {
    EXPECT_EQ(status.code(), StatusCode::kPeerLost) << status.to_string();
    EXPECT_TRUE(names(status, "rank 1")) << status.to_string();
  }
  float value = 0;
  EXPECT_EQ(cluster.at(1)
                .all_reduce(&value, &value, 1, DataType::kFloat32, ReduceOp::kSum, kExact)
                .code(),
            StatusCode::kClosed);
}

TEST_P(Failure, WrongArgumentsFailBeforeAnythingIsSent) {
  Cluster cluster = make_cluster(2);
  float value = 0;
  Communicator& communicator = cluster.at(0);
  const auto reduce = [&](const void* input, const CallOptions& options) {
    return communicator.all_reduce(input, &value, 1, DataType::kFloat32, ReduceOp::kSum, options);
  };
  EXPECT_EQ(reduce(nullptr, kExact).code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(reduce(&value, {"int9", PlanKind::kAuto, 0}).code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(reduce(&value, {"int8/33", PlanKind::kAuto, 0}).code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(reduce(&value, {"exact", PlanKind::kAuto, -1}).code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(communicator.broadcast(&value, 1, DataType::kFloat32, 2, kExact).code(),
            StatusCode::kInvalidArgument);
  EXPECT_EQ(communicator
                .all_gather(&value, &value, 1, DataType::kFloat32, {"exact", PlanKind::kOneShot, 0})
                .code(),
            StatusCode::kUnsupported);
  expect_usable(cluster);
}

INSTANTIATE_TEST_SUITE_P(Kinds, Failure,
                         ::testing::Values(ClusterKind::kLocal, ClusterKind::kSim,
                                           ClusterKind::kTcp, ClusterKind::kShm),
                         [](const auto& info) { return cluster_kind_name(info.param); });

}  // namespace
}  // namespace tersum::testing
