#include "base/log.h"

#include <gtest/gtest.h>

#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace tersum {
namespace {

using Entry = std::pair<LogLevel, std::string>;

void collect(void* context, LogLevel level, std::string_view message) {
  static_cast<std::vector<Entry>*>(context)->emplace_back(level, message);
}

class LogTest : public ::testing::Test {
 protected:
  ~LogTest() override { set_log_sink(nullptr, nullptr); }
  std::vector<Entry> heard_;
};

TEST_F(LogTest, SilentByDefault) {
  EXPECT_FALSE(log_enabled(LogLevel::kWarning));
  testing::internal::CaptureStderr();
  testing::internal::CaptureStdout();
  log_message(LogLevel::kWarning, "nobody hears this");
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
  EXPECT_EQ(testing::internal::GetCapturedStdout(), "");
}

TEST_F(LogTest, ASinkHearsItsLevelAndAbove) {
  set_log_sink(&collect, &heard_, LogLevel::kInfo);
  EXPECT_FALSE(log_enabled(LogLevel::kDebug));
  EXPECT_TRUE(log_enabled(LogLevel::kInfo));
  log_message(LogLevel::kDebug, "too detailed");
  log_message(LogLevel::kInfo, "joined");
  log_message(LogLevel::kWarning, "slow");
  EXPECT_EQ(heard_,
            (std::vector<Entry>{{LogLevel::kInfo, "joined"}, {LogLevel::kWarning, "slow"}}));
}

TEST_F(LogTest, ARemovedSinkHearsNothing) {
  set_log_sink(&collect, &heard_, LogLevel::kDebug);
  set_log_sink(nullptr, nullptr);
  log_message(LogLevel::kWarning, "gone");
  EXPECT_TRUE(heard_.empty());
}

TEST_F(LogTest, ASinkMayInstallAnother) {
  set_log_sink([](void* context, LogLevel,
                  std::string_view) { set_log_sink(&collect, context, LogLevel::kDebug); },
               &heard_);
  log_message(LogLevel::kInfo, "first");
  log_message(LogLevel::kDebug, "second");
  EXPECT_EQ(heard_, (std::vector<Entry>{{LogLevel::kDebug, "second"}}));
}

TEST_F(LogTest, SinksMayBeReplacedWhileOthersLog) {
  std::thread writer([] {
    for (int i = 0; i < 2000; ++i) log_message(LogLevel::kInfo, "message");
  });
  const LogSink ignore = [](void*, LogLevel, std::string_view) {};
  for (int i = 0; i < 2000; ++i) set_log_sink(i % 2 == 0 ? ignore : nullptr, nullptr);
  writer.join();
}

TEST_F(LogTest, LevelsHaveNames) {
  EXPECT_EQ(log_level_name(LogLevel::kDebug), "debug");
  EXPECT_EQ(log_level_name(LogLevel::kInfo), "info");
  EXPECT_EQ(log_level_name(LogLevel::kWarning), "warning");
}

}  // namespace
}  // namespace tersum
