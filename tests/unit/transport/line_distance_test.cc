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
constexpr int64_t kEitherNs = 95;
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

TEST(LineDistance, IsFarAfterSixteenFarLinesAndNearAfterTwoNearOnes) {
  LineDistance distance;
  for (int i = 0; i < 15; ++i) distance.note(kFarNs);
  EXPECT_FALSE(distance.far());
  distance.note(kFarNs);
  EXPECT_TRUE(distance.far());
  distance.note(kNearNs);
  EXPECT_TRUE(distance.far());
  distance.note(kNearNs);
  EXPECT_FALSE(distance.far());
  for (int i = 0; i < 1000; ++i) distance.note(kFarNs);
  for (int i = 0; i < 3; ++i) {
    EXPECT_TRUE(distance.far());
    distance.note(kNearNs);
  }
  EXPECT_FALSE(distance.far());
}

TEST(LineDistance, TakesMoreThanOneFarLineInThreeAndMoreThanOneInTenThatInterruptsDelay) {
  // Beside lines that a near or a far peer may have written.
  const auto far_of_one_in = [](int period) {
    LineDistance distance;
    for (int i = 0; i < 400; ++i) distance.note(i % period == 0 ? kFarNs : kEitherNs);
    return distance.far();
  };
  EXPECT_TRUE(far_of_one_in(2));
  EXPECT_FALSE(far_of_one_in(4));
  LineDistance interrupted;
  for (int i = 0; i < 400; ++i) interrupted.note(i % 10 == 0 ? 20'000 : kNearNs);
  EXPECT_FALSE(interrupted.far());
}

// The share of `seen` lines, ten times in random orders, at which a peer is taken for far. `seen`:
// how many took how long, in steps of 10 ns from 0; `late` more took 250. All take `shift_ns`
// longer.
template <size_t kBins>
double share_far(const std::array<int, kBins>& seen, size_t late, int64_t shift_ns) {
  std::vector<int64_t> taken(late, 250);
  for (size_t bin = 0; bin < kBins; ++bin) {
    for (int i = 0; i < seen[bin]; ++i) taken.push_back(static_cast<int64_t>(10 * bin) + i % 10);
  }
  std::mt19937_64 random(1);
  LineDistance distance;
  size_t far = 0;
  constexpr int kRounds = 10;
  for (int round = 0; round < kRounds; ++round) {
    std::shuffle(taken.begin(), taken.end(), random);
    for (const int64_t ns : taken) {
      distance.note(ns + shift_ns);
      far += distance.far() ? 1 : 0;
    }
  }
  return static_cast<double>(far) / static_cast<double>(kRounds * taken.size());
}

// Between two cores of a mesh with one last-level cache of 480 MiB while ranks summed 16 MiB. Past
// the caches those sums took 1.35 times as long. The late ones: interrupts, and lines that were on
// their way.
TEST(LineDistance, TakesALargeMeshForNear) {
  constexpr std::array<int, 13> kSeen{109, 9, 95, 136, 23, 72, 418, 715, 887, 726, 317, 79, 25};
  EXPECT_EQ(share_far(kSeen, 168, 0), 0);
  EXPECT_LT(share_far(kSeen, 168, 10), 0.1);
}

// Between ranks of which four, and eight, shared two cores of a mesh with one last-level cache of
// 260 MiB while they summed 16 MiB. Past the caches those sums took 1.1 and 1.2 times as long. The
// late lines had been evicted.
TEST(LineDistance, TakesRanksThatShareCoresForNear) {
  constexpr std::array<int, 25> kFour{1426, 122, 456, 214, 49,  352, 1357, 2272, 2202,
                                      1257, 555, 227, 125, 118, 107, 98,   93,   73,
                                      96,   58,  52,  34,  23,  26,  23};
  EXPECT_EQ(share_far(kFour, 100, 0), 0);
  constexpr std::array<int, 25> kEight{283,  278,  334, 376, 386, 605, 1285, 1339, 1434,
                                       1606, 1177, 698, 590, 506, 394, 283,  293,  278,
                                       207,  168,  163, 107, 54,  39,  14};
  EXPECT_LT(share_far(kEight, 150, 0), 0.01);
  EXPECT_LT(share_far(kEight, 150, 10), 0.01);
  // Of the four, two that shared one core: in its own caches, or evicted to memory.
  constexpr std::array<int, 32> kOneCore{76, 5,  55, 65, 9,  2,  7,  5,  5,  17, 26,
                                         23, 24, 26, 25, 5,  3,  6,  9,  11, 15, 18,
                                         15, 11, 14, 30, 34, 36, 46, 30, 14, 8};
  EXPECT_LT(share_far(kOneCore, 60, 0), 0.15);
}

// Between two cores of one chiplet of a Zen 4 while ranks summed 16 MiB, and between such of two
// chiplets, with sums of 16 and of 64 MiB. In the caches those of 16 took 3.5 times as long. Lines
// of less than 20 ns had been fetched ahead.
TEST(LineDistance, TellsChipletsApart) {
  constexpr std::array<int, 17> kFar{20, 11,  0,   0,   0,   1,  0,  0, 2,
                                     24, 295, 736, 960, 763, 87, 24, 11};
  EXPECT_GT(share_far(kFar, 55, 0), 0.98);
  EXPECT_GT(share_far(kFar, 55, -10), 0.95);
  constexpr std::array<int, 19> kFarLarge{18, 13,  0,  0,  0, 0, 0, 1, 1, 51,
                                          76, 116, 65, 12, 3, 2, 0, 0, 1};
  EXPECT_GT(share_far(kFarLarge, 2, 0), 0.9);
  EXPECT_GT(share_far(kFarLarge, 2, 10), 0.9);
  EXPECT_GT(share_far(kFarLarge, 2, -10), 0.7);
}

TEST(LineDistance, IsWhatTheFirstLookTakesLongerThanTheSecond) {
  constexpr std::byte kLine{};
  for (const int64_t line_ns : {kNearNs, kFarNs}) {
    SlowingClock clock;
    clock.line_ns = line_ns;
    LineDistance distance;
    for (int i = 0; i < 16; ++i) distance.time(clock, &kLine);
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
