// Options that a group or a world of devices cannot run with are refused when it is made, under the
// name by which they were set.
#include "runtime/environment_options.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "runtime/device_world.h"
#include "support/memory_store.h"
#include "tersum/communicator.h"

namespace tersum::testing {
namespace {

using ::testing::HasSubstr;

const std::vector<int64_t> kDevices = {0, 1};

class EnvironmentOptions : public ::testing::Test {
 protected:
  ~EnvironmentOptions() override { unsetenv("TERSUM_SLICE_BYTES"); }

  // Of a group, and of a world of devices.
  static std::vector<Status> made_with(const CommunicatorOptions& options) {
    auto group = Communicator::create(0, 1, std::make_shared<MemoryStore>(), options);
    auto world = DeviceWorld::create(0, 1, kDevices, nullptr, options, "options");
    if (group.ok()) group->close();
    if (world.ok()) world.value()->close();
    return {group.status(), world.status()};
  }
};

TEST_F(EnvironmentOptions, SlicesBeyondTheWindowAreTheVariables) {
  CommunicatorOptions options;
  options.slice_bytes = 4096;
  options.window_bytes = 32'768;
  setenv("TERSUM_SLICE_BYTES", "32769", 1);
  for (const Status& status : made_with(options)) {
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
    EXPECT_EQ(status.message(),
              "TERSUM_SLICE_BYTES is '32769', above window_bytes, which the program sets to 32768; "
              "set it to a number from 4096 to 32768, or leave it out");
  }
  setenv("TERSUM_SLICE_BYTES", "32768", 1);
  for (const Status& status : made_with(options)) EXPECT_TRUE(status.ok()) << status.to_string();
}

TEST_F(EnvironmentOptions, WhatTheProgramGivesIsCheckedWithoutAVariable) {
  const auto expect_refused = [](const CommunicatorOptions& options, const std::string& what) {
    for (const Status& status : made_with(options)) {
      EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
      EXPECT_THAT(std::string(status.message()), HasSubstr(what));
    }
  };
  CommunicatorOptions options;
  options.window_bytes = 32'768;
  expect_refused(options, "window_bytes is 32768, below slice_bytes; pass at least 65536");
  setenv("TERSUM_SLICE_BYTES", "4096", 1);
  expect_refused(options, "window_bytes is 32768, below slice_bytes; pass at least 65536");
  unsetenv("TERSUM_SLICE_BYTES");
  options = {};
  options.slice_bytes = 100;
  expect_refused(options, "slice_bytes is 100; pass 4096..2097152");
  options = {};
  options.flatten_every = 0;
  expect_refused(options, "flatten_every is 0");
  options = {};
  options.timeout_ms = -1;
  expect_refused(options, "timeout_ms is -1");
}

}  // namespace
}  // namespace tersum::testing
