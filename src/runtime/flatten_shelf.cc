#include "runtime/flatten_shelf.h"

#include <cstring>
#include <string>

#include "base/bytes.h"
#include "runtime/flatten_sites.h"
#include "runtime/group_id.h"

namespace tersum {
namespace {

// This text, the number of groups; for each its devices' digest, a length and so many bytes; at the
// end the digest of all before.
constexpr std::string_view kMagic = "tersumW1";
constexpr size_t kHeadBytes = 16;
constexpr size_t kDigestBytes = 8;

uint64_t digest_of(std::span<const std::byte> bytes) {
  return text_digest({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
}

Status not_packed(const char* what) {
  return invalid_argument(std::string("these bytes are no saved flatten states: ") + what +
                          "; pass what tersum.jax.save_flatten() returned");
}

}  // namespace

std::vector<std::byte> pack_shelf(const FlattenShelf& shelf) {
  size_t bytes = kHeadBytes + kDigestBytes;
  for (const auto& [group, saved] : shelf) bytes += 16 + saved.size();
  std::vector<std::byte> packed(bytes);
  std::memcpy(packed.data(), kMagic.data(), kMagic.size());
  store_le(packed.data() + kMagic.size(), static_cast<uint64_t>(shelf.size()));
  std::byte* to = packed.data() + kHeadBytes;
  for (const auto& [group, saved] : shelf) {
    store_le(to, group);
    store_le(to + 8, static_cast<uint64_t>(saved.size()));
    std::memcpy(to + 16, saved.data(), saved.size());
    to += 16 + saved.size();
  }
  store_le(to, digest_of(std::span(packed).first(bytes - kDigestBytes)));
  return packed;
}

Result<FlattenShelf> unpack_shelf(std::span<const std::byte> packed) {
  if (packed.size() < kHeadBytes + kDigestBytes ||
      std::memcmp(packed.data(), kMagic.data(), kMagic.size()) != 0) {
    return not_packed("they begin otherwise");
  }
  const size_t end = packed.size() - kDigestBytes;
  if (load_le<uint64_t>(packed.data() + end) != digest_of(packed.first(end))) {
    return not_packed("their digest is not that of their content");
  }
  FlattenShelf shelf;
  size_t at = kHeadBytes;
  for (auto left = load_le<uint64_t>(packed.data() + kMagic.size()); left > 0; --left) {
    if (end - at < 16) return not_packed("they end early");
    const auto group = load_le<uint64_t>(packed.data() + at);
    const auto bytes = load_le<uint64_t>(packed.data() + at + 8);
    at += 16;
    if (bytes > end - at) return not_packed("they end early");
    const std::span<const std::byte> saved = packed.subspan(at, bytes);
    FlattenSites sites;
    TERSUM_RETURN_IF_ERROR(sites.load(saved));
    shelf[group].assign(saved.begin(), saved.end());
    at += bytes;
  }
  if (at != end) return not_packed("something stands behind the last group");
  return shelf;
}

}  // namespace tersum
