// LineDistance: whether a peer's cores are far, by how long lines take that it has just written.
//
// Cores of one last-level cache hand a line over in 25 to 95 ns, and a large mesh takes 100 or more
// for one in seven; from another chiplet or socket most are here after 90 to 140 ns, or 250.
// Ordinary stores to what such a peer has read fetch every line back from there. Hosts move virtual
// CPUs from one case to the other within seconds, so that the question is asked all the time.
//
// Where ranks share cores, or fill the caches, a near peer's line may have been evicted before it
// is looked at, and then takes as long as a far one's; of two ranks of one core most lines are
// either here at once or gone. But almost no far line comes in the time of a near one, so that such
// a one outweighs eight that are late.
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
    score_ = std::clamp(score_ + step_of(ns), 0, kScoreMax);
    if (score_ >= kScoreFar) far_ = true;
    if (score_ <= kScoreNear) far_ = false;
  }
  [[nodiscard]] bool far() const { return far_; }

 private:
  // Between the two that come closest: a near mesh, of whose lines one in nine takes longer, and
  // far chiplets, of whose lines two in three do. Both may be 10 ns off.
  static constexpr int64_t kFarNs = 105;
  // A prefetcher has guessed some lines of a far peer, which are here at once. Of those that were
  // recorded one in 3,000 and one in 360 took 20 to 80 ns (one in 1,000 and in 180 if all took 10
  // ns less), of a near one's nearly a fifth or more.
  static constexpr int64_t kGuessedNs = 20;
  static constexpr int64_t kNearNs = 80;
  // Without such, more than one late line in three makes a peer far. Interrupts, and lines that are
  // still being written, delay some of a near one.
  static int step_of(int64_t ns) {
    if (ns >= kFarNs) return 2;
    return ns >= kGuessedNs && ns < kNearNs ? -16 : -1;
  }
  static constexpr int kScoreMax = 56;
  static constexpr int kScoreFar = 32;
  static constexpr int kScoreNear = 8;

  int score_ = 0;
  bool far_ = false;
};

}  // namespace tersum
