// The simulated network: what it promises to tests that stand on it.
#include "transport/sim/sim_network.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <random>
#include <vector>

namespace tersum {
namespace {

constexpr uint64_t kGroup = 5;
constexpr GroupToken kToken = {std::byte{9}};
constexpr int64_t kSecondNs = 1'000'000'000;

struct SimNode : TransportSink {
  explicit SimNode(SimNetwork& network) : transport(network.make_node()) {
    transport->set_sink(this);
    EXPECT_TRUE(transport->listen({}).ok());
    transport->admit(kGroup, kToken);
  }
  void on_link_up(Link& link) override { ups.push_back(&link); }
  void on_link_down(Link&, const Status& reason) override { downs.push_back(reason); }
  void on_connect_failed(ProcessId, const Status& reason) override { failures.push_back(reason); }
  void on_message(Link&, InMessage message) override {
    slices.push_back(message.header.slice);
    uint32_t value = 0;
    if (message.payload.size() >= sizeof value) {
      std::memcpy(&value, message.payload.data(), sizeof value);
      wrong += value != message.header.slice * 7;
    }
  }
  void send(Link& link, uint32_t slice, size_t bytes) {
    MessageHeader header;
    header.kind = MessageKind::kData;
    header.slice = slice;
    header.payload_bytes = static_cast<uint32_t>(bytes);
    Result<SlotRef> slot = transport->arena().reserve(bytes);
    ASSERT_TRUE(slot.ok());
    const uint32_t value = slice * 7;
    std::memcpy(slot->bytes().data(), &value, sizeof value);
    link.send(header, slot.value());
  }

  std::unique_ptr<Transport> transport;
  std::vector<Link*> ups;
  std::vector<Status> downs;
  std::vector<Status> failures;
  std::vector<uint32_t> slices;
  size_t wrong = 0;
};

// Runs until nothing moves and nothing is to come.
void settle(SimNetwork& network, const std::vector<SimNode*>& nodes) {
  for (;;) {
    bool moved = false;
    for (SimNode* node : nodes) {
      if (node->transport) moved |= node->transport->poll();
    }
    if (!moved && !network.advance_to_next_event()) return;
  }
}

void link(SimNetwork& network, SimNode& a, SimNode& b) {
  a.transport->connect(b.transport->address(), kGroup, kToken, TransportKind::kAuto,
                       network.clock().now_ns() + kSecondNs);
  settle(network, {&a, &b});
  ASSERT_EQ(a.ups.size(), 1u);
  ASSERT_EQ(b.ups.size(), 1u);
}

struct Outcome {
  std::vector<uint32_t> slices;
  int64_t end_ns = 0;
  friend bool operator==(const Outcome&, const Outcome&) = default;
};

Outcome run_once(uint64_t seed) {
  SimNetwork network(seed);
  SimNode a(network);
  SimNode b(network);
  link(network, a, b);
  constexpr uint32_t kCount = 500;
  for (uint32_t i = 0; i < kCount; ++i) {
    a.send(*a.ups[0], i, 4 + network.random().below(100'000));
  }
  EXPECT_GT(a.ups[0]->backlog_bytes(), 0u) << "the window should be full";
  settle(network, {&a, &b});
  EXPECT_EQ(a.ups[0]->backlog_bytes(), 0u);
  EXPECT_EQ(a.transport->arena().used_bytes(), 0u);
  EXPECT_EQ(b.wrong, 0u);
  std::vector<uint32_t> sorted = b.slices;
  std::sort(sorted.begin(), sorted.end());
  EXPECT_EQ(sorted.size(), kCount);
  for (uint32_t i = 0; i < sorted.size(); ++i) EXPECT_EQ(sorted[i], i);
  return {b.slices, network.clock().now_ns()};
}

TEST(TransportSim, EveryMessageArrivesOnceOutOfOrder) {
  const uint64_t seed = std::random_device()();
  SCOPED_TRACE("seed " + std::to_string(seed));
  const Outcome outcome = run_once(seed);
  EXPECT_FALSE(std::is_sorted(outcome.slices.begin(), outcome.slices.end()));
}

TEST(TransportSim, ASeedDecidesEverything) {
  const uint64_t seed = std::random_device()();
  SCOPED_TRACE("seed " + std::to_string(seed));
  EXPECT_EQ(run_once(seed), run_once(seed));
  EXPECT_NE(run_once(seed).end_ns, run_once(seed + 1).end_ns);
}

TEST(TransportSim, WithoutReorderingMessagesKeepTheirOrder) {
  SimOptions options;
  options.reorder_probability = 0;
  SimNetwork network(3, options);
  SimNode a(network);
  SimNode b(network);
  link(network, a, b);
  for (uint32_t i = 0; i < 300; ++i) a.send(*a.ups[0], i, 4 + i * 10);
  settle(network, {&a, &b});
  ASSERT_EQ(b.slices.size(), 300u);
  EXPECT_TRUE(std::is_sorted(b.slices.begin(), b.slices.end()));
}

TEST(TransportSim, BytesChangedAfterSendAreSeenChanged) {
  SimNetwork network(4);
  SimNode a(network);
  SimNode b(network);
  link(network, a, b);
  MessageHeader header;
  header.kind = MessageKind::kData;
  header.payload_bytes = 8;
  Result<SlotRef> slot = a.transport->arena().reserve(8);
  ASSERT_TRUE(slot.ok());
  std::memset(slot->bytes().data(), 0, 8);
  a.ups[0]->send(header, slot.value());
  slot->bytes()[0] = std::byte{1};
  settle(network, {&a, &b});
  EXPECT_EQ(b.wrong, 1u);
}

TEST(TransportSim, AKilledNodeIsReportedOnceToItsPeers) {
  SimNetwork network(5);
  SimNode a(network);
  SimNode b(network);
  link(network, a, b);
  for (uint32_t i = 0; i < 100; ++i) a.send(*a.ups[0], i, 1000);
  network.kill(0);
  settle(network, {&a, &b});
  ASSERT_EQ(b.downs.size(), 1u);
  EXPECT_EQ(b.downs[0].code(), StatusCode::kPeerLost);
  EXPECT_TRUE(a.downs.empty());
  EXPECT_LT(b.slices.size(), 100u);
  EXPECT_EQ(b.wrong, 0u);
  b.send(*b.ups[0], 1, 10);  // nothing happens
  settle(network, {&a, &b});
  EXPECT_EQ(b.transport->find(a.transport->self()), nullptr);
}

TEST(TransportSim, AFrozenNodeCatchesUpWhenThawed) {
  SimNetwork network(6);
  SimNode a(network);
  SimNode b(network);
  link(network, a, b);
  network.freeze(1);
  for (uint32_t i = 0; i < 50; ++i) a.send(*a.ups[0], i, 1000);
  settle(network, {&a, &b});
  EXPECT_TRUE(b.slices.empty());
  network.thaw(1);
  settle(network, {&a, &b});
  EXPECT_EQ(b.slices.size(), 50u);
}

TEST(TransportSim, ACutHoldsMessagesBackAndAHealLetsThemGo) {
  SimNetwork network(7);
  SimNode a(network);
  SimNode b(network);
  link(network, a, b);
  for (uint32_t i = 0; i < 50; ++i) a.send(*a.ups[0], i, 1000);
  network.cut(0, 1);
  network.advance_by(kSecondNs);
  a.transport->poll();
  b.transport->poll();
  EXPECT_TRUE(b.slices.empty());
  network.heal(1, 0);
  settle(network, {&a, &b});
  EXPECT_EQ(b.slices.size(), 50u);
  EXPECT_TRUE(b.downs.empty());
}

TEST(TransportSim, ALongCutTakesBothEndsDown) {
  SimNetwork network(8);
  SimNode a(network);
  SimNode b(network);
  link(network, a, b);
  a.send(*a.ups[0], 1, 1000);
  network.cut(0, 1);
  network.advance_by(121 * kSecondNs);
  settle(network, {&a, &b});
  EXPECT_EQ(a.downs.size(), 1u);
  EXPECT_EQ(b.downs.size(), 1u);
  network.heal(0, 1);
  settle(network, {&a, &b});
  EXPECT_TRUE(b.slices.empty());
  EXPECT_EQ(a.transport->arena().used_bytes(), 0u);
}

TEST(TransportSim, WrongTokenFailsAtTheDeadline) {
  SimNetwork network(9);
  SimNode a(network);
  SimNode b(network);
  const int64_t deadline = network.clock().now_ns() + kSecondNs;
  a.transport->connect(b.transport->address(), kGroup, GroupToken{}, TransportKind::kAuto,
                       deadline);
  settle(network, {&a, &b});
  ASSERT_EQ(a.failures.size(), 1u);
  EXPECT_EQ(a.failures[0].code(), StatusCode::kTimeout);
  EXPECT_TRUE(b.ups.empty());
  EXPECT_GE(network.clock().now_ns(), deadline);
}

TEST(TransportSim, SimultaneousConnectsMakeOneLink) {
  for (uint64_t seed = 0; seed < 50; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    SimNetwork network(seed);
    SimNode a(network);
    SimNode b(network);
    const int64_t deadline = network.clock().now_ns() + kSecondNs;
    a.transport->connect(b.transport->address(), kGroup, kToken, TransportKind::kAuto, deadline);
    b.transport->connect(a.transport->address(), kGroup, kToken, TransportKind::kTcp, deadline);
    settle(network, {&a, &b});
    EXPECT_EQ(a.ups.size(), 1u);
    EXPECT_EQ(b.ups.size(), 1u);
  }
}

TEST(TransportSim, ACloseArrivesAfterEverythingElse) {
  SimNetwork network(11);
  SimNode a(network);
  SimNode b(network);
  link(network, a, b);
  for (uint32_t i = 0; i < 50; ++i) a.send(*a.ups[0], i, 1000);
  a.ups[0]->close();
  a.transport.reset();  // the process ends; what it sent is still on its way
  settle(network, {&a, &b});
  EXPECT_EQ(b.slices.size(), 50u);
  ASSERT_EQ(b.downs.size(), 1u);
  EXPECT_NE(b.downs[0].message().find("left"), std::string_view::npos);
}

TEST(TransportSim, WaitMovesTheClockByAtMostItsTimeout) {
  SimNetwork network(12);
  SimNode a(network);
  const int64_t before = network.clock().now_ns();
  a.transport->wait(12345);
  EXPECT_EQ(network.clock().now_ns(), before + 12345);
}

}  // namespace
}  // namespace tersum
