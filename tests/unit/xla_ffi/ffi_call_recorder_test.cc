#include "xla/ffi_call_recorder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <latch>
#include <memory>
#include <thread>
#include <vector>

#include "fake_device_world.h"

namespace tersum::xla_ffi {
namespace {

using ::tersum::testing::FakeDeviceWorld;
using ::testing::ElementsAre;
using World = Result<std::shared_ptr<DeviceWorld>>;
using Calls = std::vector<std::unique_ptr<RecordedCall>>;

const std::vector<int64_t> kGroup = {1, 0};

std::vector<float> floats(const std::vector<std::byte>& bytes) {
  std::vector<float> out(bytes.size() / sizeof(float));
  if (!out.empty()) std::memcpy(out.data(), bytes.data(), bytes.size());
  return out;
}

class CallRecorderTest : public ::testing::Test {
 protected:
  CallRecorderTest() {
    gate_.configure({[] { return ProcessFacts{0, 1, {0, 1}}; },
                     [this](const ProcessFacts&) { return World(world_); },
                     [this](const ProcessFacts&) { return World(world_); }});
  }

  // One all-reduce of {value, value} on both devices; the second hands in ten times as much.
  void sum(float value, int64_t run_id, int64_t number = 1) {
    std::vector<std::vector<float>> inputs = {{value, value}, {10 * value, 10 * value}};
    std::vector<std::vector<float>> outputs(2, std::vector<float>(2));
    std::latch done(2);
    for (int64_t device = 0; device < 2; ++device) {
      const auto at = static_cast<size_t>(device);
      const std::vector<Operand> operands = {
          {inputs[at].data(), outputs[at].data(), 2, DataType::kFloat32}};
      Invocation it;
      it.device = device;
      it.run_id = run_id;
      it.groups = kGroup;
      it.group_size = 2;
      it.operation = {99, number};
      it.codec = "int8/64";
      it.plan = "ring";
      it.operands = operands;
      start_invocation(
          gate_, occurrences_, it,
          [](void* context, const Status&) { static_cast<std::latch*>(context)->count_down(); },
          &done);
    }
    done.wait();
  }

  // All calls of the recording, by device; stops it.
  static std::vector<Calls> finish() {
    CallRecorder::instance().stop();
    std::vector<Calls> by_device(2);
    Calls some;
    while (CallRecorder::instance().take(some)) {
      for (auto& call : some) {
        by_device[static_cast<size_t>(call->device)].push_back(std::move(call));
      }
    }
    return by_device;
  }

  std::shared_ptr<FakeDeviceWorld> world_ = std::make_shared<FakeDeviceWorld>();
  WorldGate gate_;
  OccurrenceCounter occurrences_;
};

TEST_F(CallRecorderTest, keeps_what_went_in_and_the_sum_once) {
  sum(7, 1);  // before the recording
  ASSERT_TRUE(CallRecorder::instance().start({4, 1 << 20}).ok());
  sum(1, 2);
  const std::vector<Calls> calls = finish();
  sum(8, 3);  // after it
  ASSERT_EQ(calls[0].size(), 1U);
  ASSERT_EQ(calls[1].size(), 1U);
  const RecordedCall& call = *calls[0][0];
  EXPECT_THAT(call.group, ElementsAre(1, 0));
  EXPECT_EQ(call.operation.operation, 1);
  EXPECT_EQ(call.codec, "int8/64");
  EXPECT_EQ(call.key, calls[1][0]->key);
  EXPECT_THAT(floats(call.operands.at(0).input), ElementsAre(1, 1));
  EXPECT_THAT(floats(calls[1][0]->operands.at(0).input), ElementsAre(10, 10));
  // Device 1 comes first in the group.
  EXPECT_TRUE(call.operands.at(0).output.empty());
  EXPECT_THAT(floats(calls[1][0]->operands.at(0).output), ElementsAre(11, 11));
}

TEST_F(CallRecorderTest, keeps_to_its_limits) {
  ASSERT_TRUE(CallRecorder::instance().start({2, 1 << 20}).ok());
  for (int run = 0; run < 5; ++run) sum(1, run);
  sum(1, 6, /*number=*/2);
  EXPECT_EQ(CallRecorder::instance().counts().beyond_calls, 6);
  EXPECT_EQ(finish()[0].size(), 3U);

  // Each device's call takes two blocks of the disk.
  ASSERT_TRUE(CallRecorder::instance().start({9, 6 * CallRecorder::kFileBytesMin}).ok());
  for (int run = 10; run < 15; ++run) sum(1, run);
  EXPECT_EQ(CallRecorder::instance().counts().beyond_bytes, 10 - 3);
  const std::vector<Calls> calls = finish();
  EXPECT_EQ(calls[0].size() + calls[1].size(), 3U);
}

TEST_F(CallRecorderTest, leaves_failed_calls_out) {
  ASSERT_TRUE(CallRecorder::instance().start({4, 1 << 20}).ok());
  world_->fail({StatusCode::kPeerLost, "gone"});
  sum(1, 2);
  EXPECT_EQ(CallRecorder::instance().counts().failed, 2);
  EXPECT_TRUE(finish()[0].empty());
}

TEST_F(CallRecorderTest, records_one_at_a_time) {
  ASSERT_TRUE(CallRecorder::instance().start({1, 1 << 20}).ok());
  EXPECT_EQ(CallRecorder::instance().start({1, 1}).code(), StatusCode::kInvalidArgument);
  sum(1, 1);
  CallRecorder::instance().stop();
  // Nobody has taken the calls yet.
  EXPECT_EQ(CallRecorder::instance().start({1, 1}).code(), StatusCode::kInvalidArgument);
  finish();
  EXPECT_TRUE(CallRecorder::instance().start({1, 1}).ok());
  finish();
}

}  // namespace
}  // namespace tersum::xla_ffi
