// Far and near peers: what tells them apart, alone and in a link of shared memory.
#include "transport/shm/line_distance.h"

#include <algorithm>
#include <array>
#include <random>
#include <vector>

#include "transport/endpoint.h"

namespace tersum::testing {
namespace {

constexpr int64_t kNearNs = 50;
constexpr int64_t kFarNs = 150;

// Every look takes longer than the next by `line_ns`: as if what is looked at first came from that
// far away, whatever else looks at the clock in between.
class SlowingClock final : public Clock {
 public:
  [[nodiscard]] int64_t now_ns() const override {
    step_ns_ -= line_ns;
    return now_ns_ += step_ns_;
  }
  int64_t line_ns = kNearNs;

 private:
  mutable int64_t step_ns_ = 10'000'000;  // enough for 60,000 looks at the farthest
  mutable int64_t now_ns_ = 0;
};

TEST(LineDistance, IsFarAfterAFewFarLinesAndNearAfterManyNearOnes) {
  LineDistance distance;
  EXPECT_FALSE(distance.far());
  for (int i = 0; i < 4; ++i) distance.note(kFarNs);
  EXPECT_TRUE(distance.far());
  for (int i = 0; i < 32; ++i) distance.note(kNearNs);
  EXPECT_FALSE(distance.far());
}

TEST(LineDistance, TakesOneFarLineInFourForAFarPeerAndOneInTenForInterrupts) {
  LineDistance fetched_ahead;
  for (int i = 0; i < 400; ++i) fetched_ahead.note(i % 4 == 0 ? kFarNs : kNearNs);
  EXPECT_TRUE(fetched_ahead.far());
  LineDistance interrupted;
  for (int i = 0; i < 400; ++i) interrupted.note(i % 10 == 0 ? 20'000 : kNearNs);
  EXPECT_FALSE(interrupted.far());
}

// What lines took between two cores of a mesh with one last-level cache of 480 MiB while ranks
// summed 16 MiB: how many in each 10 ns from 0. Past the caches those sums took 1.35 times as long.
TEST(LineDistance, TakesALargeMeshForNear) {
  constexpr std::array<int, 13> kSeen{109, 9, 95, 136, 23, 72, 418, 715, 887, 726, 317, 79, 25};
  std::vector<int64_t> taken;
  for (size_t bin = 0; bin < kSeen.size(); ++bin) {
    taken.insert(taken.end(), static_cast<size_t>(kSeen[bin]), static_cast<int64_t>(10 * bin + 9));
  }
  taken.insert(taken.end(), 168, 250);  // interrupts, and lines that were on their way
  std::mt19937_64 random(1);
  std::shuffle(taken.begin(), taken.end(), random);
  LineDistance distance;
  int far = 0;
  for (const int64_t ns : taken) {
    distance.note(ns);
    far += distance.far() ? 1 : 0;
  }
  EXPECT_LT(far, static_cast<int>(taken.size() / 20));
}

TEST(LineDistance, IsWhatTheFirstLookTakesLongerThanTheSecond) {
  constexpr std::byte kLine{};
  for (const int64_t line_ns : {kNearNs, kFarNs}) {
    SlowingClock clock;
    clock.line_ns = line_ns;
    LineDistance distance;
    for (int i = 0; i < 4; ++i) distance.time(clock, &kLine);
    EXPECT_EQ(distance.far(), line_ns == kFarNs);
  }
}

// Messages from a to b; then whether b takes a for far.
bool far_after(Endpoint& a, Endpoint& b, Link* link, size_t messages) {
  const std::array<std::byte, 8> bytes{};
  for (size_t i = 0; i < messages; ++i) {
    const size_t wanted = b.sink.messages.size() + 1;
    link->send(data_header(static_cast<uint32_t>(i), bytes.size()), a.payload(bytes));
    link->flush();
    EXPECT_TRUE(poll_until({&a, &b}, [&] { return b.sink.messages.size() == wanted; }));
  }
  return b.sink.ups[0]->far();
}

TEST(LineDistance, OfALinkFollowsTheLinesThatArrive) {
  SlowingClock clock;
  Endpoint a;
  Endpoint b({}, true, &clock);
  Link* link = link_up(a, b, TransportKind::kSharedMemory);
  ASSERT_NE(link, nullptr);
  EXPECT_FALSE(far_after(a, b, link, 200));
  clock.line_ns = kFarNs;
  EXPECT_TRUE(far_after(a, b, link, 200));
  clock.line_ns = kNearNs;
  EXPECT_FALSE(far_after(a, b, link, 200));
}

TEST(LineDistance, DoesNotCountWhereStoresAreNamed) {
  for (const PayloadStores stores : {PayloadStores::kCached, PayloadStores::kStreamed}) {
    SlowingClock clock;
    clock.line_ns = stores == PayloadStores::kCached ? kFarNs : kNearNs;
    Endpoint a;
    Endpoint b({}, true, &clock, stores);
    Link* link = link_up(a, b, TransportKind::kSharedMemory);
    ASSERT_NE(link, nullptr);
    EXPECT_EQ(far_after(a, b, link, 200), stores == PayloadStores::kStreamed);
  }
}

TEST(LineDistance, OfATcpLinkIsNear) {
  SlowingClock clock;
  clock.line_ns = kFarNs;
  Endpoint a;
  Endpoint b({}, true, &clock, PayloadStores::kStreamed);
  Link* link = link_up(a, b, TransportKind::kTcp);
  ASSERT_NE(link, nullptr);
  EXPECT_FALSE(far_after(a, b, link, 20));
}

}  // namespace
}  // namespace tersum::testing
