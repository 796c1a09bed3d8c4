#include "runtime/group_id.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace tersum {

uint64_t derive_group_id(uint64_t parent, uint64_t split, int64_t color) {
  const uint64_t words[3] = {parent, split, static_cast<uint64_t>(color)};
  return XXH3_64bits(words, sizeof(words));
}

uint64_t device_group_id(uint64_t world, std::span<const int64_t> devices) {
  return XXH3_64bits_withSeed(devices.data(), devices.size_bytes(), world);
}

uint64_t mix_digests(uint64_t a, uint64_t b) {
  const uint64_t words[2] = {a, b};
  return XXH3_64bits(words, sizeof(words));
}

uint64_t text_digest(std::string_view text) { return XXH3_64bits(text.data(), text.size()); }

}  // namespace tersum
