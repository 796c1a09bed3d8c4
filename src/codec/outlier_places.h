// OutlierPlaces: which values of an array travelled as outliers of +sparse.
//
// Thread safety: none. Invariants: which places are marked does not depend on the order in which
// they were, nor on how often.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/check.h"

namespace tersum {

class OutlierPlaces {
 public:
  // Of an array of `count` values: none. Memory is taken with the first mark, and kept.
  void reset(size_t count) {
    count_ = count;
    words_.clear();
  }
  void mark(size_t place) {
    TERSUM_CHECK(place < count_);
    if (words_.empty()) words_.assign(count_ / kWordBits + 1, 0);
    words_[place / kWordBits] |= uint64_t{1} << (place % kWordBits);
  }
  [[nodiscard]] bool is_empty() const { return words_.empty(); }

  // Calls take(place - begin) for every marked place of begin..end-1, in ascending order.
  template <class Take>
  void for_each(size_t begin, size_t end, const Take& take) const {
    for (size_t at = begin; at < end && !words_.empty();) {
      const size_t next = (at / kWordBits + 1) * kWordBits;
      uint64_t word = words_[at / kWordBits] >> (at % kWordBits);
      for (; word != 0; word &= word - 1) {
        const size_t place = at + static_cast<size_t>(std::countr_zero(word));
        if (place >= end) return;
        take(place - begin);
      }
      at = next;
    }
  }

 private:
  static constexpr size_t kWordBits = 64;

  size_t count_ = 0;
  std::vector<uint64_t> words_;
};

}  // namespace tersum
