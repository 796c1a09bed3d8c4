// SimClock and SimRandom: time and randomness that only a simulation moves.
//
// Thread safety: none; a simulation runs in one thread. Invariant: equal seeds, equal sequences, on
// every platform.
#pragma once

#include <cstdint>

#include "base/clock.h"

namespace tersum {

class SimClock final : public Clock {
 public:
  [[nodiscard]] int64_t now_ns() const override { return now_ns_; }

 private:
  friend class SimNetwork;
  int64_t now_ns_ = 1'000'000'000;  // not 0, so that "never" and "long ago" stand out
};

// SplitMix64.
class SimRandom final : public Random {
 public:
  explicit SimRandom(uint64_t seed) : state_(seed) {}
  uint64_t next() override {
    uint64_t mixed = state_ += 0x9E3779B97F4A7C15u;
    mixed = (mixed ^ (mixed >> 30)) * 0xBF58476D1CE4E5B9u;
    mixed = (mixed ^ (mixed >> 27)) * 0x94D049BB133111EBu;
    return mixed ^ (mixed >> 31);
  }
  // Uniform in [0, bound); 0 for a bound of 0 (the bias of the remainder is far below what a
  // simulation could notice).
  uint64_t below(uint64_t bound) { return bound == 0 ? 0 : next() % bound; }
  bool chance(double probability) {
    return static_cast<double>(next() >> 11) * 0x1p-53 < probability;
  }

 private:
  uint64_t state_;
};

}  // namespace tersum
