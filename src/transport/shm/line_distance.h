// LineDistance: whether a peer's cores are far, by how long lines take that it has just written.
//
// Cores of one last-level cache hand a line over in 25 to 95 ns (a large mesh takes up to 125 for
// one in seven), those of different chiplets or sockets in 150 to 250: longer than memory itself
// takes. Ordinary stores to what the peer has read fetch every line back from there. Hosts move
// virtual CPUs from one case to the other within seconds, so that the question is asked all the
// time.
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
  static constexpr int64_t kFarNs = 130;
  // Some lines of a far peer are near already, because a prefetcher guessed right: more than one in
  // seven that are not makes it far. One in ten, as interrupts make of a near peer, does not.
  static constexpr int kStep = 6;
  static constexpr int kScoreMax = 32;
  static constexpr int kScoreFar = 16;
  static constexpr int kScoreNear = 4;

  int score_ = 0;
  bool far_ = false;
};

}  // namespace tersum
