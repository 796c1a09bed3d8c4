// What a fuzz target reads its input with. Reading past the end gives zeros.
//
// Thread safety: one thread.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>
#include <vector>

namespace tersum {

class FuzzInput {
 public:
  FuzzInput(const uint8_t* data, size_t size) : rest_(data, size) {}

  uint8_t byte() {
    if (rest_.empty()) return 0;
    const uint8_t first = rest_.front();
    rest_ = rest_.subspan(1);
    return first;
  }
  // The next byte, which stays.
  [[nodiscard]] uint8_t peek() const { return rest_.empty() ? 0 : rest_.front(); }
  uint32_t below(uint32_t limit) {
    const uint32_t low = byte();
    return (low | uint32_t{byte()} << 8) % limit;
  }
  template <class Value>
  const Value& one_of(std::span<const Value> values) {
    return values[byte() % values.size()];
  }
  // The next `count` bytes. Where there are fewer they are used over and over.
  std::vector<std::byte> bytes(size_t count) {
    std::vector<std::byte> out(count);
    const size_t period = std::min(rest_.size(), count);
    for (size_t at = 0; at < count && period > 0; at += period) {
      std::memcpy(out.data() + at, rest_.data(), std::min(period, count - at));
    }
    // The last bytes stay for whoever asks next.
    if (rest_.size() > count) rest_ = rest_.subspan(count);
    return out;
  }
  [[nodiscard]] std::span<const std::byte> rest() const { return std::as_bytes(rest_); }
  [[nodiscard]] std::string_view text() const {
    return {reinterpret_cast<const char*>(rest_.data()), rest_.size()};
  }

 private:
  std::span<const uint8_t> rest_;
};

}  // namespace tersum
