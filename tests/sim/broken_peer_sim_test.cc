// A peer whose messages are not those of any version of tersum: cut short at every byte, with bytes
// behind, twice, of another chunk or slice. The call ends on every rank in an error that names the
// sender and what it sent, and soon: long before its deadline.
#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "support/cluster.h"
#include "wire/message.h"

namespace tersum::testing {
namespace {

using Alter = std::function<int(MessageHeader&)>;

constexpr int64_t kTimeoutMs = 60'000;
constexpr size_t kCount = 150;

struct Outcome {
  std::vector<Status> statuses;
  int64_t took_ns = 0;
};

// An all_reduce of two ranks on whose messages `alter` works.
Outcome call_with(const std::string& codec, size_t count, const Alter& alter) {
  ClusterOptions options;
  options.kind = ClusterKind::kSim;
  options.seed = 7;
  options.network.reorder_probability = 0;
  options.network.alter = alter;
  options.communicator.timeout_ms = kTimeoutMs;
  options.communicator.slice_bytes = 4096;
  options.communicator.window_bytes = 16 * 1024;
  Cluster cluster(options);
  std::vector<std::vector<float>> data(2, std::vector<float>(count, 0.75F));
  const int64_t begin_ns = cluster.network().clock().now_ns();
  Outcome outcome;
  outcome.statuses = cluster.run([&](int rank, Communicator& communicator) {
    float* const values = data[static_cast<size_t>(rank)].data();
    return communicator.start_all_reduce(values, values, count, DataType::kFloat32, ReduceOp::kSum,
                                         {codec, PlanKind::kTwoStep, kTimeoutMs});
  });
  outcome.took_ns = cluster.network().clock().now_ns() - begin_ns;
  return outcome;
}

// `sender_done`: what was broken is the last that rank 1 had to send, whose call has ended by then.
void expect_named(const Outcome& outcome, const std::string& what, bool sender_done = false) {
  for (size_t rank = 0; rank < outcome.statuses.size(); ++rank) {
    const Status& status = outcome.statuses[rank];
    if (sender_done && rank == 1 && status.ok()) continue;
    EXPECT_EQ(status.code(), StatusCode::kProtocol) << status.to_string();
    const std::string text(status.message());
    EXPECT_NE(text.find("rank 1 sent " + what), std::string::npos)
        << status.to_string() << " does not say: " << what;
  }
  EXPECT_LT(outcome.took_ns, kTimeoutMs * 1'000'000 / 4);
}

using Change = std::function<void(MessageHeader&)>;

void keep(MessageHeader& /*header*/) {}

// Changes the first message of this kind, and of `phase` if it is data, that rank 1 sends; it
// arrives so often.
Alter first_of(MessageKind kind, const Change& change, int times = 1,
               std::optional<FlowPhase> phase = std::nullopt) {
  return [=, begun = false](MessageHeader& header) mutable {
    const bool is_meant = header.kind == kind && (!phase || header.phase == *phase);
    if (begun || !is_meant || header.from_rank != 1) return 1;
    begun = true;
    change(header);
    return times;
  };
}

class BrokenPeerSim : public ::testing::TestWithParam<const char*> {};

// Of contributions and of sums, and of those of scales, where ranks agree on scales first.
TEST_P(BrokenPeerSim, ASliceOfAnyOtherLengthIsNamed) {
  const std::string codec = GetParam();
  // A chunk of whole blocks for each rank.
  const bool is_long = codec.starts_with("sum") || codec.find("adaptive") != std::string::npos;
  const size_t count = is_long ? 1100 : kCount;
  for (const FlowPhase phase :
       {FlowPhase::kReduce, FlowPhase::kGather, FlowPhase::kScaleReduce, FlowPhase::kScaleGather}) {
    MessageHeader whole;
    const auto see = [&](const MessageHeader& got) { whole = got; };
    const Outcome right = call_with(codec, count, first_of(MessageKind::kData, see, 1, phase));
    for (const Status& status : right.statuses) ASSERT_TRUE(status.ok()) << status.to_string();
    const bool is_sum = plan_phase(phase) == FlowPhase::kGather;
    if (whole.payload_bytes == 0) {
      EXPECT_NE(phase, plan_phase(phase)) << "nothing was sent";
      continue;
    }
    for (uint32_t bytes = 0; bytes <= whole.payload_bytes + 3; ++bytes) {
      if (bytes == whole.payload_bytes) continue;
      const auto cut = [=](MessageHeader& got) { got.payload_bytes = bytes; };
      const Outcome broken = call_with(codec, count, first_of(MessageKind::kData, cut, 1, phase));
      expect_named(broken,
                   "slice 0 of chunk " + std::to_string(whole.chunk) + " with " +
                       std::to_string(bytes) + " bytes where it has " +
                       std::to_string(whole.payload_bytes),
                   is_sum);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Codecs, BrokenPeerSim,
                         ::testing::Values("exact", "int8/32", "int6/32+hadamard", "nvfp4",
                                           "int4/32+sparse:0.5%", "int4/32+mixed",
                                           "int8/32+rows:40", "int4/64+adaptive",
                                           "int8/32+shiftadd", "mxint8+shiftadd", "kmeans:4/32",
                                           "int4/32+clip:learned", "sum8/256", "sum8/32+rows:25",
                                           "sum8:tensor", "sum:exp", "lut2/32", "lut2/32+rows:10"));

TEST(BrokenPeer, AFlowThatThePlanDoesNotHaveIsNamed) {
  const auto other_chunk = [](MessageHeader& got) { got.chunk = 77; };
  expect_named(call_with("int8/32", kCount, first_of(MessageKind::kData, other_chunk)),
               "data of chunk 77 in a flow that the plan does not have");
}

TEST(BrokenPeer, ASliceBeyondItsWindowIsNamed) {
  const auto far_ahead = [](MessageHeader& got) { got.slice = 1000; };
  expect_named(call_with("int8/32", kCount, first_of(MessageKind::kData, far_ahead)),
               "slice 1000 of chunk 0 twice or outside its window");
}

TEST(BrokenPeer, ASliceThatComesTwiceIsNamed) {
  expect_named(call_with("int8/32", kCount, first_of(MessageKind::kData, keep, 2)),
               "slice 0 of chunk 0 twice or outside its window");
}

TEST(BrokenPeer, CreditForWhatWasNeverSentIsNamed) {
  const auto more = [](MessageHeader& got) { got.slice += 5000; };
  expect_named(call_with("exact", 100'000, first_of(MessageKind::kCredit, more)), "credit for 5");
}

TEST(BrokenPeer, ADescriptorCutShortOrSentTwiceIsNamed) {
  for (uint32_t bytes : {0U, 1U, 8U, 63U}) {
    const auto cut = [=](MessageHeader& got) { got.payload_bytes = bytes; };
    expect_named(call_with("int8/32", kCount, first_of(MessageKind::kReady, cut)),
                 "an unreadable descriptor");
  }
  expect_named(call_with("int8/32", kCount, first_of(MessageKind::kReady, keep, 2)),
               "a second descriptor");
}

}  // namespace
}  // namespace tersum::testing
