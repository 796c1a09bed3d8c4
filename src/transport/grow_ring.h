// GrowRing: a first-in-first-out queue that keeps its memory at the high-water mark.
//
// Thread safety: none. Invariant: allocates only when it is fuller than ever before. Popping resets
// the element to T(), so that what it owned is given back at once.
#pragma once

#include <cstddef>
#include <utility>
#include <vector>

namespace tersum {

template <typename T>
class GrowRing {
 public:
  [[nodiscard]] bool empty() const { return count_ == 0; }
  [[nodiscard]] size_t size() const { return count_; }
  // The i-th element from the front.
  T& at(size_t i) { return items_[(first_ + i) & (items_.size() - 1)]; }
  T& front() { return at(0); }

  T& push() {
    if (count_ == items_.size()) grow();
    return at(count_++);
  }
  void pop() {
    front() = T();
    first_ = (first_ + 1) & (items_.size() - 1);
    --count_;
  }
  void clear() {
    while (!empty()) pop();
  }

 private:
  void grow() {
    // A power of two, so that wrapping is a mask.
    std::vector<T> bigger(items_.empty() ? 64 : 2 * items_.size());
    for (size_t i = 0; i < count_; ++i) bigger[i] = std::move(at(i));
    items_ = std::move(bigger);
    first_ = 0;
  }

  std::vector<T> items_;
  size_t first_ = 0;
  size_t count_ = 0;
};

}  // namespace tersum
