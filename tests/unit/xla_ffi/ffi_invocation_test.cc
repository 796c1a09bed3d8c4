#include "xla/ffi_invocation.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <latch>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "fake_device_world.h"
#include "xla/ffi_auto_codec.h"
#include "xla/ffi_world_hooks.h"

namespace tersum::xla_ffi {
namespace {

using ::tersum::testing::FakeDeviceWorld;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using World = Result<std::shared_ptr<DeviceWorld>>;

// Two groups of two in a permuted order: {2048, 0} and {1, 2049}.
const std::vector<int64_t> kGroups = {2048, 0, 1, 2049};

class InvocationTest : public ::testing::Test {
 protected:
  InvocationTest() {
    gate_.configure({[] { return ProcessFacts{0, 1, {0, 1, 2048, 2049}}; },
                     [this](const ProcessFacts&) { return World(world_); },
                     [this](const ProcessFacts&) { return World(world_); }});
    // Later calls are answered inside start_invocation.
    std::latch ready(1);
    gate_.with_world(kGroups, [&](const World&) { ready.count_down(); });
    ready.wait();
  }

  Invocation invocation(int64_t device, std::span<const Operand> operands) {
    Invocation it;
    it.device = device;
    it.run_id = 5;
    it.groups = kGroups;
    it.group_size = 2;
    it.operation = {99, 1};
    it.codec = "int8/64";
    it.plan = "ring";
    it.timeout_ms = 1234;
    it.operands = operands;
    return it;
  }

  struct Ending {
    std::latch done{1};
    Status status;
    std::thread::id thread;
  };
  static void on_done(void* context, const Status& status) {
    auto* const ending = static_cast<Ending*>(context);
    ending->status = status;
    ending->thread = std::this_thread::get_id();
    ending->done.count_down();
  }
  void start(const Invocation& it, Ending& ending) {
    start_invocation(gate_, occurrences_, it, on_done, &ending);
  }

  std::shared_ptr<FakeDeviceWorld> world_ = std::make_shared<FakeDeviceWorld>();
  WorldGate gate_;
  OccurrenceCounter occurrences_;
};

TEST_F(InvocationTest, sums_every_operand_within_its_own_group) {
  std::vector<std::vector<float>> first(4), second(4);
  std::vector<Ending> endings(4);
  for (size_t i = 0; i < 4; ++i) {
    first[i] = {static_cast<float>(1 << i)};
    second[i] = {1.0F, 10.0F * static_cast<float>(i)};
    const std::vector<Operand> operands = {
        {first[i].data(), first[i].data(), 1, DataType::kFloat32},  // in place
        {second[i].data(), second[i].data(), 2, DataType::kFloat32},
    };
    start(invocation(kGroups[i], operands), endings[i]);
  }
  for (Ending& ending : endings) {
    ending.done.wait();
    EXPECT_TRUE(ending.status.ok()) << ending.status.to_string();
  }
  EXPECT_THAT(first, ElementsAre(ElementsAre(3), ElementsAre(3), ElementsAre(12), ElementsAre(12)));
  EXPECT_THAT(second[1], ElementsAre(2, 10));
  EXPECT_THAT(second[2], ElementsAre(2, 50));
  for (const auto& seen : world_->seen()) {
    EXPECT_EQ(seen.codec, "int8/64");
    EXPECT_EQ(seen.plan, PlanKind::kRing);
    EXPECT_EQ(seen.timeout_ms, 1234);
    EXPECT_EQ(seen.group.size(), 2u);
  }
}

// The rest of an XLA program runs where the call ends: that may not be the progress thread.
TEST_F(InvocationTest, never_ends_on_the_progress_thread) {
  std::vector<float> a(3), b(3);
  const std::vector<Operand> at_a = {{a.data(), a.data(), 3, DataType::kFloat32}};
  const std::vector<Operand> at_b = {{b.data(), b.data(), 3, DataType::kFloat32}};
  Ending ending_a, ending_b;
  start(invocation(0, at_a), ending_a);
  start(invocation(2048, at_b), ending_b);
  ending_a.done.wait();
  ending_b.done.wait();
  EXPECT_NE(ending_a.thread, world_->thread_id());
  EXPECT_NE(ending_a.thread, std::this_thread::get_id());
}

TEST_F(InvocationTest, ends_after_the_last_operand_although_the_first_failed) {
  world_->fail(Status(StatusCode::kPeerLost, "rank 1 is gone"));
  std::vector<float> values(8);
  std::vector<Operand> operands;
  for (int i = 0; i < 8; ++i) operands.push_back({&values[0], &values[0], 1, DataType::kFloat32});
  Ending ending, peer;
  start(invocation(0, operands), ending);
  operands.pop_back();  // the peer never starts the eighth
  start(invocation(2048, operands), peer);
  peer.done.wait();
  EXPECT_FALSE(ending.done.try_wait());
  // What is still open is the eighth operand; its peer comes by another route.
  const auto seen = world_->seen();
  KeyedCall eighth;
  eighth.group = seen[7].group;
  eighth.device = 2048;
  eighth.key = seen[7].key;
  eighth.input = eighth.output = &values[0];
  eighth.count = 1;
  world_->start(eighth, [](void*, const Status&) {}, nullptr);
  ending.done.wait();
  EXPECT_EQ(ending.status.code(), StatusCode::kPeerLost);
  EXPECT_THAT(std::string(ending.status.message()), HasSubstr("rank 1 is gone"));
  EXPECT_THAT(std::string(ending.status.message()), HasSubstr("device 0"));
}

TEST_F(InvocationTest, numbers_repeated_calls_of_one_run) {
  std::vector<float> values(4, 1.0F);
  for (int step = 0; step < 3; ++step) {
    Ending a, b;
    const std::vector<Operand> at_a = {{&values[0], &values[1], 1, DataType::kFloat32}};
    const std::vector<Operand> at_b = {{&values[2], &values[3], 1, DataType::kFloat32}};
    start(invocation(0, at_a), a);
    start(invocation(2048, at_b), b);
    a.done.wait();
    b.done.wait();
    EXPECT_EQ(values[1], 2.0F);
  }
  const auto seen = world_->seen();
  ASSERT_EQ(seen.size(), 6u);
  EXPECT_EQ(seen[0].key, seen[1].key);
  EXPECT_EQ(seen[2].key, seen[3].key);
  EXPECT_NE(seen[0].key, seen[2].key);
  EXPECT_NE(seen[2].key, seen[4].key);
}

// Independent operations that start in another order on every device still find each other.
TEST_F(InvocationTest, start_order_does_not_matter) {
  const unsigned seed = std::random_device()();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  constexpr size_t kOperations = 16;
  std::vector<std::vector<float>> in(2), out(2);
  std::vector<Ending> endings(2 * kOperations);
  for (size_t side = 0; side < 2; ++side) {
    in[side].resize(kOperations);
    out[side].resize(kOperations);
    std::vector<size_t> order(kOperations);
    for (size_t i = 0; i < kOperations; ++i) order[i] = i;
    std::shuffle(order.begin(), order.end(), random);
    for (const size_t i : order) {
      in[side][i] = static_cast<float>(i + 1);
      const std::vector<Operand> operands = {{&in[side][i], &out[side][i], 1, DataType::kFloat32}};
      Invocation it = invocation(side == 0 ? 0 : 2048, operands);
      it.operation.operation = static_cast<int64_t>(i);
      start(it, endings[side * kOperations + i]);
    }
  }
  for (Ending& ending : endings) ending.done.wait();
  for (size_t i = 0; i < kOperations; ++i) {
    EXPECT_EQ(out[0][i], 2.0F * static_cast<float>(i + 1));
    EXPECT_EQ(out[1][i], out[0][i]);
  }
}

TEST_F(InvocationTest, bfloat16_on_the_wire_takes_the_plan_that_rounds_once) {
  std::vector<float> a(1), b(1);
  const std::vector<Operand> at_a = {{a.data(), a.data(), 1, DataType::kFloat32}};
  const std::vector<Operand> at_b = {{b.data(), b.data(), 1, DataType::kFloat32}};
  Ending ending_a, ending_b;
  Invocation it = invocation(0, at_a);
  it.wire_bf16 = true;
  it.codec = "exact";
  start(it, ending_a);
  it.device = 2048;
  it.operands = at_b;
  start(it, ending_b);
  ending_a.done.wait();
  ending_b.done.wait();
  for (const auto& seen : world_->seen()) {
    EXPECT_EQ(seen.codec, "bf16");
    EXPECT_EQ(seen.plan, PlanKind::kTwoStep);
  }
}

TEST_F(InvocationTest, auto_within_an_error_names_its_site) {
  std::vector<std::vector<float>> values(4, std::vector<float>{1});
  std::vector<Ending> endings(4);
  for (size_t i = 0; i < 4; ++i) {
    const std::vector<Operand> operands = {
        {values[i].data(), values[i].data(), 1, DataType::kFloat32}};
    Invocation it = invocation(kGroups[i], operands);
    it.codec = "auto:0.25";
    start(it, endings[i]);
  }
  for (Ending& ending : endings) ending.done.wait();
  for (const auto& seen : world_->seen()) {
    EXPECT_EQ(seen.codec, "auto");
    EXPECT_EQ(seen.max_rel_error, 0.25);
    const auto named = choices_of_operations({{seen.site, "int8/32", 0.01, 3}, {1, "exact", 0, 1}});
    ASSERT_EQ(named.size(), 1U);
    EXPECT_EQ(named[0].operation, (OperationId{99, 1}));
    EXPECT_EQ(named[0].choice.codec, "int8/32");
  }
}

TEST_F(InvocationTest, auto_needs_an_error) {
  EXPECT_EQ(check_codec("auto:1e-2").value(), "auto:0.01");
  EXPECT_EQ(check_codec("auto:0.0100").value(), "auto:0.01");
  for (const char* wrong : {"auto", "auto:", "auto:0", "auto:-1", "auto:x", "auto:1 ", "auto:inf",
                            "auto:nan", "autos"}) {
    EXPECT_EQ(check_codec(wrong).status().code(), StatusCode::kInvalidArgument) << wrong;
  }
}

TEST_F(InvocationTest, auto_may_name_codecs) {
  EXPECT_EQ(check_codec("auto:1e-2:int6+flatten|int8").value(),
            "auto:0.01:int8/128|int6/128+flatten");
  const auto allowed = allowed_codecs("auto:0.5:int4/32+sparse:0.5%|int8").value();
  EXPECT_EQ(allowed->error, 0.5);
  EXPECT_EQ(allowed->codec, "auto:int8/128|int4/32+sparse:0.5%");
  EXPECT_EQ(allowed_codecs("auto:0.5").value()->codec, "auto");
  EXPECT_FALSE(allowed_codecs("int8").value().has_value());
  for (const char* wrong : {"auto:int8", "auto:0.1:", "auto:0.1:int8|", "auto:0.1:int8|int8/128",
                            "auto:0.1:itn8", "auto:0.1:int2+feedback", "auto:0.1:auto"}) {
    EXPECT_EQ(check_codec(wrong).status().code(), StatusCode::kInvalidArgument) << wrong;
  }
}

TEST_F(InvocationTest, without_operands_it_ends_at_once) {
  Ending ending;
  start(invocation(0, {}), ending);
  ASSERT_TRUE(ending.done.try_wait());
  EXPECT_TRUE(ending.status.ok());
  EXPECT_EQ(ending.thread, std::this_thread::get_id());
}

TEST_F(InvocationTest, tells_when_none_is_open) {
  wait_until_no_invocations();
  float a = 0, b = 0;
  const std::vector<Operand> at_a = {{&a, &a, 1, DataType::kFloat32}};
  const std::vector<Operand> at_b = {{&b, &b, 1, DataType::kFloat32}};
  Ending ending_a, ending_b;
  start(invocation(0, at_a), ending_a);
  std::atomic<bool> idle = false;
  std::thread waiter([&] {
    wait_until_no_invocations();
    idle = true;
  });
  EXPECT_FALSE(idle);
  start(invocation(2048, at_b), ending_b);
  waiter.join();
  EXPECT_TRUE(ending_a.done.try_wait());
  EXPECT_TRUE(ending_b.done.try_wait());
}

TEST_F(InvocationTest, refuses_what_cannot_be) {
  Ending stranger, ragged, plan;
  start(invocation(7, {}), stranger);
  EXPECT_THAT(std::string(stranger.status.message()),
              HasSubstr("device 7 is in none of the groups"));
  Invocation it = invocation(0, {});
  it.group_size = 3;
  start(it, ragged);
  EXPECT_THAT(std::string(ragged.status.message()), HasSubstr("do not make groups of 3"));
  it = invocation(0, {});
  it.plan = "star";
  start(it, plan);
  EXPECT_THAT(std::string(plan.status.message()), HasSubstr("'star'"));
}

}  // namespace
}  // namespace tersum::xla_ffi
