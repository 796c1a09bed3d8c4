#include "runtime/flatten_shelf.h"

#include <algorithm>
#include <string>
#include <utility>

#include "runtime/feedback_sites.h"
#include "runtime/flatten_sites.h"
#include "runtime/sealed_bytes.h"

namespace tersum {
namespace {

using Shelf = std::map<uint64_t, std::vector<std::byte>>;

// An entry: its digest, a length (8 bytes each) and so many bytes.
constexpr std::string_view kFlattenMagic = "tersumW1";
constexpr std::string_view kFeedbackMagic = "tersumX1";
constexpr size_t kEntryHeadBytes = 16;

Status not_packed(std::string_view states, std::string_view what) {
  return invalid_argument("these bytes are no saved " + std::string(states) +
                          " states: " + std::string(what) + "; pass what tersum.jax.save_" +
                          std::string(states) + "() returned");
}

std::vector<std::byte> pack(std::string_view magic, const Shelf& shelf) {
  SealedWriter packed(magic, shelf.size());
  for (const auto& [digest, saved] : shelf) {
    packed.add(digest);
    packed.add(saved.size());
    std::copy(saved.begin(), saved.end(), packed.add_room(saved.size()).begin());
  }
  return std::move(packed).seal();
}

// `Sites`: whose load() each entry must pass.
template <class Sites>
Result<Shelf> unpack(std::string_view magic, std::string_view states,
                     std::span<const std::byte> packed) {
  Result<SealedReader> opened = SealedReader::open(packed, magic);
  if (!opened.ok()) return not_packed(states, opened.status().message());
  SealedReader& reader = opened.value();
  Shelf shelf;
  for (uint64_t i = 0; i < reader.entries(); ++i) {
    if (reader.left() < kEntryHeadBytes) return not_packed(states, "they end early");
    const uint64_t digest = reader.take_number();
    const uint64_t bytes = reader.take_number();
    if (bytes > reader.left()) return not_packed(states, "they end early");
    const std::span<const std::byte> saved = reader.take(bytes);
    Sites sites;
    TERSUM_RETURN_IF_ERROR(sites.load(saved));
    shelf[digest].assign(saved.begin(), saved.end());
  }
  if (reader.left() > 0) return not_packed(states, "something stands behind the last entry");
  return shelf;
}

}  // namespace

std::vector<std::byte> pack_shelf(const FlattenShelf& shelf) { return pack(kFlattenMagic, shelf); }
Result<FlattenShelf> unpack_shelf(std::span<const std::byte> packed) {
  return unpack<FlattenSites>(kFlattenMagic, "flatten", packed);
}

std::vector<std::byte> pack_feedback(const FeedbackShelf& shelf) {
  return pack(kFeedbackMagic, shelf);
}
Result<FeedbackShelf> unpack_feedback(std::span<const std::byte> packed) {
  return unpack<FeedbackSites>(kFeedbackMagic, "feedback", packed);
}

}  // namespace tersum
