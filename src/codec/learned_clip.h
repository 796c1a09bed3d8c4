// LearnedClip: what +clip:learned knows at one call site, learned from the reports of its calls
// (clip_report.h), after PAMS: the largest magnitude worth coding follows the gradient of the
// squared error, one step a call.
//
// Every rank has the same sum of the same reports, and so the same state, with no exchange.
//
// Thread safety: none. Invariants: arithmetic is that of float64 in a fixed order, so the state's
// bits depend on the reports alone, not on the CPU; clips are finite, at least 0.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "codec/clip_report.h"
#include "codec/codec.h"

namespace tersum {

class LearnedClip {
 public:
  // A clip that has not been wrong about its way yet moves by a tenth; that grows while the way
  // stays the same and halves where it turns. Near the best clip the error is flat: 1/256 off costs
  // nothing that can be measured.
  static constexpr double kRateFirst = 0.1;
  static constexpr double kRateMost = 0.25;
  // Of a clip that is used: a longer step may go past the best and lose more than blocks do.
  static constexpr double kRateTrusted = 1.0 / 8;
  static constexpr double kRateLeast = 1.0 / 256;
  // Calls before a clip is trusted.
  static constexpr uint64_t kCallsMin = 3;
  // A clip that loses so many times what blocks lose, or that no value comes half as far as, has
  // nothing to do with the data any more. (What is far below a step says nothing in steps.)
  static constexpr int64_t kLostTimes = 16;

  // What all slices of a call reported, of every rank.
  void learn(const ClipReport& report);

  // True where the clip of contributions and, if finished sums are coded, that of sums were last
  // seen to lose no more than the scales of blocks do.
  [[nodiscard]] bool holds(bool codes_sums) const {
    return contributions_.trusted && (!codes_sums || sums_.trusted);
  }
  [[nodiscard]] ClipFactors factors(uint32_t ranks) const;
  // 64 bits of everything that makes the next calls what they are. Equal states have equal digests.
  [[nodiscard]] uint64_t digest() const;

  // For contributions, then sums: clip, rate, direction, calls, trusted, each 8 bytes,
  // little-endian.
  static constexpr size_t kSavedBytes = 80;
  void save(std::span<std::byte> to) const;
  // False, and the state untouched, if `from` is nothing that save() writes.
  [[nodiscard]] bool load(std::span<const std::byte> from);

 private:
  struct Side {
    double clip = 0;
    double rate = 0;
    int64_t direction = 0;  // of the last step: -1, 0 or 1
    uint64_t calls = 0;     // that said something
    bool trusted = false;

    void learn(const ClipPart& part);
    void begin(double absmax);
    void step(int64_t pull);
  };

  static void save_side(const Side& side, std::byte* to);
  static bool load_side(const std::byte* from, Side& side);

  Side contributions_;
  Side sums_;
};

}  // namespace tersum
