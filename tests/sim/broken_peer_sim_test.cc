// A peer whose messages are not those of any version of tersum: cut short at every byte, with bytes
// behind, twice, of another chunk or slice. The call ends on every rank in an error that names the
// sender and what it sent, and soon: long before its deadline.
#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>

#include "broken_calls.h"
#include "wire/message.h"

namespace tersum::testing {
namespace {

constexpr size_t kCount = 150;

using Outcome = BrokenGroup::Outcome;

// An all_reduce of two ranks on whose messages `alter` works, after those that it learns from.
Outcome call_with(const BrokenCase& broken, const Alter& alter) {
  BrokenGroup group(2, alter);
  group.learn(broken);
  return group.call(broken.codec, broken.count, 1);
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
  EXPECT_LT(outcome.took_ns, kBrokenTimeoutMs * 1'000'000 / 4);
}

using Change = std::function<void(MessageHeader&)>;

void keep(MessageHeader& /*header*/) {}

// Changes the first message of this kind, and of `phase` if it is data, that rank 1 sends; it
// arrives so often.
Alter first_of(MessageKind kind, const Change& change, int times = 1,
               std::optional<FlowPhase> phase = std::nullopt) {
  return [=, begun = false](MessageHeader& header, std::span<std::byte>) mutable {
    const bool is_meant = header.kind == kind && (!phase || header.phase == *phase);
    if (begun || !is_meant || header.from_rank != 1) return 1;
    begun = true;
    change(header);
    return times;
  };
}

class BrokenPeerSim : public ::testing::TestWithParam<BrokenCase> {};

// The first message of a phase that rank 1 sends in a call that nobody disturbs.
MessageHeader first_right(const BrokenCase& broken, FlowPhase phase) {
  MessageHeader whole;
  const auto see = [&](const MessageHeader& got) { whole = got; };
  const Outcome right = call_with(broken, first_of(MessageKind::kData, see, 1, phase));
  for (const Status& status : right.statuses) EXPECT_TRUE(status.ok()) << status.to_string();
  return whole;
}

// Of contributions and of sums, and of those of scales, where ranks agree on scales first.
TEST_P(BrokenPeerSim, ASliceOfAnyOtherLengthIsNamed) {
  const BrokenCase broken = GetParam();
  for (const FlowPhase phase :
       {FlowPhase::kReduce, FlowPhase::kGather, FlowPhase::kScaleReduce, FlowPhase::kScaleGather}) {
    const MessageHeader whole = first_right(broken, phase);
    const bool is_sum = plan_phase(phase) == FlowPhase::kGather;
    if (whole.payload_bytes == 0) {
      EXPECT_NE(phase, plan_phase(phase)) << "nothing was sent";
      continue;
    }
    for (uint32_t bytes = 0; bytes <= whole.payload_bytes + 3; ++bytes) {
      if (bytes == whole.payload_bytes) continue;
      const auto cut = [=](MessageHeader& got) { got.payload_bytes = bytes; };
      expect_named(call_with(broken, first_of(MessageKind::kData, cut, 1, phase)),
                   "slice 0 of chunk " + std::to_string(whole.chunk) + " with " +
                       std::to_string(bytes) + " bytes where it has " +
                       std::to_string(whole.payload_bytes),
                   is_sum);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Codecs, BrokenPeerSim, ::testing::ValuesIn(kBrokenCases));

// Or the cases that learn would be those that do not, once more.
TEST(BrokenPeer, WhatCallsHaveLearnedIsUsed) {
  int learning = 0;
  for (const BrokenCase& broken : kBrokenCases) {
    if (broken.calls_before == 0) continue;
    ++learning;
    const BrokenCase first{broken.codec, broken.count, 0};
    for (const FlowPhase phase : {FlowPhase::kReduce, FlowPhase::kGather}) {
      EXPECT_LT(first_right(broken, phase).payload_bytes, first_right(first, phase).payload_bytes)
          << broken;
    }
  }
  EXPECT_EQ(learning, 2);
}

TEST(BrokenPeer, AFlowThatThePlanDoesNotHaveIsNamed) {
  const auto other_chunk = [](MessageHeader& got) { got.chunk = 77; };
  expect_named(call_with({"int8/32", kCount}, first_of(MessageKind::kData, other_chunk)),
               "data of chunk 77 in a flow that the plan does not have");
}

TEST(BrokenPeer, ASliceBeyondItsWindowIsNamed) {
  const auto far_ahead = [](MessageHeader& got) { got.slice = 1000; };
  expect_named(call_with({"int8/32", kCount}, first_of(MessageKind::kData, far_ahead)),
               "slice 1000 of chunk 0 twice or outside its window");
}

TEST(BrokenPeer, ASliceThatComesTwiceIsNamed) {
  expect_named(call_with({"int8/32", kCount}, first_of(MessageKind::kData, keep, 2)),
               "slice 0 of chunk 0 twice or outside its window");
}

TEST(BrokenPeer, CreditForWhatWasNeverSentIsNamed) {
  const auto more = [](MessageHeader& got) { got.slice += 5000; };
  expect_named(call_with({"exact", 100'000}, first_of(MessageKind::kCredit, more)), "credit for 5");
}

TEST(BrokenPeer, ADescriptorCutShortOrSentTwiceIsNamed) {
  for (uint32_t bytes : {0U, 1U, 8U, 63U}) {
    const auto cut = [=](MessageHeader& got) { got.payload_bytes = bytes; };
    expect_named(call_with({"int8/32", kCount}, first_of(MessageKind::kReady, cut)),
                 "an unreadable descriptor");
  }
  expect_named(call_with({"int8/32", kCount}, first_of(MessageKind::kReady, keep, 2)),
               "a second descriptor");
}

}  // namespace
}  // namespace tersum::testing
