// LineDistance: whether a peer's cores are far, by how long lines take that it has just written.
//
// Cores of one last-level cache hand a line over in 25 to 80 ns, those of different chiplets or
// sockets in 120 to 250: longer than memory itself takes. Ordinary stores to what the peer has read
// fetch every line back from there. Hosts move virtual CPUs from one case to the other within
// seconds, so that the question is asked all the time.
//
// Thread safety: none.
#pragma once

#include <algorithm>
#include <cstdint>

namespace tersum {

class LineDistance {
 public:
  // A line that the peer may have written since it was last looked at came after `ns`, in which the
  // clock's own 20 to 30 are.
  void note(int64_t ns) {
    score_ = std::clamp(score_ + (ns >= kFarNs ? kStep : -1), 0, kScoreMax);
    if (score_ >= kScoreFar) far_ = true;
    if (score_ <= kScoreNear) far_ = false;
  }
  [[nodiscard]] bool far() const { return far_; }

 private:
  static constexpr int64_t kFarNs = 110;
  // Some lines of a far peer are near already, because a prefetcher guessed right: one in five that
  // are not makes it far. One in ten, as interrupts make of a near peer, does not.
  static constexpr int kStep = 4;
  static constexpr int kScoreMax = 32;
  static constexpr int kScoreFar = 16;
  static constexpr int kScoreNear = 4;

  int score_ = 0;
  bool far_ = false;
};

}  // namespace tersum
