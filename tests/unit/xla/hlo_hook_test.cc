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

TEST(HloHook, ReportKeepsTheLatestRows) {
  HloHook hook(/*rows_max=*/20);
  ASSERT_TRUE(hook.configure(all_options()).ok());
  for (const char* name : {"psum_16_apart", "psum_f32", "psum_16_apart"}) {
    EXPECT_TRUE(hook.transform(golden(kJaxFolder, name)).has_value());
  }
  const auto rows = hook.report();
  ASSERT_EQ(rows.size(), 20u);
  EXPECT_EQ(rows[2].operation, 15);  // the last of the first module
  EXPECT_EQ(rows[3].module, "jit_psum");
  EXPECT_EQ(rows[19].operation, 15);
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
