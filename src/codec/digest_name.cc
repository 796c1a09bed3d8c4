#include "codec/digest_name.h"

#include <cstdint>

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace tersum {

std::string digest_name(std::span<const std::byte> bytes) {
  constexpr size_t kDigits = 16;
  const uint64_t digest = XXH3_64bits(bytes.data(), bytes.size());
  std::string text(kDigits, '0');
  for (size_t i = 0; i < kDigits; ++i) {
    text[i] = "0123456789abcdef"[digest >> (4 * (kDigits - 1 - i)) & 15U];
  }
  return text;
}

}  // namespace tersum
