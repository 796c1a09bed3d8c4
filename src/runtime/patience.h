// Patience: what a thread does that waits for its peers, round after round in which nothing moved.
//
// It spins while an answer may come any moment, then gives way to others, then sleeps. How long it
// spins depends on whose core it holds. Where its peers need it, every round spun keeps back the
// very answer that is waited for: eight ranks on two cores reduce 64 KiB in 130 us if they yield at
// once, in 230 if they spin. Where every rank has a CPU, whoever else wants this one gets the
// system's whole slice for a yield, some 4 ms: beside a busy process on one of two cores, two ranks
// reduce 64 KiB in shared memory in 11 us if they spin for 100 us first, in 1,460 if for 10.
//
// Thread safety: none; one waiter.
#pragma once

#include <algorithm>
#include <cstdint>

namespace tersum {

enum class WaitStep { kSpin, kYield, kSleep };

class Patience {
 public:
  // Of one more round in which nothing moved. `cpu_each`: a caller blocks, and each rank of this
  // host has a CPU, as far as they say.
  WaitStep next(bool cpu_each) {
    ++rounds_;
    const bool longer = cpu_each && distrust_ == 0;
    const int spins = longer ? kLongSpins : crowded() ? 0 : kSpins;
    if (longer && rounds_ == kLongSpins && ++in_vain_ == kInVainMax) {
      in_vain_ = 0;
      distrust_ = kDistrustedWaits;
    }
    if (rounds_ <= spins) return WaitStep::kSpin;
    return rounds_ <= kRoundsAwake ? WaitStep::kYield : WaitStep::kSleep;
  }
  // Something moved: what was waited for has come.
  void ended() {
    if (rounds_ == 0) return;
    if (rounds_ < kLongSpins) in_vain_ = 0;
    distrust_ = std::max(distrust_ - 1, 0);
    rounds_ = 0;
  }
  // A yield came back after that long. One that finds nobody else takes half a microsecond.
  void yielded(int64_t ns) {
    slow_yields_ = ns >= kSlowYieldNs ? std::min(slow_yields_ + 1, kSlowYieldsCrowded) : 0;
  }

 private:
  // A round takes about half a microsecond.
  static constexpr int kSpins = 20;
  static constexpr int kLongSpins = 200;
  static constexpr int kRoundsAwake = 220;
  static constexpr int64_t kSlowYieldNs = 3'000;
  // Several slow yields say that others want this core.
  static constexpr int kSlowYieldsCrowded = 2;
  // Long spins that ended nothing, one wait after another, say that the ranks' CPUs are not theirs
  // alone after all, other jobs' ranks may want them. It is tried again after so many waits.
  static constexpr int kInVainMax = 4;
  static constexpr int kDistrustedWaits = 256;

  [[nodiscard]] bool crowded() const { return slow_yields_ >= kSlowYieldsCrowded; }

  int rounds_ = 0;  // of this wait
  int slow_yields_ = 0;
  int in_vain_ = 0;
  int distrust_ = 0;
};

}  // namespace tersum
