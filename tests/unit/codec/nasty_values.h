// Arrays of values that codecs find hard, from a seed.
#pragma once

#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "codec/kernels/numbers.h"
#include "tersum/data_type.h"

namespace tersum {

// Magnitudes of a run of values; every run of up to 200 draws one.
inline float nasty_float(std::mt19937_64& random, int mood) {
  std::normal_distribution<float> normal;
  switch (mood) {
    case 0:
      return normal(random);
    case 1:
      return normal(random) * 0x1p125f;  // sums overflow, scales are clamped
    case 2:
      return normal(random) * 0x1p-124f;  // scales are denormal
    case 3:
      return normal(random) * 0x1p-146f;  // values are denormal
    case 4:
      return 0.0f * normal(random);  // both zeros
    case 5:                          // exact halves between codes, where ties show
      return static_cast<float>(static_cast<int64_t>(random() % 511) - 255) * 0.5f;
    case 6:
      return random() % 3 == 0 ? std::numeric_limits<float>::max() : normal(random);
    case 7:
      return (random() % 2 == 0 ? 65504.0f : 65519.0f) - static_cast<float>(random() % 40);
    case 8:
      return -1.3f;  // blocks of one value
    case 9:
      return random() % 40 == 0 ? std::numeric_limits<float>::quiet_NaN() : normal(random);
    case 10:
      return random() % 40 == 0 ? -std::numeric_limits<float>::infinity() : normal(random);
    default:
      return std::bit_cast<float>(static_cast<uint32_t>(random()));  // anything, NaN payloads too
  }
}
inline constexpr int kNastyMoods = 12;
// Moods whose values are all finite in float32.
inline constexpr int kFiniteMoods = 9;

inline std::vector<float> nasty_floats(uint64_t seed, size_t count, int moods = kNastyMoods) {
  std::mt19937_64 random(seed);
  std::vector<float> values(count);
  for (size_t i = 0; i < count;) {
    // Half of all runs are tame, so that a slice is not one NaN after the other.
    const int mood = random() % 2 == 0 ? 0 : static_cast<int>(random() % moods);
    const size_t end = std::min(count, i + 1 + random() % 200);
    for (; i < end; ++i) values[i] = nasty_float(random, mood);
  }
  return values;
}

// `count` elements of `type`, in raw bytes: floats as above, integers at random.
inline std::vector<std::byte> nasty_elements(uint64_t seed, size_t count, DataType type) {
  std::vector<std::byte> bytes(count * element_bytes(type));
  if (!is_floating(type)) {
    std::mt19937_64 random(seed);
    for (auto& byte : bytes) byte = static_cast<std::byte>(random());
    return bytes;
  }
  const std::vector<float> values = nasty_floats(seed, count);
  for (size_t i = 0; i < count; ++i) {
    std::byte* const at = bytes.data() + i * element_bytes(type);
    if (type == DataType::kFloat32) store_unaligned(at, values[i]);
    if (type == DataType::kBFloat16) store_unaligned(at, float_to_bf16(values[i]));
    if (type == DataType::kFloat16) store_unaligned(at, float_to_half(values[i]));
    if (type == DataType::kFloat64) store_unaligned(at, double{values[i]} * 1.0000000001);
  }
  return bytes;
}

// Memory of `bytes` that begins `offset` bytes after a 64-byte boundary, with guard bytes around
// it.
class GuardedBytes {
 public:
  GuardedBytes(size_t bytes, size_t offset) : bytes_(bytes) {
    memory_.assign(bytes + 64 + offset + 2 * kGuard, kFill);
    const auto address = reinterpret_cast<uintptr_t>(memory_.data()) + kGuard;
    begin_ = kGuard + (64 - address % 64) % 64 + offset;
  }
  [[nodiscard]] std::byte* data() { return memory_.data() + begin_; }
  [[nodiscard]] const std::byte* data() const { return memory_.data() + begin_; }
  [[nodiscard]] std::vector<std::byte> copy() const { return {data(), data() + bytes_}; }
  void fill(const std::vector<std::byte>& from) {
    if (!from.empty()) std::memcpy(data(), from.data(), from.size());
  }
  // False if anything was written outside.
  [[nodiscard]] bool intact() const {
    for (size_t i = 0; i < memory_.size(); ++i) {
      if ((i < begin_ || i >= begin_ + bytes_) && memory_[i] != kFill) return false;
    }
    return true;
  }

 private:
  static constexpr size_t kGuard = 128;
  static constexpr std::byte kFill{0xa5};
  size_t bytes_;
  size_t begin_ = 0;
  std::vector<std::byte> memory_;
};

}  // namespace tersum
