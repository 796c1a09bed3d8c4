// What a tuning measures, how often, and when it has seen enough.
//
// Thread safety: pure functions.
#pragma once

#include <array>
#include <cstddef>
#include <optional>
#include <span>
#include <vector>

#include "runtime/tuning/time_model.h"
#include "runtime/usual_plan.h"

namespace tersum {

// Sizes of the arrays in bytes. Steps are smaller where arrays come to leave the caches: between
// two of them time is close to a line or a power law.
inline constexpr std::array<size_t, 7> kProbeSizes = {1 << 10, 16 << 10, 64 << 10, 256 << 10,
                                                      1 << 20, 4 << 20,  16 << 20};
// Calls of one way in a row, of which the last is timed: programs call the same again and again,
// and find its memory in the caches. From 4 MiB on it is not there in any case.
inline int calls_in_a_row(size_t bytes) { return bytes < (4 << 20) ? 2 : 1; }
// The same of exact values of ranks that reach each other's arrays, from that size on: behind other
// ways four ranks take 2.3 to 2.8 ms for 4 MiB, 1.4 in the fourth call of a row, two ranks 3.9 to
// 4.8 and 2.2 for 16 MiB.
inline constexpr int kReachingCallsInARow = 4;
inline constexpr size_t kReachingBytesMin = 4 << 20;
// Turns before the first that counts, which also shows how long a turn takes: to warm up, where no
// call before the timed one does.
inline int turns_before(size_t bytes) { return calls_in_a_row(bytes) > 1 ? 0 : 1; }
// Turns that are counted, odd. Short calls, whose times vary most, are measured often.
inline constexpr int kTurnsMin = 3;
inline constexpr int kTurnsMax = 21;

// The ways of a group for arrays of `bytes`: every tuning codec by two_step and, while small,
// by one_shot; of more than two ranks also a ring, with one codec that quantizes and one that does
// not, and, while small, exact by a tree. Where hosts hold several ranks hierarchical is in
// two_step's place, which comes last. On a topology whose ranks are not all neighbours: the plan
// that the rule of thumb takes there. Where links are missing or rates described also the two plans
// that the cost model finds quickest. The first two are two codecs by the main plan: they tell how
// time grows where there is no time for all.
std::vector<TuningWay> probe_ways(size_t bytes, const PlanGround& ground);
// How many of them are measured at every size that is: these two, and exact by a tree where a call
// that nobody measured would go by it, so that tuning does not take from it what it had.
size_t few_ways(size_t bytes, const PlanGround& ground);

// How many turns of `turn_s` each are counted: as many as `all_s` has room for.
inline constexpr double kTurnsSeconds = 8e-3;
int probe_turns(double turn_s, double all_s = kTurnsSeconds);

// What is left to do at a size whose first turns have been made.
inline double seconds_to_come(double turn_s, double all_s = kTurnsSeconds) {
  return (probe_turns(turn_s, all_s) - 1) * turn_s;
}

// How long the turns of each size may take together so that those of all sizes, one of which takes
// turns_s[i], fit into what is left: at least kTurnsSeconds, more where larger sizes were out of
// reach.
double affordable_turns_seconds(const std::vector<double>& turns_s, double left_s);

// A longer array takes no less time: where noise says so, the times of both are made equal.
// `points` are one way's, by size.
void make_monotone(std::span<TuningPoint> points);

// What the fewest turns take of ways that take `turn_s` together, none made yet.
inline double least_seconds(size_t bytes, double turn_s) {
  return turn_s * (turns_before(bytes) + kTurnsMin);
}

// The first two ways at the largest size so far, as called once each.
struct FewSeen {
  size_t bytes = 0;
  double exact_s = 0;
  double coded_s = 0;
  std::optional<double> seconds_per_byte;  // together, since the size before, if there was one
};

// What exact values take on links of 100 Mbit/s, the slowest that is reckoned with, less latency.
double slow_seconds(int size, size_t bytes);

// How many times as long `bytes` are taken to take: in proportion, unless latency is more of it. A
// byte costs what it has cost since the size before, or, by what one codec saves, at the first; and
// as much as where links carry 100 Mbit/s, if it seemed to cost less.
double expected_growth(const FewSeen& seen, int size, size_t bytes);

// What the fewest turns of these take at the size number `i`, when one took `turn_s` at the size
// before; 0 where there is no such size.
double least_seconds_at(size_t i, const FewSeen& seen, int size, double turn_s);

// What a call of each is taken to take with `bytes`, behind another, arrays of that size included.
double further_seconds(const FewSeen& seen, int size, size_t bytes);

// The next size, if it fits into what is left; the largest that does where one has been seen only,
// so that what a byte costs can be told from latency. 0: none.
size_t further_size(const FewSeen& seen, int size, double left_s);

// A guess at a turn of `rest`, the ways behind the few, by the mean call of these: the others'
// codecs have as many bytes on average, or fewer.
double rest_turn_seconds(std::span<const TuningWay> rest, int size, const FewSeen& seen,
                         double mean_s);

// Whether these are measured, too, when the fewest turns of them take `rest_s`: if that fits into
// what is left, and is not what keeps few ways of the next size, which take `next_s`, from fitting.
inline bool rest_fits(double rest_s, double next_s, double left_s) {
  return rest_s <= left_s && (rest_s + next_s <= left_s || next_s > left_s);
}

}  // namespace tersum
