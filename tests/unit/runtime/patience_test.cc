// How long a waiter spins, yields and sleeps.
#include "runtime/patience.h"

#include <gtest/gtest.h>

namespace tersum {
namespace {

// Rounds of one wait spent spinning, of at most `rounds`.
int spins_of(Patience& patience, bool cpu_each, int rounds) {
  int spins = 0;
  for (int i = 0; i < rounds; ++i) spins += patience.next(cpu_each) == WaitStep::kSpin ? 1 : 0;
  patience.ended();
  return spins;
}

TEST(Patience, SpinsThenYieldsThenSleeps) {
  Patience patience;
  for (const auto& [cpu_each, spins] : {std::pair{false, 20}, {true, 200}}) {
    for (int i = 1; i <= 220; ++i) {
      EXPECT_EQ(patience.next(cpu_each), i <= spins ? WaitStep::kSpin : WaitStep::kYield) << i;
    }
    EXPECT_EQ(patience.next(cpu_each), WaitStep::kSleep);
    patience.ended();
  }
}

TEST(Patience, YieldsAtOnceWhereYieldsAreSlow) {
  Patience patience;
  patience.yielded(5'000);
  EXPECT_EQ(spins_of(patience, false, 30), 20) << "one may be chance";
  patience.yielded(5'000);
  patience.yielded(5'000);
  EXPECT_EQ(spins_of(patience, false, 30), 0);
  EXPECT_EQ(spins_of(patience, true, 30), 30) << "with a CPU each those are others";
  patience.yielded(500);
  EXPECT_EQ(spins_of(patience, false, 30), 20);
}

TEST(Patience, StopsToSpinForLongWhereThatIsInVain) {
  Patience patience;
  for (int i = 0; i < 4; ++i) EXPECT_EQ(spins_of(patience, true, 250), 200) << i;
  for (int i = 0; i < 255; ++i) EXPECT_EQ(spins_of(patience, true, 250), 20) << i;
  EXPECT_EQ(spins_of(patience, true, 250), 200) << "tried again";
}

TEST(Patience, KeepsSpinningWhereOnlySomeWaitsAreLong) {
  Patience patience;
  for (int i = 0; i < 1000; ++i) {
    EXPECT_EQ(spins_of(patience, true, 250), 200) << i;
    EXPECT_EQ(spins_of(patience, true, 50), 50) << i;
  }
}

}  // namespace
}  // namespace tersum
