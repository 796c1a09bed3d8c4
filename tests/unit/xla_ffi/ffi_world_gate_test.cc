#include "xla/ffi_world_gate.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <latch>
#include <memory>
#include <thread>
#include <vector>

#include "fake_device_world.h"

namespace tersum::xla_ffi {
namespace {

using ::tersum::testing::FakeDeviceWorld;
using ::testing::HasSubstr;
using World = Result<std::shared_ptr<DeviceWorld>>;

const std::vector<int64_t> kLocal = {2048, 2049};
const std::vector<int64_t> kGlobal = {0, 1, 2048, 2049};

struct Bootstrap {
  std::shared_ptr<FakeDeviceWorld> local = std::make_shared<FakeDeviceWorld>();
  std::shared_ptr<FakeDeviceWorld> global = std::make_shared<FakeDeviceWorld>();
  std::atomic<int> describe_calls = 0;
  std::atomic<int> global_calls = 0;
  Status describe_error;
  Status global_error;
  std::latch global_may_finish{1};

  WorldHooks hooks(int process_count = 2) {
    return {[this, process_count]() -> Result<ProcessFacts> {
              ++describe_calls;
              if (!describe_error.ok()) return describe_error;
              return ProcessFacts{process_count - 1, process_count, kLocal};
            },
            [this](const ProcessFacts&) -> World { return World(local); },
            [this](const ProcessFacts&) -> World {
              ++global_calls;
              global_may_finish.wait();
              if (!global_error.ok()) return global_error;
              return World(global);
            }};
  }
};

World ask(WorldGate& gate, std::span<const int64_t> group) {
  std::latch answered(1);
  World answer = Status(StatusCode::kInternal, "not answered");
  gate.with_world(group, [&](const World& world) {
    answer = world;
    answered.count_down();
  });
  answered.wait();
  return answer;
}

TEST(WorldGate, says_what_to_do_before_install) {
  WorldGate gate;
  const World world = ask(gate, kLocal);
  EXPECT_EQ(world.status().code(), StatusCode::kClosed);
  EXPECT_THAT(std::string(world.status().message()), HasSubstr("tersum.jax.install()"));
}

TEST(WorldGate, serves_local_groups_without_a_rendezvous) {
  Bootstrap bootstrap;
  WorldGate gate;
  gate.configure(bootstrap.hooks());
  EXPECT_EQ(ask(gate, kLocal).value(), bootstrap.local);
  EXPECT_EQ(bootstrap.global_calls, 0);
}

TEST(WorldGate, serves_local_calls_while_the_rendezvous_is_under_way) {
  Bootstrap bootstrap;
  WorldGate gate;
  gate.configure(bootstrap.hooks());
  std::atomic<int> answers = 0;
  for (int i = 0; i < 5; ++i) gate.with_world(kGlobal, [&](const World&) { ++answers; });
  while (bootstrap.global_calls == 0) std::this_thread::yield();
  EXPECT_EQ(ask(gate, kLocal).value(), bootstrap.local);
  EXPECT_EQ(answers, 0);
  bootstrap.global_may_finish.count_down();
  EXPECT_EQ(ask(gate, kGlobal).value(), bootstrap.global);
  while (answers != 5) std::this_thread::yield();
  EXPECT_EQ(bootstrap.describe_calls, 1);
  EXPECT_EQ(bootstrap.global_calls, 1);
}

TEST(WorldGate, needs_no_rendezvous_in_a_single_process) {
  Bootstrap bootstrap;
  WorldGate gate;
  gate.configure(bootstrap.hooks(/*process_count=*/1));
  EXPECT_EQ(ask(gate, kGlobal).value(), bootstrap.local);
  EXPECT_EQ(bootstrap.global_calls, 0);
}

TEST(WorldGate, keeps_the_first_cause_of_a_failed_rendezvous) {
  Bootstrap bootstrap;
  bootstrap.global_error = Status(StatusCode::kTimeout, "process 1 did not come");
  bootstrap.global_may_finish.count_down();
  WorldGate gate;
  gate.configure(bootstrap.hooks());
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(ask(gate, kGlobal).status().message(), "process 1 did not come");
  }
  EXPECT_EQ(bootstrap.global_calls, 1);
  EXPECT_TRUE(ask(gate, kLocal).ok());
}

TEST(WorldGate, reports_missing_facts_to_every_group) {
  Bootstrap bootstrap;
  bootstrap.describe_error = Status(StatusCode::kUnavailable, "no backend");
  WorldGate gate;
  gate.configure(bootstrap.hooks());
  EXPECT_EQ(ask(gate, kLocal).status().message(), "no backend");
  EXPECT_EQ(ask(gate, kGlobal).status().message(), "no backend");
}

TEST(WorldGate, starts_afresh_when_configured_again) {
  Bootstrap first;
  Bootstrap second;
  first.global_error = Status(StatusCode::kTimeout, "late");
  first.global_may_finish.count_down();
  second.global_may_finish.count_down();
  WorldGate gate;
  gate.configure(first.hooks());
  EXPECT_FALSE(ask(gate, kGlobal).ok());
  gate.configure(second.hooks());
  EXPECT_EQ(ask(gate, kGlobal).value(), second.global);
}

TEST(WorldGate, closes_its_worlds) {
  Bootstrap bootstrap;
  bootstrap.global_may_finish.count_down();
  WorldGate gate;
  gate.configure(bootstrap.hooks());
  EXPECT_TRUE(ask(gate, kGlobal).ok());
  gate.close();
  EXPECT_TRUE(bootstrap.local->closed);
  EXPECT_TRUE(bootstrap.global->closed);
  EXPECT_EQ(ask(gate, kGlobal).status().code(), StatusCode::kClosed);
}

TEST(WorldGate, a_world_that_comes_after_close_is_closed_too) {
  Bootstrap bootstrap;
  std::vector<Status> answers;
  {
    WorldGate gate;
    gate.configure(bootstrap.hooks());
    for (int i = 0; i < 2; ++i) {
      gate.with_world(kGlobal, [&](const World& world) { answers.push_back(world.status()); });
    }
    while (bootstrap.global_calls == 0) std::this_thread::yield();
    gate.close();
    // Those who wait are told at once, not when the rendezvous has ended.
    ASSERT_EQ(answers.size(), 2U);
    for (const Status& answer : answers) {
      EXPECT_EQ(answer.code(), StatusCode::kClosed);
      EXPECT_THAT(std::string(answer.message()), HasSubstr("uninstalled"));
    }
    EXPECT_TRUE(bootstrap.local->closed);
    EXPECT_FALSE(bootstrap.global->closed) << "it does not exist yet";
    bootstrap.global_may_finish.count_down();
  }  // waits for the bootstrap
  EXPECT_TRUE(bootstrap.global->closed);
  EXPECT_EQ(answers.size(), 2U) << "every waiter runs exactly once";
}

TEST(WorldGate, a_process_that_is_described_after_close_makes_no_world_to_stay) {
  Bootstrap bootstrap;
  std::latch describing(1);
  std::latch may_describe(1);
  WorldHooks hooks = bootstrap.hooks();
  hooks.describe = [&, describe = hooks.describe]() -> Result<ProcessFacts> {
    describing.count_down();
    may_describe.wait();
    return describe();
  };
  std::atomic<int> answers = 0;
  {
    WorldGate gate;
    gate.configure(std::move(hooks));
    gate.with_world(kLocal, [&](const World& world) { answers += world.ok() ? 100 : 1; });
    describing.wait();
    gate.close();
    may_describe.count_down();
  }
  EXPECT_EQ(answers, 1);
  EXPECT_TRUE(bootstrap.local->closed);
  EXPECT_EQ(bootstrap.global_calls, 0);
}

TEST(WorldGate, configured_again_during_a_bootstrap_it_still_closes_both) {
  Bootstrap first;
  Bootstrap second;
  second.global_may_finish.count_down();
  {
    WorldGate gate;
    gate.configure(first.hooks());
    gate.with_world(kGlobal, [](const World&) {});
    while (first.global_calls == 0) std::this_thread::yield();
    gate.close();
    gate.configure(second.hooks());
    EXPECT_EQ(ask(gate, kGlobal).value(), second.global);
    first.global_may_finish.count_down();
  }
  EXPECT_TRUE(first.global->closed);
  EXPECT_FALSE(second.global->closed) << "nobody has closed this one";
}

}  // namespace
}  // namespace tersum::xla_ffi
