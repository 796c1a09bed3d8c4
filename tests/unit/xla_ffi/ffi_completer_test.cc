#include "xla/ffi_completer.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cfenv>
#include <latch>
#include <thread>

namespace tersum::xla_ffi {
namespace {

std::fenv_t current_environment() {
  std::fenv_t environment;
  std::fegetenv(&environment);
  return environment;
}

// Each task waits for all others, as a local rendezvous of devices does: a queue would deadlock.
TEST(Completer, runs_tasks_that_wait_for_each_other) {
  constexpr int kTasks = 12;
  struct Shared {
    std::latch everybody{kTasks};
    std::latch finished{kTasks};
  } shared;
  for (int i = 0; i < kTasks; ++i) {
    Completer::instance().run({[](void* context) {
                                 auto* const both = static_cast<Shared*>(context);
                                 both->everybody.arrive_and_wait();
                                 both->finished.count_down();
                               },
                               &shared, current_environment()});
  }
  shared.finished.wait();
  EXPECT_GE(Completer::instance().thread_count(), static_cast<size_t>(kTasks));
}

TEST(Completer, reuses_its_threads) {
  struct Shared {
    std::atomic<bool> done = false;
  };
  for (int i = 0; i < 200; ++i) {
    Shared shared;
    Completer::instance().run({[](void* context) {
                                 auto& done = static_cast<Shared*>(context)->done;
                                 done = true;
                                 done.notify_all();
                               },
                               &shared, current_environment()});
    shared.done.wait(false);
  }
  // One at a time: at most as many as the other test needed, plus what had not yet gone idle.
  EXPECT_LE(Completer::instance().thread_count(), 200u / 4);
}

TEST(Completer, restores_the_floating_point_environment) {
  struct Shared {
    int rounding = -1;
    std::latch done{1};
  } shared;
  std::fesetround(FE_UPWARD);
  const std::fenv_t environment = current_environment();
  std::fesetround(FE_TONEAREST);
  Completer::instance().run({[](void* context) {
                               auto* const out = static_cast<Shared*>(context);
                               out->rounding = std::fegetround();
                               out->done.count_down();
                             },
                             &shared, environment});
  shared.done.wait();
  EXPECT_EQ(shared.rounding, FE_UPWARD);
}

}  // namespace
}  // namespace tersum::xla_ffi
