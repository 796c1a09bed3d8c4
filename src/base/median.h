// The median of measurements.
//
// Pure. Of an even number the upper one of the two in the middle.
#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

namespace tersum {

// `samples` is not empty.
inline double median(std::vector<double> samples) {
  const auto middle = samples.begin() + static_cast<ptrdiff_t>(samples.size() / 2);
  std::nth_element(samples.begin(), middle, samples.end());
  return *middle;
}

}  // namespace tersum
