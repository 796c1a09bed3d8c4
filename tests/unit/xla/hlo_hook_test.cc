// The hook: options that change between compilations, a bounded report, threads.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <thread>
#include <vector>

#include "hlo_test_module.h"
#include "xla/hlo_hook.h"

namespace tersum::hlo_test {
namespace {

using ::testing::HasSubstr;

TEST(HloHook, DoesNothingUntilConfigured) {
  HloHook hook;
  EXPECT_FALSE(hook.transform(golden(kJaxFolder, "psum_f32")).has_value());
  EXPECT_TRUE(hook.report().empty());
}

TEST(HloHook, FollowsItsOptions) {
  const std::string module = golden(kJaxFolder, "psum_f32");
  HloHook hook;
  ASSERT_TRUE(hook.configure(all_options()).ok());
  const auto out = hook.transform(module);
  ASSERT_TRUE(out.has_value());
  EXPECT_EQ(*out, run_checked(module, all_options()).module);
  EXPECT_FALSE(hook.transform(golden(kJaxFolder, "pmax")).has_value());
  EXPECT_EQ(hook.report().size(), 2u);

  auto wrong = all_options();
  wrong.codec = "int7";
  EXPECT_FALSE(hook.configure(wrong).ok());
  EXPECT_TRUE(hook.transform(module).has_value()) << "a wrong option left all as it was";

  hook.disable();
  EXPECT_FALSE(hook.transform(module).has_value());
  EXPECT_EQ(hook.report().size(), 3u);
  hook.clear_report();
  EXPECT_TRUE(hook.report().empty());
}

TEST(HloHook, ReportsWhatItCannotRead) {
  HloHook hook;
  ASSERT_TRUE(hook.configure(all_options()).ok());
  EXPECT_FALSE(hook.transform("\xff\xff\xff").has_value());
  const auto rows = hook.report();
  ASSERT_EQ(rows.size(), 1u);
  EXPECT_EQ(rows[0].outcome, HloOutcome::kError);
  EXPECT_THAT(rows[0].reason, HasSubstr("HloModuleProto"));
}

TEST(HloHook, ReportIsBounded) {
  const std::string module = golden(kJaxFolder, "psum_16_apart");
  HloHook hook;
  ASSERT_TRUE(hook.configure(all_options()).ok());
  auto off = all_options();
  off.codec = "off";
  ASSERT_TRUE(hook.configure(off).ok());
  for (size_t rows = 0; rows <= HloHook::kRowsMax; rows += 16) {
    EXPECT_FALSE(hook.transform(module).has_value());
  }
  EXPECT_EQ(hook.report().size(), HloHook::kRowsMax);
}

TEST(HloHook, ThreadsCompileAtOnce) {
  const std::string module = golden(kJaxFolder, "psum_tuple");
  HloHook hook;
  ASSERT_TRUE(hook.configure(all_options()).ok());
  const std::string expected = run_checked(module, all_options()).module;
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 50; ++i) {
        EXPECT_EQ(hook.transform(module).value_or(""), expected);
        EXPECT_TRUE(hook.configure(all_options()).ok());
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(hook.report().size(), 200u);
}

}  // namespace
}  // namespace tersum::hlo_test
