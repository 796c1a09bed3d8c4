#include "platform/cache_size.h"

#include <charconv>

#include "platform/small_file.h"

namespace tersum {
namespace {

constexpr int kCachesMax = 16;
constexpr size_t kTextMax = 64;

// What `path` begins with, 0 if that is no number, and the character behind it.
size_t number_in(const std::string& path, char* unit = nullptr) {
  std::string text;
  if (read_small_file(path, kTextMax, &text) != 0) return 0;
  size_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc()) return 0;
  if (unit != nullptr && end != text.data() + text.size()) *unit = *end;
  return number;
}

size_t bytes_of(char unit) {
  switch (unit) {
    case 'K':
      return size_t{1} << 10;
    case 'M':
      return size_t{1} << 20;
    default:
      return 1;
  }
}

}  // namespace

size_t last_level_cache_bytes(const std::string& folder) {
  size_t last_level = 0;
  size_t bytes = 0;
  for (int i = 0; i < kCachesMax; ++i) {
    const std::string index = folder + "/index" + std::to_string(i);
    const size_t level = number_in(index + "/level");
    if (level == 0) break;
    if (level <= last_level) continue;
    char unit = ' ';
    const size_t number = number_in(index + "/size", &unit);
    last_level = level;
    bytes = number * bytes_of(unit);
  }
  return bytes;
}

size_t last_level_cache_bytes() {
  static const size_t bytes = last_level_cache_bytes("/sys/devices/system/cpu/cpu0/cache");
  return bytes;
}

}  // namespace tersum
