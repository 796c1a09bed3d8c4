#include "tersum/core_distance.h"

#include <sched.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <limits>
#include <string>

#include "platform/cpu_relax.h"
#include "platform/service_thread.h"
#include "platform/system_clock.h"

namespace tersum {
namespace {

// Ten batches of 500 exchanges at 50 to 250 ns take 1 to 3 ms; the best batch is one that nothing
// interrupted.
constexpr int kBatches = 10;
constexpr uint32_t kExchanges = 500;
// Between yields; a busy CPU may run the other player only when this one gives way.
constexpr uint32_t kLooksPerYield = 20'000;
constexpr int64_t kPatienceNs = 500'000'000;

struct Court {
  alignas(64) std::atomic<uint32_t> ball{0};  // odd: the second player's turn
  alignas(64) std::atomic<bool> given_up{false};
};

struct Player {
  Court* court = nullptr;
  int cpu = 0;
  uint32_t parity = 0;  // plays when the ball's lowest bit is this
  bool placed = false;
  int64_t best_ns = std::numeric_limits<int64_t>::max();
};

bool await_ball(Court& court, uint32_t wanted, int64_t deadline_ns) {
  for (uint32_t looks = 1; court.ball.load(std::memory_order_acquire) != wanted; ++looks) {
    if (looks % kLooksPerYield != 0) continue;
    if (court.given_up.load(std::memory_order_relaxed)) return false;
    if (SystemClock().now_ns() >= deadline_ns) {
      court.given_up.store(true, std::memory_order_relaxed);
      return false;
    }
    yield_thread();
  }
  return true;
}

void play(void* context) {
  Player& player = *static_cast<Player*>(context);
  Court& court = *player.court;
  cpu_set_t cpus;
  CPU_ZERO(&cpus);
  CPU_SET(static_cast<size_t>(player.cpu), &cpus);
  player.placed = sched_setaffinity(0, sizeof cpus, &cpus) == 0;
  if (!player.placed) {
    court.given_up.store(true, std::memory_order_relaxed);
    return;
  }
  const int64_t deadline = SystemClock().now_ns() + kPatienceNs;
  uint32_t next = player.parity;
  for (int batch = 0; batch < kBatches; ++batch) {
    if (!await_ball(court, next, deadline)) return;
    const int64_t start = SystemClock().now_ns();
    for (uint32_t i = 0; i < kExchanges; ++i, next += 2) {
      if (!await_ball(court, next, deadline)) return;
      court.ball.store(next + 1, std::memory_order_release);
    }
    player.best_ns = std::min(player.best_ns, SystemClock().now_ns() - start);
  }
}

}  // namespace

Result<double> core_distance_ns(int first_cpu, int second_cpu) {
  if (first_cpu < 0 || second_cpu < 0 || first_cpu >= CPU_SETSIZE || second_cpu >= CPU_SETSIZE) {
    return invalid_argument("CPUs " + std::to_string(first_cpu) + " and " +
                            std::to_string(second_cpu) + " are not in 0.." +
                            std::to_string(CPU_SETSIZE - 1));
  }
  if (first_cpu == second_cpu) return 0.0;
  Court court;
  std::array<Player, 2> players{Player{&court, first_cpu, 0}, Player{&court, second_cpu, 1}};
  {
    std::array<ServiceThread, 2> threads;
    for (size_t i = 0; i < threads.size(); ++i) {
      if (Status started = threads[i].start(play, &players[i], "tersum-probe"); !started.ok()) {
        court.given_up.store(true, std::memory_order_relaxed);
        return started;
      }
    }
  }
  for (const Player& player : players) {
    if (!player.placed && court.given_up.load(std::memory_order_relaxed)) {
      return Status(StatusCode::kUnavailable,
                    "this process may not run on CPU " + std::to_string(player.cpu));
    }
  }
  if (players[0].best_ns == std::numeric_limits<int64_t>::max()) {
    return Status(StatusCode::kUnavailable, "the CPUs were too busy to be measured");
  }
  // An exchange is there and back.
  return static_cast<double>(players[0].best_ns) / (2.0 * kExchanges);
}

}  // namespace tersum
