#include "runtime/flatten_sites.h"

#include <algorithm>
#include <string>
#include <utility>

#include "runtime/sealed_bytes.h"

namespace tersum {
namespace {

// An entry: its key, its channels (8 bytes each) and its state.
constexpr std::string_view kMagic = "tersumF1";
constexpr size_t kSiteHeadBytes = 16;

Status not_saved(std::string_view what) {
  return invalid_argument("these bytes are no saved flatten states: " + std::string(what) +
                          "; pass what save_flatten() returned");
}

}  // namespace

void FlattenSite::leave(const Operation* operation) {
  line.erase(std::remove(line.begin(), line.end(), operation), line.end());
}

FlattenSite* FlattenSites::find_or_make(uint64_t site, size_t channels) {
  const auto found = sites_.find({site, channels});
  if (found != sites_.end()) return &found->second;
  if (sites_.size() >= kSitesMax) return nullptr;
  return &sites_.try_emplace({site, channels}, channels).first->second;
}

Status FlattenSites::check_idle() const {
  const bool busy = std::any_of(sites_.begin(), sites_.end(),
                                [](const auto& entry) { return !entry.second.line.empty(); });
  if (!busy) return {};
  return invalid_argument("a call with +flatten is in flight; wait() for it first");
}

Status FlattenSites::reset(std::optional<uint64_t> site) {
  TERSUM_RETURN_IF_ERROR(check_idle());
  for (auto& [key, entry] : sites_) {
    if (!site.has_value() || key.first == *site) entry.state.reset();
  }
  return {};
}

Result<std::vector<std::byte>> FlattenSites::save() const {
  TERSUM_RETURN_IF_ERROR(check_idle());
  SealedWriter saved(kMagic, sites_.size());
  for (const auto& [key, entry] : sites_) {
    saved.add(key.first);
    saved.add(key.second);
    entry.state.save(saved.add_room(entry.state.saved_bytes()));
  }
  return std::move(saved).seal();
}

Status FlattenSites::load(std::span<const std::byte> saved) {
  TERSUM_RETURN_IF_ERROR(check_idle());
  Result<SealedReader> opened = SealedReader::open(saved, kMagic);
  if (!opened.ok()) return not_saved(opened.status().message());
  SealedReader& reader = opened.value();
  std::map<Key, FlattenSite> loaded;
  for (uint64_t i = 0; i < reader.entries(); ++i) {
    if (reader.left() < kSiteHeadBytes) return not_saved("they end early");
    const uint64_t site = reader.take_number();
    const Key key{site, reader.take_number()};
    if (key.second < 2 || key.second > ChannelState::kChannelsMax || loaded.contains(key)) {
      return not_saved("site " + std::to_string(i) + " has " + std::to_string(key.second) +
                       " channels, or stands twice");
    }
    ChannelState& state = loaded.try_emplace(key, key.second).first->second.state;
    if (reader.left() < state.saved_bytes() || !state.load(reader.take(state.saved_bytes()))) {
      return not_saved("site " + std::to_string(i) + " has no state");
    }
  }
  if (reader.left() > 0) return not_saved("something stands behind the last site");
  for (auto& [key, entry] : loaded) {
    if (FlattenSite* const site = find_or_make(key.first, key.second)) {
      site->state = std::move(entry.state);
    } else {
      return invalid_argument("more than " + std::to_string(kSitesMax) + " flatten sites");
    }
  }
  return {};
}

}  // namespace tersum
