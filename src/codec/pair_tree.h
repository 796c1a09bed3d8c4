// Streams of one tile, added pair by pair in their order: first to second, third to fourth, then
// the two results, and so on. What is left over at the end, where their number is no power of two,
// is added from the back. Sums of 2^k streams may come in their place, where they would have been.
//
// Thread safety: none. Keeps one stream for each power of two up to their number.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

#include "base/check.h"

namespace tersum {

// 2^kPairRoundsMax streams.
inline constexpr size_t kPairRoundsMax = 12;

template <size_t kBytes>
class PairTree {
 public:
  // Of streams of `bytes`, at most kBytes.
  explicit PairTree(size_t bytes) : bytes_(bytes) {}

  // The next stream, or the sum of the next `held` ones. `join(first, second)` adds the stream
  // `second` to `first`.
  template <class Join>
  void add(const std::byte* stream, const Join& join, uint32_t held = 1) {
    TERSUM_CHECK(depth_ <= kPairRoundsMax && streams_ % held == 0);
    std::copy_n(stream, bytes_, waiting_[depth_].begin());
    ++depth_;
    streams_ += held;
    // As many halves are complete as the number of sums of that many ends in zero bits.
    for (size_t sums = streams_ / held; sums % 2 == 0; sums /= 2) join_last(join);
  }

  // The sum of all.
  template <class Join>
  const std::byte* sum(const Join& join) {
    TERSUM_CHECK(depth_ > 0);
    while (depth_ > 1) join_last(join);
    return waiting_[0].data();
  }

 private:
  template <class Join>
  void join_last(const Join& join) {
    --depth_;
    join(waiting_[depth_ - 1].data(), waiting_[depth_].data());
  }

  size_t bytes_;
  size_t streams_ = 0;
  size_t depth_ = 0;
  // Sums of 2^k streams that wait for their other half.
  std::array<std::array<std::byte, kBytes>, kPairRoundsMax + 1> waiting_;
};

}  // namespace tersum
