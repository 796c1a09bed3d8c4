// The tuner on a clock that only calls move: what it measures, in which order, and when it stops.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <random>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "plan/host_topology.h"
#include "runtime/tuning/tuner.h"
#include "runtime/tuning/tuning_probes.h"

namespace tersum {
namespace {

class HandClock final : public Clock {
 public:
  [[nodiscard]] int64_t now_ns() const override { return now_ns_; }
  void advance(double seconds) { now_ns_ += static_cast<int64_t>(seconds * 1e9); }

 private:
  int64_t now_ns_ = 1;
};

// A machine on which a call takes 10 us and `ns_per_byte` of the wire bytes of float32; one_shot
// takes 8 us and twice as many bytes, a ring 14 us.
struct Machine {
  double ns_per_byte = 0.5;
  double slow_until_s = 0;   // calls take three times as long until then
  double slow_from_s = 1e9;  // and from then on
  size_t stalled = 0;        // so many calls of 1 KiB take 6 ms more, every other one
  double latency_s = 0;      // of every call, more than the above
  double waits_s = 0;        // of every call, up to so much more, evenly spread
  double colder = 1;         // as many times as long a call takes behind one of another way
  size_t untouched = 0;      // so many calls of each size below 256 KiB take five times as long
  size_t reached_bytes = 0;  // exact calls of less and of 4 MiB and more settle,
  double unsettled = 1;      // and take as many times as long up to the third in a row
  size_t cached_bytes = 0;
  int row = 0;  // calls of the last way in a row
  HandClock clock;
  std::vector<size_t> sizes;      // of the calls, in order
  std::map<size_t, size_t> seen;  // calls of each size
  std::string last_way;
  std::minstd_rand random{1};
  double seconds_of(const TuningWay& way, size_t bytes) const {
    const double wire = tuning_wire_ratio(way.codec) * static_cast<double>(bytes) *
                        (way.plan == PlanKind::kOneShot ? 2 : 1);
    const double still_s = way.plan == PlanKind::kOneShot ? 8e-6
                           : way.plan == PlanKind::kRing  ? 14e-6
                                                          : 10e-6;
    return latency_s + still_s + wire * ns_per_byte * 1e-9;
  }
  TuningTable tune(int size, const TuningTable* known = nullptr, const Topology* topology = nullptr,
                   int host_cpus = 0) {
    TuningRequest request;
    request.ground = {size, topology, host_cpus};
    request.known = known;
    request.reached_bytes = reached_bytes;
    request.cached_bytes = cached_bytes;
    const RunCall run = [this](const CallArguments& arguments, const CallOptions& options) {
      if (arguments.type == DataType::kFloat64) {  // agreement
        clock.advance(10e-6 + latency_s);
        return ok_status();
      }
      const size_t bytes = arguments.count * sizeof(float);
      const double now_s = static_cast<double>(clock.now_ns()) * 1e-9;
      const double slow = now_s < slow_until_s || now_s >= slow_from_s ? 3 : 1;
      const std::string way =
          std::string(options.codec) + std::string(plan_kind_name(options.plan));
      row = std::exchange(last_way, way) == way ? row + 1 : 1;
      const bool settles = options.codec == "exact" && bytes >= kReachingBytesMin &&
                           bytes < reached_bytes && row < kReachingCallsInARow;
      const bool touches = bytes < 256 << 10 && ++seen[bytes] <= untouched;
      const double cold = (row > 1 ? 1 : colder) * (settles ? unsettled : 1) * (touches ? 5 : 1);
      clock.advance(slow * cold * seconds_of({options.codec, options.plan}, bytes));
      clock.advance(waits_s * std::generate_canonical<double, 32>(random));
      if (bytes == 1 << 10 && sizes.size() < 2 * stalled && sizes.size() % 2 == 1) {
        clock.advance(6e-3);
      }
      sizes.push_back(bytes);
      return ok_status();
    };
    return tune_group(request, clock, run).value();
  }
};

size_t ways_at(const TuningTable& table, size_t bytes) {
  return static_cast<size_t>(
      std::count_if(table.points().begin(), table.points().end(),
                    [&](const TuningPoint& point) { return point.bytes == bytes; }));
}

// What calls take of themselves, whatever the machine makes some of them take.
void expect_settled_times(const Machine& machine, const TuningTable& table) {
  for (const TuningPoint& point : table.points()) {
    EXPECT_NEAR(point.seconds / machine.seconds_of(point.way, point.bytes), 1, 1e-3)
        << point.way.codec << ' ' << point.bytes;
  }
}

TEST(Tuner, MeasuresEveryWayAndGivesItsTimeBack) {
  Machine machine;
  const TuningTable table = machine.tune(2);
  EXPECT_EQ(ways_at(table, 1 << 10), 8U);
  EXPECT_EQ(ways_at(table, 1 << 20), 8U);
  EXPECT_EQ(ways_at(table, 4 << 20), 4U);
  EXPECT_EQ(ways_at(table, 16 << 20), 4U);
  for (const TuningPoint& point : table.points()) {
    EXPECT_NEAR(point.seconds, machine.seconds_of(point.way, point.bytes), 2e-9);
  }
}

TEST(Tuner, TimesExactValuesOfReachedArraysWhenTheyHaveSettled) {
  for (const int size : {2, 4}) {
    for (const size_t reached_bytes : {size_t{0}, size_t{8} << 20, size_t{32} << 20}) {
      Machine machine;
      machine.ns_per_byte = 0.05;
      machine.unsettled = 2;
      machine.reached_bytes = reached_bytes;
      const TuningTable table = machine.tune(size);
      EXPECT_LE(static_cast<double>(machine.clock.now_ns()) * 1e-9, 0.2);
      expect_settled_times(machine, table);
      EXPECT_EQ(ways_at(table, 16 << 20), size == 2 ? 4U : 6U) << "rows leave no way out";
    }
  }
}

// Of eight ways that are called twice a turn: the look, and up to the next two turns and a half.
TEST(Tuner, OutvotesTurnsThatMeetUntouchedMemory) {
  for (const size_t untouched : {16, 24, 32, 40}) {
    Machine machine;
    machine.untouched = untouched;
    const TuningTable table = machine.tune(2);
    EXPECT_LE(static_cast<double>(machine.clock.now_ns()) * 1e-9, 0.2);
    SCOPED_TRACE(untouched);
    expect_settled_times(machine, table);
  }
}

TEST(Tuner, TellsItsTableWhatACacheHolds) {
  Machine machine;
  machine.cached_bytes = 16 << 20;
  const TuningTable table = machine.tune(2);
  EXPECT_EQ(table.cached_bytes(), machine.cached_bytes);
  EXPECT_EQ(machine.tune(2, &table).cached_bytes(), machine.cached_bytes) << "known";
  const TuningWay way{"exact", PlanKind::kTwoStep};
  const double within_s = machine.seconds_of(way, 16 << 20);
  const double all_s = machine.seconds_of(way, 64 << 20);
  EXPECT_NEAR(table.seconds(way, 64 << 20).value() / (all_s + 0.3 * (all_s - within_s)), 1, 1e-3);
}

// Where untuned calls go by trees, tuned ones can: at every size that they were measured at.
TEST(Tuner, MeasuresTreesOfRanksThatShareCpusWithWhateverElseItMeasures) {
  for (const double latency_s : {0.0, 0.2e-3, 2e-3, 10e-3}) {
    Machine machine;
    machine.latency_s = latency_s;
    const TuningTable table = machine.tune(8, nullptr, nullptr, 2);
    EXPECT_LE(static_cast<double>(machine.clock.now_ns()) * 1e-9, 0.2) << latency_s;
    size_t sizes = 0;
    for (const TuningPoint& point : table.points()) {
      if (point.way.codec != "int8/128" || point.way.plan != PlanKind::kTwoStep) continue;
      const bool has_tree = std::ranges::any_of(table.points(), [&](const TuningPoint& other) {
        return other.bytes == point.bytes && other.way == TuningWay{"exact", PlanKind::kTree};
      });
      EXPECT_EQ(has_tree, point.bytes <= 1 << 20) << latency_s << ' ' << point.bytes;
      ++sizes;
    }
    EXPECT_GE(sizes, 2U) << latency_s;
  }
}

// What has three ways at 1 MiB and two at 4 is foretold by the two.
TEST(Tuner, ReachesWithTreesAtMostOneSizeLess) {
  for (const double ns_per_byte : {0.5, 1.0, 2.0, 4.0}) {
    Machine with;
    Machine without;
    with.ns_per_byte = without.ns_per_byte = ns_per_byte;
    const TuningTable crowded = with.tune(8, nullptr, nullptr, 2);
    EXPECT_GE(crowded.points().back().bytes * 4, without.tune(8).points().back().bytes);
  }
}

// A rank that waited for its core while the first calls were made is no reason to stop there, and
// to foretell 1 MiB by them.
TEST(Tuner, LooksAgainWhereTheFirstLookWasDisturbed) {
  for (const size_t stalled : {1, 2, 4, 7}) {
    Machine machine;
    machine.stalled = stalled;
    const TuningTable table = machine.tune(4);
    EXPECT_GE(ways_at(table, 1 << 20), 4U) << stalled;
    EXPECT_LE(static_cast<double>(machine.clock.now_ns()) * 1e-9, 0.2) << stalled;
    const TuningWay way{"exact", PlanKind::kTwoStep};
    const double foretold = table.seconds(way, 1 << 20).value();
    EXPECT_NEAR(foretold / machine.seconds_of(way, 1 << 20), 1, 0.01) << stalled;
  }
}

TEST(Tuner, ForetellsWhatItDidNotMeasure) {
  Machine machine;
  const TuningTable table = machine.tune(2);
  for (const char* codec : {"exact", "bf16", "int8/128", "int4/128"}) {
    const TuningWay way{codec, PlanKind::kTwoStep};
    for (const size_t bytes : {256 << 10, 1 << 20, 8 << 20, 64 << 20, 256 << 20}) {
      const double real = machine.seconds_of(way, bytes);
      const double foretold = table.seconds(way, bytes).value();
      EXPECT_NEAR(foretold / real, 1, 0.001) << codec << ' ' << bytes;
    }
  }
}

// Links of 100 Mbit/s to 2 Gbit/s between far sites: latency is all that small arrays show. Where
// it hides all that there is time for, 1 Gbit/s is what is told.
TEST(Tuner, TellsWhatBytesCostBehindALongLatency) {
  for (const double latency_s : {2e-3, 5e-3, 10e-3, 20e-3}) {
    for (const double ns_per_byte : {80.0, 16.0, 4.0}) {
      Machine machine;
      machine.latency_s = latency_s;
      machine.ns_per_byte = ns_per_byte;
      const TuningTable table = machine.tune(2);
      EXPECT_LE(static_cast<double>(machine.clock.now_ns()) * 1e-9, 0.2) << latency_s;
      for (const std::string_view codec : {"exact", "int8/128"}) {
        const TuningWay way{codec, PlanKind::kTwoStep};
        const double ratio =
            table.seconds(way, 64 << 20).value() / machine.seconds_of(way, 64 << 20);
        // There is time for 256 KiB at most.
        const bool is_hidden = ns_per_byte * 1e-9 * (256 << 10) < 0.25 * latency_s;
        EXPECT_GT(ratio, is_hidden ? 0.4 : 0.99) << codec << ' ' << latency_s << ' ' << ns_per_byte;
        EXPECT_LT(ratio, is_hidden ? 2.1 : 1.01) << codec << ' ' << latency_s << ' ' << ns_per_byte;
      }
    }
  }
}

// Other processes hold the cores, so that every call waits for one, up to as long as 100 Mbit/s
// need for 100 KiB. By 1 KiB alone 4 MiB would be foretold as by 1 Gbit/s, a tenth of what they
// take, or in proportion, up to 100 times too long.
TEST(Tuner, TellsWhatBytesCostWhereCallsWaitForCores) {
  constexpr double kReal = 336e-3;
  int near = 0;
  int coded = 0;
  for (unsigned seed = 1; seed <= 20; ++seed) {
    Machine machine;
    machine.random.seed(seed);
    machine.waits_s = 8e-3;
    machine.ns_per_byte = 80;
    const TuningTable table = machine.tune(2);
    EXPECT_LE(static_cast<double>(machine.clock.now_ns()) * 1e-9, 0.225) << seed;
    const double exact_s = table.seconds({"exact", PlanKind::kTwoStep}, 4 << 20).value();
    const double int8_s = table.seconds({"int8/128", PlanKind::kTwoStep}, 4 << 20).value();
    if (exact_s > kReal / 3 && exact_s < kReal * 3) ++near;
    if (int8_s < 0.85 * exact_s) ++coded;
  }
  EXPECT_GE(near, 15);
  EXPECT_GE(coded, 12);
}

TEST(Tuner, MoreThanTwoRanksTryARing) {
  Machine machine;
  const TuningTable table = machine.tune(3);
  EXPECT_TRUE(table.seconds({"exact", PlanKind::kRing}, 1 << 20).has_value());
  EXPECT_TRUE(table.seconds({"int8/128", PlanKind::kRing}, 1 << 20).has_value());
  EXPECT_FALSE(table.seconds({"bf16", PlanKind::kRing}, 1 << 20).has_value());
}

TEST(Tuner, KeepsToItsBudgetOnMachinesOfAnySpeed) {
  for (const auto& [size, colder] : {std::pair(2, 1.0), {2, 1.5}, {4, 1.0}, {4, 1.5}}) {
    for (double ns_per_byte = 0.01; ns_per_byte < 3000; ns_per_byte *= 1.37) {
      Machine machine;
      machine.ns_per_byte = ns_per_byte;
      machine.colder = colder;
      const TuningTable table = machine.tune(size);
      const double seconds = static_cast<double>(machine.clock.now_ns()) * 1e-9;
      EXPECT_LE(seconds, 0.2) << size << " ranks, " << ns_per_byte << " ns per byte, " << colder;
      EXPECT_GE(ways_at(table, 1 << 10), colder * ns_per_byte < 1000 ? 8U : 2U);
    }
  }
}

// Where they are longest, one size is measured as seldom as need be: by four calls, and a fifth by
// which ranks agree.
TEST(Tuner, KeepsToItsBudgetWhereCallsAreLong) {
  for (const double latency_s : {5e-3, 10e-3, 15e-3, 20e-3, 30e-3, 38e-3, 60e-3}) {
    for (const int size : {2, 4}) {
      Machine machine;
      machine.latency_s = latency_s;
      const TuningTable table = machine.tune(size);
      const double seconds = static_cast<double>(machine.clock.now_ns()) * 1e-9;
      EXPECT_LE(seconds, std::max(0.2, 5.1 * latency_s)) << size << " ranks, " << latency_s;
      EXPECT_FALSE(table.empty());
      if (latency_s <= 30e-3) continue;
      EXPECT_EQ(machine.sizes.size(), 4U) << size << " ranks, " << latency_s;
    }
  }
}

// What was planned by the first look at each size takes three times as long: up to 219 ms, and 239
// if all turns that were planned were made.
TEST(Tuner, NearlyKeepsToItsBudgetWhereItsCoresAreTakenMeanwhile) {
  for (double from_s = 0.02; from_s < 0.2; from_s += 0.01) {
    Machine machine;
    machine.slow_from_s = from_s;
    const TuningTable table = machine.tune(2);
    EXPECT_LE(static_cast<double>(machine.clock.now_ns()) * 1e-9, 0.225) << from_s;
    EXPECT_FALSE(table.empty());
  }
}

double seconds_at(const TuningTable& table, size_t bytes) {
  return table.seconds({"exact", PlanKind::kTwoStep}, bytes).value();
}

TEST(Tuner, AKnownTableThatHoldsCostsAFewCalls) {
  Machine machine;
  const TuningTable table = machine.tune(2);
  const size_t calls = machine.sizes.size();
  const int64_t begun_ns = machine.clock.now_ns();
  EXPECT_EQ(machine.tune(2, &table).to_text(""), table.to_text(""));
  EXPECT_EQ(machine.sizes.size() - calls, 6U + 4 * 2) << "64 KiB, then each size up to 16 MiB";
  EXPECT_LT(static_cast<double>(machine.clock.now_ns() - begun_ns) * 1e-9, 0.05);
}

// The link has slowed down ten times since: the look at what was known and the new measurement
// together keep to the budget of one.
TEST(Tuner, LooksAtAKnownTableWithinTheBudget) {
  for (const double latency_s : {0.0, 1e-3, 3e-3, 5e-3}) {
    for (double ns_per_byte = 0.02; ns_per_byte < 300; ns_per_byte *= 1.37) {
      Machine machine;
      machine.latency_s = latency_s;
      machine.ns_per_byte = ns_per_byte;
      const TuningTable before = machine.tune(2);
      const int64_t begun_ns = machine.clock.now_ns();
      machine.ns_per_byte *= 10;
      const TuningTable after = machine.tune(2, &before);
      const double seconds = static_cast<double>(machine.clock.now_ns() - begun_ns) * 1e-9;
      EXPECT_LE(seconds, 0.2) << latency_s << " s, " << ns_per_byte << " ns per byte";
      if (latency_s > 0) continue;
      EXPECT_GT(seconds_at(after, 16 << 20), 5 * seconds_at(before, 16 << 20)) << ns_per_byte;
    }
  }
}

// However slow it has become, also where a latency hides that from small arrays.
TEST(Tuner, NoticesAFallenRateBehindALatencyWithinTheBudget) {
  for (const double latency_s : {0.5e-3, 1e-3, 2e-3, 4e-3, 6e-3}) {
    for (const double times : {10, 30, 100}) {
      Machine machine;
      machine.latency_s = latency_s;
      machine.ns_per_byte = 1;
      const TuningTable before = machine.tune(2);
      const int64_t begun_ns = machine.clock.now_ns();
      machine.ns_per_byte *= times;
      const TuningTable after = machine.tune(2, &before);
      EXPECT_LE(static_cast<double>(machine.clock.now_ns() - begun_ns) * 1e-9, 0.2)
          << latency_s << " s, " << times << " times slower";
      EXPECT_GT(after.points().size(), ways_at(after, 1 << 10)) << latency_s << ' ' << times;
      // Behind more, the table had seen no bytes, and held to 1 Gbit/s.
      if (latency_s > 2e-3) continue;
      EXPECT_GT(seconds_at(after, 16 << 20), 0.5 * times * 16e-3) << latency_s << ' ' << times;
    }
  }
}

// Its last size was looked at once, behind another way: it takes half as long as was said.
TEST(Tuner, AKnownTableOfColdLooksHolds) {
  Machine machine;
  machine.latency_s = 8e-3;
  machine.ns_per_byte = 8;
  machine.colder = 2.2;
  const TuningTable table = machine.tune(2);
  ASSERT_TRUE(table.points().back().is_rough);
  EXPECT_EQ(machine.tune(2, &table).to_text(""), table.to_text(""));
  machine.ns_per_byte = 800;
  EXPECT_NE(machine.tune(2, &table).to_text(""), table.to_text("")) << "and is still watched";
}

TEST(Tuner, WhereTimeIsShortTwoCodecsSpeakForAll) {
  Machine machine;
  machine.ns_per_byte = 0.9;
  const TuningTable table = machine.tune(2);
  EXPECT_EQ(ways_at(table, 4 << 20), 4U);
  EXPECT_EQ(ways_at(table, 16 << 20), 2U);
  const TuningWay way{"bf16", PlanKind::kTwoStep};
  EXPECT_NEAR(table.seconds(way, 16 << 20).value() / machine.seconds_of(way, 16 << 20), 1, 0.05);
}

// They take by two_step what they take of themselves, whatever went before.
void expect_short_calls(const Machine& machine, const TuningTable& table, std::string_view codec) {
  const TuningWay way{codec, PlanKind::kTwoStep};
  for (const size_t bytes : {1 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20}) {
    EXPECT_NEAR(table.seconds(way, bytes).value(), machine.seconds_of(way, bytes), 2e-9) << bytes;
  }
}

TEST(Tuner, TimesShortCallsBehindAnotherOfTheSameWay) {
  Machine machine;
  machine.colder = 1.5;
  const TuningTable table = machine.tune(2);
  expect_short_calls(machine, table, "int8/128");
}

// A new group's first calls are slow; the short ones, which they would spoil, come last.
TEST(Tuner, CountsShortCallsAfterLongOnes) {
  Machine machine;
  machine.slow_until_s = 0.04;
  const TuningTable table = machine.tune(2);
  EXPECT_EQ(machine.sizes.back(), size_t{1} << 10);
  expect_short_calls(machine, table, "exact");
}

TEST(TuningProbes, TheRestIsLeftWhereFewWaysThenReachTheNextSize) {
  EXPECT_TRUE(rest_fits(0.064, 0.256, 0.330));
  EXPECT_FALSE(rest_fits(0.064, 0.256, 0.300)) << "it would bar the next size";
  EXPECT_TRUE(rest_fits(0.064, 0.256, 0.200)) << "the next size is out of reach anyway";
  EXPECT_FALSE(rest_fits(0.064, 0.256, 0.060));
  EXPECT_TRUE(rest_fits(0.064, 0, 0.070)) << "there is no next size";
  // No latency: nothing was called that took less with fewer bytes.
  const auto seen = [](size_t bytes) { return FewSeen{bytes, 0.8, 0.2, std::nullopt}; };
  EXPECT_EQ(least_seconds_at(0, seen(1 << 10), 2, 1), 0);
  EXPECT_DOUBLE_EQ(least_seconds_at(1, seen(1 << 10), 2, 1), 16 * 3);
  EXPECT_DOUBLE_EQ(least_seconds_at(5, seen(1 << 20), 2, 1), 2 * 4)
      << "four times the bytes, half as many calls";
  EXPECT_DOUBLE_EQ(least_seconds_at(6, seen(4 << 20), 2, 1), 4 * 4);
  EXPECT_EQ(least_seconds_at(7, seen(16 << 20), 2, 1), 0);
  const FewSeen waiting = {1 << 10, 0.5, 0.5, std::nullopt};
  EXPECT_NEAR(least_seconds_at(1, waiting, 2, 1), 3, 0.01) << "it is latency";
}

TEST(TuningProbes, ALookFurtherTakesNoMoreThanIsLeft) {
  const FewSeen far = {1 << 10, 20e-3, 20e-3, std::nullopt};
  EXPECT_EQ(further_size(far, 2, 99e-3), size_t{64} << 10) << "256 KiB may take 99.4 ms";
  EXPECT_EQ(further_size(far, 2, 100e-3), size_t{256} << 10);
  EXPECT_EQ(further_size(far, 2, 61e-3), 0U);
  EXPECT_GT(further_seconds(far, 8, 256 << 10), further_seconds(far, 2, 256 << 10));
  const FewSeen slower = {1 << 10, 21e-3, 20e-3, std::nullopt};
  EXPECT_EQ(further_size(slower, 2, 100e-3), size_t{16} << 10) << "by what int8 saved";
  const FewSeen quick = {1 << 10, 5e-6, 5e-6, std::nullopt};
  EXPECT_NEAR(further_seconds(quick, 2, 16 << 10), 255e-6, 1e-6) << "in proportion";
  const FewSeen slow = {64 << 10, 80e-3, 20e-3, 1e-6};
  EXPECT_NEAR(further_seconds(slow, 2, 256 << 10), 1.5 * (0.1 + 192 * 1024e-6), 1e-3);
  EXPECT_EQ(further_size(slow, 2, 10), size_t{256} << 10) << "one size at a time";
  EXPECT_EQ(further_size({16 << 20, 1, 1, 1e-8}, 2, 100), 0U);
}

TEST(TuningProbes, WaysOfTwoRanksAndOfMore) {
  const auto ways = probe_ways(64 << 10, {4});
  ASSERT_EQ(ways.size(), 11U);
  EXPECT_EQ(ways[0], (TuningWay{"exact", PlanKind::kTwoStep}));
  EXPECT_EQ(ways[1], (TuningWay{"int8/128", PlanKind::kTwoStep}));
  const std::span<const TuningWay> rest = std::span(ways).subspan(few_ways(64 << 10, {4}));
  ASSERT_EQ(rest.size(), 9U);
  const FewSeen bytes_count = {64 << 10, 512e-6, 130e-6, std::nullopt};
  EXPECT_DOUBLE_EQ(rest_turn_seconds(rest, 4, bytes_count, 1e-3), (2 + 4 * 3 + 2 + 1) * 1e-3);
  const FewSeen latency = {64 << 10, 512e-6, 512e-6, std::nullopt};
  EXPECT_DOUBLE_EQ(rest_turn_seconds(rest, 4, latency, 1e-3), (2 + 4 + 2 + 1) * 1e-3);
  EXPECT_EQ(probe_ways(1 << 20, {2}).size(), 8U);
  EXPECT_EQ(ways.back(), (TuningWay{"exact", PlanKind::kTree}));
  EXPECT_EQ(probe_ways(1 << 20, {4}).size(), 7U);
  EXPECT_EQ(probe_ways(4 << 20, {4}).size(), 6U);
  EXPECT_EQ(probe_ways(4 << 20, {2}).size(), 4U);
}

// What untuned calls go by is measured at every size that is: more than two ranks a CPU.
TEST(TuningProbes, TreesAreFewOfRanksThatShareCpus) {
  const PlanGround crowded = {8, nullptr, 2};
  for (const size_t bytes : {size_t{1} << 10, size_t{1} << 20}) {
    ASSERT_EQ(few_ways(bytes, crowded), 3U);
    const auto ways = probe_ways(bytes, crowded);
    EXPECT_EQ(ways[0], (TuningWay{"exact", PlanKind::kTwoStep}));
    EXPECT_EQ(ways[1], (TuningWay{"int8/128", PlanKind::kTwoStep}));
    EXPECT_EQ(ways[2], (TuningWay{"exact", PlanKind::kTree}));
    EXPECT_EQ(std::ranges::count(ways, ways[2]), 1);
    EXPECT_EQ(ways.size(), probe_ways(bytes, {8}).size());
  }
  EXPECT_EQ(few_ways(4 << 20, crowded), 2U);
  for (const int cpus : {0, 4, 8}) EXPECT_EQ(few_ways(1 << 10, {8, nullptr, cpus}), 2U);
}

// What hosts of several ranks send by two_step crosses the wire once per rank: measured to compare.
TEST(TuningProbes, RanksThatShareHostsAddUpThereFirst) {
  const auto topology = topology_of_hosts(std::vector<int>{0, 0, 1, 1});
  const auto ways = probe_ways(4 << 20, {4, topology.get()});
  EXPECT_EQ(ways, (std::vector<TuningWay>{{"exact", PlanKind::kHierarchical},
                                          {"int8/128", PlanKind::kHierarchical},
                                          {"bf16", PlanKind::kHierarchical},
                                          {"int4/128", PlanKind::kHierarchical},
                                          {"exact", PlanKind::kRing},
                                          {"int8/128", PlanKind::kRing},
                                          {"exact", PlanKind::kTwoStep},
                                          {"bf16", PlanKind::kTwoStep},
                                          {"int8/128", PlanKind::kTwoStep},
                                          {"int4/128", PlanKind::kTwoStep}}));
}

std::vector<PlanKind> plans_of(const std::vector<TuningWay>& ways) {
  std::vector<PlanKind> plans;
  for (const TuningWay& way : ways) {
    if (std::find(plans.begin(), plans.end(), way.plan) == plans.end()) plans.push_back(way.plan);
  }
  return plans;
}

// Beside the plan that the rule takes (kAuto), what the cost model finds as quick on such links.
TEST(TuningProbes, OnWiresTheQuickestPlansByTheModelAreMeasuredToo) {
  using Plans = std::vector<PlanKind>;
  const auto plans_on = [](const char* name, size_t bytes) {
    const auto wires = open_topology(name, kUnknownBytesPerSecond, 0).value();
    return plans_of(probe_ways(bytes, {wires->ranks(), wires.get()}));
  };
  EXPECT_EQ(plans_on("ring8", 4 << 20), (Plans{PlanKind::kAuto, PlanKind::kHierarchical}));
  EXPECT_EQ(plans_on("ring8", 1 << 10).front(), PlanKind::kAuto);
  EXPECT_EQ(plans_on("torus2x4", 4 << 20), Plans{PlanKind::kAuto}) << "others are far behind";
  EXPECT_EQ(plans_on("torus2x2", 4 << 20), (Plans{PlanKind::kAuto, PlanKind::kBidirectionalRing}));
  const auto star = make_topology("star8", 31.25e6, 0).value();
  const auto ways = probe_ways(4 << 20, {8, star.get()});
  EXPECT_EQ(plans_of(ways),
            (Plans{PlanKind::kTwoStep, PlanKind::kRing, PlanKind::kBidirectionalRing}));
  EXPECT_EQ(ways[0], (TuningWay{"exact", PlanKind::kTwoStep}));
  EXPECT_EQ(ways[1], (TuningWay{"int8/128", PlanKind::kTwoStep}));
}

TEST(Tuner, KeepsToItsBudgetOnWires) {
  for (const char* name : {"ring4", "ring8", "torus2x4", "star8"}) {
    const auto wires = make_topology(name).value();
    for (double ns_per_byte = 0.01; ns_per_byte < 3000; ns_per_byte *= 1.9) {
      Machine machine;
      machine.ns_per_byte = ns_per_byte;
      const TuningTable table = machine.tune(wires->ranks(), nullptr, wires.get());
      EXPECT_LE(static_cast<double>(machine.clock.now_ns()) * 1e-9, 0.2) << name << ns_per_byte;
      EXPECT_FALSE(table.empty());
    }
  }
}

TEST(TuningProbes, ShortTurnsAreManyAndOdd) {
  EXPECT_EQ(probe_turns(0), 21);
  EXPECT_EQ(probe_turns(100e-6), 21);
  EXPECT_EQ(probe_turns(1e-3), 9);
  EXPECT_EQ(probe_turns(1), 3);
  EXPECT_DOUBLE_EQ(seconds_to_come(1), 2);
}

TEST(TuningProbes, WhatIsLeftOfTheBudgetGoesIntoTurns) {
  EXPECT_DOUBLE_EQ(affordable_turns_seconds({0.010}, 0.019), kTurnsSeconds);
  const double each_s = affordable_turns_seconds({0.010, 0.001}, 0.100);
  EXPECT_GT(probe_turns(0.010, each_s), 5);
  EXPECT_LE(seconds_to_come(0.010, each_s) + seconds_to_come(0.001, each_s), 0.100);
}

TEST(TuningProbes, ALongerArrayTakesNoLessTime) {
  std::vector<TuningPoint> points;
  for (const double seconds : {1.0, 8.0, 2.0, 5.0, 4.9}) {
    points.push_back({{}, points.size() + 1, seconds});
  }
  make_monotone(points);
  const double last = std::sqrt(5.0 * 4.9);
  for (const auto& [i, seconds] :
       std::map<size_t, double>{{0, 1.0}, {1, 4.0}, {2, 4.0}, {3, last}, {4, last}}) {
    EXPECT_NEAR(points[i].seconds, seconds, 1e-12) << i;
  }
}

}  // namespace
}  // namespace tersum
