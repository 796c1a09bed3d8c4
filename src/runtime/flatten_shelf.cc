#include "runtime/flatten_shelf.h"

#include <algorithm>
#include <string>
#include <utility>

#include "runtime/flatten_sites.h"
#include "runtime/sealed_bytes.h"

namespace tersum {
namespace {

// An entry: its devices' digest, a length (8 bytes each) and so many bytes.
constexpr std::string_view kMagic = "tersumW1";
constexpr size_t kEntryHeadBytes = 16;

Status not_packed(std::string_view what) {
  return invalid_argument("these bytes are no saved flatten states: " + std::string(what) +
                          "; pass what tersum.jax.save_flatten() returned");
}

}  // namespace

std::vector<std::byte> pack_shelf(const FlattenShelf& shelf) {
  SealedWriter packed(kMagic, shelf.size());
  for (const auto& [group, saved] : shelf) {
    packed.add(group);
    packed.add(saved.size());
    std::copy(saved.begin(), saved.end(), packed.add_room(saved.size()).begin());
  }
  return std::move(packed).seal();
}

Result<FlattenShelf> unpack_shelf(std::span<const std::byte> packed) {
  Result<SealedReader> opened = SealedReader::open(packed, kMagic);
  if (!opened.ok()) return not_packed(opened.status().message());
  SealedReader& reader = opened.value();
  FlattenShelf shelf;
  for (uint64_t i = 0; i < reader.entries(); ++i) {
    if (reader.left() < kEntryHeadBytes) return not_packed("they end early");
    const uint64_t group = reader.take_number();
    const uint64_t bytes = reader.take_number();
    if (bytes > reader.left()) return not_packed("they end early");
    const std::span<const std::byte> saved = reader.take(bytes);
    FlattenSites sites;
    TERSUM_RETURN_IF_ERROR(sites.load(saved));
    shelf[group].assign(saved.begin(), saved.end());
  }
  if (reader.left() > 0) return not_packed("something stands behind the last group");
  return shelf;
}

}  // namespace tersum
