// Traces: what is recorded is what was done, in a ring that does not grow, as JSON that parses.
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "runtime/trace_file.h"
#include "runtime/trace_json.h"
#include "support/cluster.h"
#include "transport/sim/sim_clock.h"

namespace tersum::testing {
namespace {

using nlohmann::json;

class FixedClock final : public Clock {
 public:
  int64_t now = 1'000;
  [[nodiscard]] int64_t now_ns() const override { return now; }
};

json to_json(const TraceRecorder& recorder, const TraceOrigin& origin) {
  std::string text;
  write_trace_json(recorder, origin, [&](std::string_view piece) { text += piece; });
  return json::parse(text);
}

TEST(TraceRecorder, AFullRingKeepsTheNewestAndCountsTheRest) {
  const FixedClock clock;
  TraceRecorder recorder(clock, 4);
  for (uint64_t call = 0; call < 11; ++call) {
    TraceEvent event;
    event.call = call;
    recorder.record(event);
  }
  ASSERT_EQ(recorder.size(), 4U);
  for (size_t i = 0; i < 4; ++i) EXPECT_EQ(recorder.at(i).call, 7 + i);
  EXPECT_EQ(recorder.dropped(), 7U);
  const json trace = to_json(recorder, {});
  const auto clock_event = std::find_if(trace.begin(), trace.end(), [](const json& event) {
    return event["name"] == "tersum_clock";
  });
  ASSERT_NE(clock_event, trace.end());
  EXPECT_EQ((*clock_event)["args"]["dropped"], 7);
}

TEST(TraceRecorder, ATakenSliceWhoseBeginWasDroppedIsLeftOut) {
  const FixedClock clock;
  TraceRecorder recorder(clock, 1);
  MessageHeader header;
  header.kind = MessageKind::kData;
  recorder.record_message(TraceKind::kQueued, header);
  recorder.on_taken(header);
  for (const json& event : to_json(recorder, {})) EXPECT_EQ(event["ph"], "M");
}

TEST(TraceJson, StrangeHostNamesAreEscaped) {
  const FixedClock clock;
  const TraceRecorder recorder(clock, 1);
  TraceOrigin origin;
  origin.host = "a\"b\\c\n";
  const json trace = to_json(recorder, origin);
  EXPECT_EQ(trace[0]["args"]["name"], "tersum rank 0 (a\"b\\c\n)");
}

TEST(TraceFile, PathsOfSeveralRanksAreDistinct) {
  EXPECT_EQ(expand_trace_path("t.json", 0, 1, 42), "t.json");
  EXPECT_EQ(expand_trace_path("t.json", 3, 8, 42), "t.r3.json");
  EXPECT_EQ(expand_trace_path("dir.d/t", 3, 8, 42), "dir.d/t.r3");
  EXPECT_EQ(expand_trace_path("dir/.t", 3, 8, 42), "dir/.t.r3");
  EXPECT_EQ(expand_trace_path("t.%r.%p.json", 3, 8, 42), "t.3.42.json");
  EXPECT_EQ(expand_trace_path("%", 0, 1, 42), "%");
}

TEST(TraceFile, WritesWholeAndAgain) {
  const FixedClock clock;
  const std::string path = ::testing::TempDir() + "tersum_trace_test/new/t.json";
  auto file = TraceFile::open(path, 0, 1, 100, clock);
  ASSERT_TRUE(file.ok()) << file.status().to_string();
  for (size_t spans = 0; spans < 3; ++spans) {
    const Status written = file.value()->write();
    ASSERT_TRUE(written.ok()) << written.to_string();
    const json trace = json::parse(std::ifstream(path));
    EXPECT_EQ(std::count_if(trace.begin(), trace.end(),
                            [](const json& event) { return event["ph"] == "X"; }),
              static_cast<ptrdiff_t>(spans));
    file.value()->recorder().record_sleep(500);
  }
}

TEST(TraceFile, AFolderThatCannotBeWrittenIsSaidAtOnce) {
  const FixedClock clock;
  const auto file = TraceFile::open("/proc/tersum/t.json", 0, 1, 100, clock);
  EXPECT_EQ(file.status().code(), StatusCode::kUnavailable);
  EXPECT_NE(file.status().message().find("/proc/tersum/t.json"), std::string_view::npos);
}

class Trace : public ::testing::TestWithParam<ClusterKind> {
 protected:
  static constexpr size_t kCount = 300'007;
  static constexpr int kRanks = 3;
};

// Sums over all ranks what the traces say, per event name, and holds it against the statistics.
TEST_P(Trace, SlicesAreAllThereOnceAndBytesAddUp) {
  ClusterOptions options;
  options.kind = GetParam();
  options.size = kRanks;
  options.trace_events = 100'000;
  Cluster cluster(options);
  std::vector<std::vector<float>> data(kRanks, std::vector<float>(kCount, 1.5F));
  const auto statuses = cluster.run([&](int rank, Communicator& communicator) {
    auto& values = data[static_cast<size_t>(rank)];
    return communicator.start_all_reduce(values.data(), values.data(), kCount, DataType::kFloat32,
                                         ReduceOp::kSum, {"int8", PlanKind::kTwoStep, 0});
  });
  for (const Status& status : statuses) ASSERT_TRUE(status.ok()) << status.to_string();
  uint64_t sent = 0;
  for (int rank = 0; rank < kRanks; ++rank) {
    sent += cluster.at(rank).stats().wire_bytes_sent;
    cluster.at(rank).close();
  }
  std::map<std::string, uint64_t> bytes;
  std::map<std::string, int> events;
  std::set<std::string> open;
  const int processes = cluster.process_of(kRanks - 1) + 1;
  for (int process = 0; process < processes; ++process) {
    double last = 0;
    TraceOrigin origin;
    origin.process = process;
    for (const json& event : to_json(cluster.trace(process), origin)) {
      const std::string name = event["name"], phase = event["ph"];
      if (phase == "M") continue;
      ++events[name + phase];
      if (event.contains("args") && event["args"].contains("bytes")) {
        bytes[name] += event["args"]["bytes"].get<uint64_t>();
      }
      if (phase == "b") {
        EXPECT_TRUE(open.insert(event["id"]).second) << event;
      } else if (phase == "e") {
        EXPECT_EQ(open.erase(event["id"]), 1U) << event;
      }
      if (event["cat"] == "codec") {
        EXPECT_GE(event["dur"].get<double>(), 0.0);
        EXPECT_GE(event["ts"].get<double>(), last) << "one thread at a time: " << event;
        last = event["ts"];
      }
    }
  }
  EXPECT_TRUE(open.empty());
  EXPECT_EQ(events["all_reduceb"], kRanks);
  EXPECT_EQ(events["readyi"], kRanks * (kRanks - 1));
  // Two-step: every contribution is encoded for its owner, combined there, and decoded by all
  // others; the sent slices are those contributions and the owner's to each of the others.
  EXPECT_EQ(events["encodeX"], (kRanks - 1) * events["combineX"]);
  EXPECT_EQ(events["decodeX"], (kRanks - 1) * events["combineX"]);
  EXPECT_EQ(events["arrivedi"], events["encodeX"] + events["decodeX"]);
  EXPECT_EQ(bytes["arrived"], sent);
  EXPECT_EQ(bytes["encode"] + bytes["decode"], sent);
  if (GetParam() == ClusterKind::kLocal) return;  // handed over, not sent: no carrier takes it
  EXPECT_EQ(events["wireb"], events["arrivedi"]);
  EXPECT_EQ(bytes["wire"], sent);
}

INSTANTIATE_TEST_SUITE_P(Kinds, Trace,
                         ::testing::Values(ClusterKind::kLocal, ClusterKind::kTcp,
                                           ClusterKind::kShm, ClusterKind::kSim),
                         [](const auto& info) { return cluster_kind_name(info.param); });

// The wire would rest for a whole exchange if the first code waited for the last scale.
TEST(Trace, CodesTravelWhileOtherScalesAreAgreedOn) {
  constexpr size_t kCount = 4'000'000;
  ClusterOptions options;
  options.kind = ClusterKind::kSim;
  options.size = 2;
  options.trace_events = 100'000;
  Cluster cluster(options);
  std::vector<std::vector<float>> data(2, std::vector<float>(kCount, 1.5F));
  const auto statuses = cluster.run([&](int rank, Communicator& communicator) {
    auto& values = data[static_cast<size_t>(rank)];
    return communicator.start_all_reduce(values.data(), values.data(), kCount, DataType::kFloat32,
                                         ReduceOp::kSum, {"lut2", PlanKind::kTwoStep, 0});
  });
  for (const Status& status : statuses) ASSERT_TRUE(status.ok()) << status.to_string();
  for (int rank = 0; rank < 2; ++rank) {
    std::map<std::string, std::vector<double>> arrived;
    for (const json& event : to_json(cluster.trace(cluster.process_of(rank)), {})) {
      if (event["name"] != "arrived" || event["args"]["rank"] != rank) continue;
      arrived[event["args"]["phase"]].push_back(event["ts"]);
    }
    ASSERT_FALSE(arrived["scale_gather"].empty());
    ASSERT_FALSE(arrived["reduce"].empty());
    EXPECT_LT(arrived["reduce"].front(), arrived["scale_gather"].back()) << "rank " << rank;
  }
}

TEST(Trace, AFailedCallSaysWhy) {
  ClusterOptions options;
  options.kind = ClusterKind::kSim;
  options.trace_events = 1'000;
  Cluster cluster(options);
  std::vector<float> values(100);
  std::vector<Work> works;
  works.push_back(cluster.at(0).start_all_reduce(values.data(), values.data(), 100,
                                                 DataType::kFloat32, ReduceOp::kSum,
                                                 {"exact", PlanKind::kAuto, 50}));
  EXPECT_EQ(cluster.finish(works)[0].code(), StatusCode::kTimeout);
  const json trace = to_json(cluster.trace(0), {});
  const auto call = std::find_if(trace.begin(), trace.end(), [](const json& event) {
    return event["name"] == "all_reduce" && event["ph"] == "b";
  });
  ASSERT_NE(call, trace.end());
  EXPECT_EQ((*call)["args"]["status"], "timeout");
  EXPECT_EQ((*call)["args"]["bytes"], 400);
}

}  // namespace
}  // namespace tersum::testing
