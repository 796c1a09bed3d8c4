// LineDistance: whether a peer's cores are far, by how long lines take that it has just written.
//
// Cores of one last-level cache hand a line over in 25 to 95 ns, and a large mesh takes 100 or more
// for one in seven; a line from another chiplet or socket is here after 90 to 140 ns, or 250, four
// of five after 100 or more. Ordinary stores to what such a peer has read fetch every line back
// from there. Hosts move virtual CPUs from one case to the other within seconds, so that the
// question is asked all the time.
//
// Thread safety: none.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "base/clock.h"

namespace tersum {

class LineDistance {
 public:
  // `line` is one that the peer may have written since it was last looked at.
  void time(const Clock& clock, const std::byte* line) {
    // Volatile: nothing uses what is read. The second time it is here, so that what remains is the
    // clock itself. (A clock that does not wait for loads, as on Arm, shows every peer near.)
    const auto* const lies = static_cast<const volatile std::byte*>(line);
    const int64_t begin_ns = clock.now_ns();
    static_cast<void>(*lies);
    const int64_t come_ns = clock.now_ns();
    static_cast<void>(*lies);
    note((come_ns - begin_ns) - (clock.now_ns() - come_ns));
  }
  // It came after `ns`.
  void note(int64_t ns) {
    score_ = std::clamp(score_ + (ns >= kFarNs ? kStep : -1), 0, kScoreMax);
    if (score_ >= kScoreFar) far_ = true;
    if (score_ <= kScoreNear) far_ = false;
  }
  [[nodiscard]] bool far() const { return far_; }

 private:
  static constexpr int64_t kFarNs = 100;
  // More than one line in three makes a peer far: between the one in seven of a near mesh and the
  // three in four of a far chiplet, where a prefetcher has guessed some. A peer that is taken for
  // what it is not stays so for a hundred arrivals, so that the score has far to go: by chance, one
  // in seven reaches 24 once in some millions of lines, as three in four come back to 8.
  static constexpr int kStep = 2;
  static constexpr int kScoreMax = 32;
  static constexpr int kScoreFar = 24;
  static constexpr int kScoreNear = 8;

  int score_ = 0;
  bool far_ = false;
};

}  // namespace tersum
