// Calls of devices whose codec is "auto": every device takes the same codec, within the error, and
// the bytes are those of that codec. Real engine, all devices in this process.
#include "runtime/sampled_calls.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cmath>
#include <latch>
#include <limits>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "codec/codec.h"
#include "runtime/device_world.h"

namespace tersum {
namespace {

using testing::HasSubstr;
using testing::SizeIs;
using Arrays = std::vector<std::vector<float>>;

constexpr uint64_t kSeed = 20266;
constexpr size_t kCount = 20'000;
constexpr size_t kChannels = 400;
constexpr double kExactAlone = 1e-12;

struct Ending {
  std::latch done{1};
  Status status;
};
void end(void* context, const Status& status) {
  auto* const ending = static_cast<Ending*>(context);
  ending->status = status;
  ending->done.count_down();
}

class SampledCallsTest : public testing::Test {
 protected:
  SampledCallsTest() {
    auto made = DeviceWorld::create(0, 1, devices_, nullptr, {}, "sampled");
    EXPECT_TRUE(made.ok()) << made.status().to_string();
    world_ = std::move(made).value();
  }
  ~SampledCallsTest() override { world_->close(); }

  KeyedCall call(size_t device, uint64_t key, const std::vector<float>& input,
                 std::vector<float>& output, double max_rel_error, uint64_t site = 7) const {
    KeyedCall made;
    made.group = devices_;
    made.device = devices_[device];
    made.key = key;
    made.input = input.data();
    made.output = output.data();
    made.count = output.size();
    made.site = site;
    made.options.codec = "auto";
    made.options.max_rel_error = max_rel_error;
    made.options.timeout_ms = 30'000;
    return made;
  }

  // One call of every device; the sums, equal on all of them.
  std::vector<float> sum(const Arrays& inputs, double max_rel_error, uint64_t site = 7,
                         std::string_view codec = "auto", size_t channels = 0) {
    ++key_;
    Arrays outputs(inputs.size(), std::vector<float>(inputs[0].size()));
    std::vector<Ending> endings(inputs.size());
    for (size_t i = 0; i < inputs.size(); ++i) {
      KeyedCall made = call(i, key_, inputs[i], outputs[i], max_rel_error, site);
      made.options.codec = codec;
      made.options.channels = channels;
      world_->start(made, end, &endings[i]);
    }
    for (Ending& ending : endings) {
      ending.done.wait();
      EXPECT_TRUE(ending.status.ok()) << ending.status.to_string();
    }
    for (const auto& output : outputs) EXPECT_EQ(output, outputs[0]);
    return outputs[0];
  }

  Arrays normal_values(size_t count = kCount) const {
    std::mt19937_64 random(kSeed);
    std::normal_distribution<float> normal;
    Arrays values(devices_.size(), std::vector<float>(count));
    for (auto& array : values) {
      for (float& x : array) x = normal(random);
    }
    return values;
  }

  // Of kChannels channels, of which one in 50 is large.
  Arrays uneven_values() const {
    Arrays values = normal_values();
    for (auto& array : values) {
      for (size_t i = 7; i < array.size(); i += 50) array[i] *= 30;
    }
    return values;
  }

  // Until a call leaves what is known of the channels as it is, exact ones all of them.
  void learn_until_judged(const Arrays& values) {
    std::vector<std::byte> before;
    for (int step = 0; step < 3000; ++step) {
      sum(values, kExactAlone, 7, "auto", kChannels);
      std::vector<std::byte> known = world_->save_flatten().value();
      if (known == before) return;
      before = std::move(known);
    }
    FAIL() << "all calls teach";
  }

  std::vector<int64_t> devices_ = {0, 1, 2, 3};
  std::shared_ptr<DeviceWorld> world_;
  uint64_t key_ = 1000;
};

TEST_F(SampledCallsTest, TakeTheBytesOfTheCodecThatIsChosen) {
  const Arrays values = normal_values();
  double bits = 0;
  for (const double allowed : {0.3, 0.02, 0.002}) {
    const auto site = static_cast<uint64_t>(1 / allowed);
    const std::vector<float> result = sum(values, allowed, site);
    const std::vector<SiteChoice> choices = world_->choices();
    ASSERT_THAT(choices, SizeIs(testing::Gt(0U)));
    const SiteChoice& choice = choices.back();  // sites ascend here
    EXPECT_EQ(choice.site, site);
    EXPECT_LE(choice.rel_error, allowed);
    EXPECT_EQ(choice.calls, 1U);
    EXPECT_EQ(result, sum(values, 0, site, choice.codec)) << choice.codec;
    const auto codec = find_codec(choice.codec, DataType::kFloat32, ReduceOp::kSum);
    const double wire_bits = 8.0 * static_cast<double>(codec.value()->wire_bytes(kCount)) / kCount;
    EXPECT_GT(wire_bits, bits) << choice.codec;
    bits = wire_bits;
  }
}

TEST_F(SampledCallsTest, FollowTheDataFromSampleToSample) {
  Arrays values = normal_values();
  for (int i = 0; i < 3; ++i) sum(values, 0.02);
  EXPECT_NE(world_->choices()[0].codec, "exact");
  // Contributions that cancel: whatever is lost of them is much of the sum.
  for (size_t d = 0; d < values.size(); ++d) {
    for (float& x : values[d]) x = (d % 2 == 0 ? 1000.0F : -1000.0F) + x * 1e-3F;
  }
  // At most so many calls until one is drawn: (1 - 1/256)^4000 = 2e-7; the keys are always these.
  int calls = 0;
  while (world_->choices()[0].codec != "exact" && calls < 4000) {
    sum(values, 0.02);
    ++calls;
  }
  EXPECT_LT(calls, 4000);
  EXPECT_GT(calls, 1) << "the third call and later ones are drawn by lot";
}

TEST_F(SampledCallsTest, OfOneSiteWaitInLineWhileASampleIsUnderWay) {
  const Arrays values = normal_values(3000);
  constexpr size_t kCalls = 8;
  std::vector<Arrays> outputs(kCalls, Arrays(values.size(), std::vector<float>(3000)));
  std::vector<std::vector<Ending>> endings;
  for (size_t n = 0; n < kCalls; ++n) endings.emplace_back(values.size());
  // A device starts all its calls before the next one starts any.
  for (size_t i = 0; i < values.size(); ++i) {
    for (size_t n = 0; n < kCalls; ++n) {
      world_->start(call(i, n, values[i], outputs[n][i], 0.02), end, &endings[n][i]);
    }
  }
  for (size_t n = 0; n < kCalls; ++n) {
    for (size_t i = 0; i < values.size(); ++i) {
      endings[n][i].done.wait();
      EXPECT_TRUE(endings[n][i].status.ok()) << endings[n][i].status.to_string();
      EXPECT_EQ(outputs[n][i], outputs[n][0]);
    }
  }
  EXPECT_EQ(world_->choices()[0].calls, kCalls);
}

// Channels of which one in 50 is large: a sum teaches them, whatever it travelled as.
TEST_F(SampledCallsTest, FlattenOnceTheSiteKnowsItsChannels) {
  const Arrays values = uneven_values();
  std::vector<std::string> taken;
  std::vector<float> result;
  for (int step = 0; step < 4; ++step) {
    result = sum(values, 0.03, 7, "auto", kChannels);
    taken.emplace_back(world_->choices()[0].codec);
  }
  EXPECT_THAT(taken[0], testing::Not(HasSubstr("flatten")));
  EXPECT_THAT(taken[1], HasSubstr("+flatten"));
  EXPECT_EQ(taken[3], taken[1]);
  // By the state that the calls before it have left; the same call again differs by that one's.
  EXPECT_NE(result, sum(values, 0, 8, taken[3], kChannels)) << "another site knows nothing";
  ASSERT_TRUE(world_->reset_flatten().ok());
  sum(values, 0.03, 7, "auto", kChannels);
  EXPECT_THAT(std::string(world_->choices()[0].codec), testing::Not(HasSubstr("flatten")));
}

// Learning from an array takes as long as summing a short one, so calls whose codec does not
// flatten do it only until a sample has judged those that do, and when they are sampled for.
TEST_F(SampledCallsTest, LearnChannelsOnlyUntilTheyWereJudged) {
  const Arrays values = uneven_values();
  const auto known_after = [&] {
    sum(values, kExactAlone, 7, "auto", kChannels);
    EXPECT_EQ(world_->choices()[0].codec, "exact");
    return world_->save_flatten().value();
  };
  const std::vector<std::byte> first = known_after();
  EXPECT_NE(first, known_after());
  learn_until_judged(values);
  const std::vector<std::byte> known = world_->save_flatten().value();
  for (int step = 0; step < 4; ++step) EXPECT_EQ(known, known_after());
}

// A call that one device has begun before a reset must not teach on the others alone.
TEST_F(SampledCallsTest, TeachAlikeOnBothSidesOfAReset) {
  const Arrays values = uneven_values();
  learn_until_judged(values);
  ++key_;
  Arrays outputs(values.size(), std::vector<float>(kCount));
  std::vector<Ending> endings(values.size());
  for (size_t i = 0; i < values.size(); ++i) {
    if (i + 1 == values.size()) {
      EXPECT_TRUE(world_->reset_flatten().ok());
    }
    KeyedCall made = call(i, key_, values[i], outputs[i], kExactAlone);
    made.options.channels = kChannels;
    world_->start(made, end, &endings[i]);
  }
  for (Ending& ending : endings) {
    ending.done.wait();
    EXPECT_TRUE(ending.status.ok()) << ending.status.to_string();
  }
}

// What was sampled by factors that are gone would allow codecs that need them.
TEST_F(SampledCallsTest, KeepWhatIsKnownOfChannelsWhileTheyAreSampledFor) {
  const Arrays values = uneven_values();
  sum(values, 0.03, 7, "auto", kChannels);
  const std::vector<std::byte> saved = world_->save_flatten().value();
  ++key_;
  Arrays outputs(values.size(), std::vector<float>(kCount));
  std::vector<Ending> endings(values.size());
  for (size_t i = 0; i < values.size(); ++i) {
    // Until the last one is here, the others wait for the sum of their samples.
    if (i + 1 == values.size()) {
      for (const Status& status : {world_->reset_flatten(), world_->load_flatten(saved)}) {
        EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
        EXPECT_THAT(std::string(status.message()), HasSubstr("in flight"));
      }
    }
    KeyedCall made = call(i, key_, values[i], outputs[i], 0.03);
    made.options.channels = kChannels;
    world_->start(made, end, &endings[i]);
  }
  for (Ending& ending : endings) {
    ending.done.wait();
    EXPECT_TRUE(ending.status.ok()) << ending.status.to_string();
  }
  EXPECT_THAT(std::string(world_->choices()[0].codec), HasSubstr("+flatten"));
  EXPECT_TRUE(world_->load_flatten(saved).ok());
  EXPECT_TRUE(world_->reset_flatten().ok());
}

// A reset finds calls in flight, or none: never one that has chosen by what it takes away.
TEST_F(SampledCallsTest, GoOnBesideResets) {
  const Arrays values = uneven_values();
  std::atomic<bool> is_over{false};
  std::atomic<int> resets{0};
  std::thread resetting([&] {
    while (!is_over) {
      const Status status = world_->reset_flatten();
      EXPECT_TRUE(status.ok() || status.code() == StatusCode::kInvalidArgument)
          << status.to_string();
      if (status.ok()) ++resets;
      std::this_thread::sleep_for(std::chrono::microseconds(50));
    }
  });
  // Five calls of each site: with a sample and without one.
  for (uint64_t i = 0; i < 200; ++i) sum(values, 0.03, i % 40, "auto", kChannels);
  is_over = true;
  resetting.join();
  EXPECT_GT(resets, 0);
}

TEST_F(SampledCallsTest, TakeOneOfTheCodecsThatAreNamed) {
  const Arrays values = normal_values();
  sum(values, 0.3, 7, "auto:int8/128|int5/64");
  EXPECT_EQ(world_->choices()[0].codec, "int5/64");
  sum(values, 0.3, 8, "auto:int8/128");
  EXPECT_EQ(world_->choices()[1].codec, "int8/128");
  std::vector<float> output(values[0].size());
  for (const char* wrong : {"auto:", "auto:int8|int8", "auto:int2+feedback"}) {
    Ending ending;
    KeyedCall refused = call(0, 1, values[0], output, 0.1);
    refused.options.codec = wrong;
    world_->start(refused, end, &ending);
    ending.done.wait();
    EXPECT_EQ(ending.status.code(), StatusCode::kInvalidArgument) << wrong;
  }
}

TEST_F(SampledCallsTest, NeedAnErrorAboveZero) {
  const Arrays values = normal_values(100);
  std::vector<float> output(100);
  for (const double wrong : {0.0, -1.0, double{NAN}, std::numeric_limits<double>::infinity()}) {
    Ending ending;
    world_->start(call(0, 1, values[0], output, wrong), end, &ending);
    ending.done.wait();
    EXPECT_EQ(ending.status.code(), StatusCode::kInvalidArgument);
    EXPECT_THAT(ending.status.message(), HasSubstr("max_rel_error"));
  }
}

TEST_F(SampledCallsTest, WithoutTheOthersEndAtTheirDeadline) {
  const Arrays values = normal_values(100);
  std::vector<float> output(100);
  std::vector<Ending> endings(2);
  for (uint64_t n = 0; n < 2; ++n) {
    KeyedCall alone = call(0, n, values[0], output, 0.02);
    alone.options.timeout_ms = 200;
    world_->start(alone, end, &endings[n]);
  }
  for (Ending& ending : endings) {
    ending.done.wait();
    EXPECT_EQ(ending.status.code(), StatusCode::kTimeout) << ending.status.to_string();
  }
}

TEST_F(SampledCallsTest, EndWhenTheWorldCloses) {
  const Arrays values = normal_values(100);
  std::vector<float> output(100);
  std::vector<Ending> endings(3);
  for (uint64_t n = 0; n < 3; ++n) {
    world_->start(call(0, n, values[0], output, 0.02), end, &endings[n]);
  }
  world_->close();
  for (Ending& ending : endings) {
    ending.done.wait();
    EXPECT_EQ(ending.status.code(), StatusCode::kAborted) << ending.status.to_string();
  }
}

}  // namespace
}  // namespace tersum
