// Bell-shaped values from a seed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <random>
#include <vector>

namespace tersum {

// N(0, 1) times `scale`.
inline std::vector<float> normal_floats(uint64_t seed, size_t count, float scale = 1) {
  std::mt19937_64 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> values(count);
  for (float& value : values) value = scale * normal(random);
  return values;
}

}  // namespace tersum
