// ObservedRows: the rows of one call's sums that +flatten looks at, in float32, as slices brought
// them: of 16-bit types before their values were rounded.
//
// Thread safety: none. Invariants: rows are evenly spaced, every step-th from the first on; what is
// read of a slice does not depend on the order of slices.
#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

#include "codec/channel_state.h"

namespace tersum {

class ObservedRows {
 public:
  // Of an array of `count` values, a multiple of `channels`. clear() keeps up to 1 MiB of memory.
  void reset(size_t count, size_t channels) {
    channels_ = channels;
    step_ = ChannelState::row_step(count / channels);
    values_.resize((count / channels + step_ - 1) / step_ * channels);
  }
  void clear() {
    constexpr size_t kKeptValues = size_t{1} << 18;
    values_.clear();
    if (values_.capacity() > kKeptValues) values_.shrink_to_fit();
  }
  [[nodiscard]] bool is_empty() const { return values_.empty(); }

  // What is not observed lies between; `row`: in the array, a multiple of step().
  [[nodiscard]] const float* row(size_t row) const {
    return values_.data() + row / step_ * channels_;
  }
  [[nodiscard]] size_t step() const { return step_; }
  [[nodiscard]] size_t rows() const { return values_.size() / channels_; }

  // Calls read(begin, part, to) for every stretch of observed values in first..first+count-1 of the
  // array, for it to put them at `to`.
  template <class Read>
  void read_stretches(size_t first, size_t count, const Read& read) {
    if (step_ == 1) return read(first, count, values_.data() + first);
    const size_t last = first + count;
    const size_t apart = step_ * channels_;
    for (size_t row = first / apart; row * apart < last; ++row) {
      const size_t begin = std::max(first, row * apart);
      const size_t end = std::min(last, row * apart + channels_);
      if (begin >= end) continue;
      read(begin, end - begin, values_.data() + row * channels_ + (begin - row * apart));
    }
  }

 private:
  size_t channels_ = 1;
  size_t step_ = 1;
  std::vector<float> values_;
};

}  // namespace tersum
