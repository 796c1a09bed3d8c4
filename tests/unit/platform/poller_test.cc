// The poller: edges, timeouts, and wake-ups from other threads that are never lost.
#include "platform/poller.h"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <thread>
#include <vector>

#include "platform/doorbell.h"
#include "platform/system_clock.h"

namespace tersum {
namespace {

constexpr int64_t kSecondNs = 1'000'000'000;

struct Pair {
  Pair() {
    int fds[2];
    EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fds), 0);
    a = UniqueFd(fds[0]);
    b = UniqueFd(fds[1]);
  }
  UniqueFd a;
  UniqueFd b;
};

TEST(Poller, TellsOfInputAndEnds) {
  Result<std::unique_ptr<Poller>> made = Poller::create();
  ASSERT_TRUE(made.ok());
  Poller& poller = **made;
  Pair pair;
  PollFlags flags;
  ASSERT_TRUE(poller.add(pair.a.get(), &flags).ok());
  poller.dispatch();
  EXPECT_FALSE(flags.readable);
  EXPECT_TRUE(flags.writable);
  ASSERT_EQ(write(pair.b.get(), "x", 1), 1);
  poller.wait(10 * kSecondNs);
  EXPECT_TRUE(flags.readable);
  EXPECT_FALSE(flags.half_closed);
  flags.readable = false;
  EXPECT_EQ(poller.dispatch(), 0) << "no new edge without news";
  shutdown(pair.b.get(), SHUT_WR);
  poller.dispatch();
  EXPECT_TRUE(flags.readable);
  EXPECT_TRUE(flags.half_closed);
  EXPECT_FALSE(flags.hung_up);
  pair.b.reset();
  poller.dispatch();
  EXPECT_TRUE(flags.hung_up);
}

TEST(Poller, ARemovedDescriptorIsSilent) {
  Result<std::unique_ptr<Poller>> made = Poller::create();
  ASSERT_TRUE(made.ok());
  Poller& poller = **made;
  Pair pair;
  PollFlags flags;
  ASSERT_TRUE(poller.add(pair.a.get(), &flags).ok());
  poller.dispatch();
  poller.remove(pair.a.get());
  ASSERT_EQ(write(pair.b.get(), "x", 1), 1);
  EXPECT_EQ(poller.dispatch(), 0);
  EXPECT_FALSE(flags.readable);
}

TEST(Poller, WaitsAboutAsLongAsAsked) {
  Result<std::unique_ptr<Poller>> made = Poller::create();
  ASSERT_TRUE(made.ok());
  const SystemClock clock;
  for (const int64_t timeout_ns : {int64_t{0}, int64_t{200'000}, int64_t{5'000'000}}) {
    const int64_t start = clock.now_ns();
    (*made)->wait(timeout_ns);
    EXPECT_GE(clock.now_ns() - start, timeout_ns);
  }
}

TEST(Poller, AWakeBeforeTheWaitEndsIt) {
  Result<std::unique_ptr<Poller>> made = Poller::create();
  ASSERT_TRUE(made.ok());
  const SystemClock clock;
  const int64_t start = clock.now_ns();
  (*made)->wake();
  (*made)->wait(20 * kSecondNs);
  EXPECT_LT(clock.now_ns() - start, 10 * kSecondNs);
}

// A number is handed over with a wake-up each; a single lost one would stall for the whole timeout.
TEST(Poller, NoWakeUpIsLost) {
  Result<std::unique_ptr<Poller>> made = Poller::create();
  ASSERT_TRUE(made.ok());
  Poller& poller = **made;
  constexpr int kRounds = 20'000;
  constexpr int kWakers = 3;
  std::atomic<int> posted{0};
  std::atomic<int> taken{0};
  std::vector<std::thread> wakers;
  for (int i = 0; i < kWakers; ++i) {
    wakers.emplace_back([&] {
      for (;;) {
        int next = posted.load();
        if (next >= kRounds) return;
        // Only when the last one was taken, so that every wake-up counts.
        if (taken.load() < next) continue;
        if (posted.compare_exchange_strong(next, next + 1)) poller.wake();
      }
    });
  }
  const SystemClock clock;
  bool stalled = false;
  while (taken.load() < kRounds && !stalled) {
    const int before = posted.load();
    if (before == taken.load()) {
      const int64_t start = clock.now_ns();
      poller.wait(30 * kSecondNs);
      stalled = clock.now_ns() - start > 25 * kSecondNs;
    }
    taken.store(posted.load());
  }
  EXPECT_FALSE(stalled);
  posted.store(kRounds);
  for (std::thread& waker : wakers) waker.join();
}

TEST(Doorbell, WakesAPollerAndIsCleared) {
  Result<std::unique_ptr<Poller>> made = Poller::create();
  ASSERT_TRUE(made.ok());
  Result<UniqueFd> bell = make_doorbell();
  ASSERT_TRUE(bell.ok());
  PollFlags flags;
  ASSERT_TRUE((*made)->add(bell->get(), &flags, true).ok());
  (*made)->dispatch();
  for (int i = 0; i < 3; ++i) {
    flags.readable = false;
    ring_doorbell(bell->get());
    ring_doorbell(bell->get());
    (*made)->wait(20 * kSecondNs);
    EXPECT_TRUE(flags.readable) << i;
    clear_doorbell(bell->get());
  }
  flags.readable = false;
  EXPECT_EQ((*made)->dispatch(), 0);
}

}  // namespace
}  // namespace tersum
