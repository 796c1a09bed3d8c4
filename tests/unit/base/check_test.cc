#include "base/check.h"

#include <gtest/gtest.h>

#include <cstdio>

namespace tersum {
namespace {

TEST(CheckTest, ATrueConditionIsEvaluatedOnceAndPasses) {
  int evaluations = 0;
  TERSUM_CHECK(++evaluations == 1);
  EXPECT_EQ(evaluations, 1);
}

TEST(CheckDeathTest, AFalseConditionNamesItselfAndAborts) {
  EXPECT_DEATH(TERSUM_CHECK(2 + 2 == 5), "check_test.cc:[0-9]+: 2 \\+ 2 == 5");
}

TEST(CheckDeathTest, TheHandlerIsReplaceableAndTheProcessStillAborts) {
  const auto fail_with_own_handler = [] {
    set_check_handler([](const char*, int, const char* condition) {
      std::fprintf(stderr, "own handler heard %s\n", condition);
    });
    TERSUM_CHECK(false);
  };
  EXPECT_DEATH(fail_with_own_handler(), "own handler heard false");
}

TEST(CheckTest, SettingAHandlerReturnsTheOldOne) {
  const CheckHandler own = [](const char*, int, const char*) {};
  const CheckHandler original = set_check_handler(own);
  EXPECT_NE(original, own);
  EXPECT_EQ(set_check_handler(nullptr), own);
  // Null restores the default, which is what was there before.
  EXPECT_EQ(set_check_handler(original), original);
}

}  // namespace
}  // namespace tersum
