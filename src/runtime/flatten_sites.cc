#include "runtime/flatten_sites.h"

#include <algorithm>
#include <string>
#include <utility>

#include "runtime/sealed_bytes.h"

namespace tersum {
namespace {

// An entry: its key, its channels (8 bytes each) and its state. A clip's has 0 channels and then a
// digest of its calls.
constexpr std::string_view kMagic = "tersumF1";
constexpr size_t kSiteHeadBytes = 16;
constexpr size_t kClipBytes = 8 + LearnedClip::kSavedBytes;

Status not_saved(std::string_view what) {
  return invalid_argument("these bytes are no saved flatten states: " + std::string(what) +
                          "; pass what save_flatten() returned");
}

}  // namespace

void SiteLine::leave(const Operation* operation) {
  line.erase(std::remove(line.begin(), line.end(), operation), line.end());
}

FlattenSite* FlattenSites::find_or_make(uint64_t site, size_t channels) {
  const auto found = sites_.find({site, channels});
  if (found != sites_.end()) return &found->second;
  if (sites_.size() >= kSitesMax) return nullptr;
  return &sites_.try_emplace({site, channels}, channels).first->second;
}

ClipSite* FlattenSites::find_or_make_clip(uint64_t site, uint64_t call) {
  const auto found = clips_.find({site, call});
  if (found != clips_.end()) return &found->second;
  if (clips_.size() >= kSitesMax) return nullptr;
  return &clips_[{site, call}];
}

Status FlattenSites::check_idle() const {
  const auto is_busy = [](const auto& entry) { return !entry.second.line.empty(); };
  if (std::none_of(sites_.begin(), sites_.end(), is_busy) &&
      std::none_of(clips_.begin(), clips_.end(), is_busy)) {
    return {};
  }
  return invalid_argument("a call with +flatten or +clip is in flight; wait() for it first");
}

Status FlattenSites::reset(std::optional<uint64_t> site) {
  TERSUM_RETURN_IF_ERROR(check_idle());
  const auto is_meant = [&](const auto& entry) {
    return !site.has_value() || entry.first.first == *site;
  };
  // The room of a site, too: ranks that know the same have the same room left.
  std::erase_if(sites_, is_meant);
  std::erase_if(clips_, is_meant);
  return {};
}

Result<std::vector<std::byte>> FlattenSites::save() const {
  TERSUM_RETURN_IF_ERROR(check_idle());
  SealedWriter saved(kMagic, sites_.size() + clips_.size());
  for (const auto& [key, entry] : sites_) {
    saved.add(key.first);
    saved.add(key.second);
    entry.state.save(saved.add_room(entry.state.saved_bytes()));
  }
  for (const auto& [key, entry] : clips_) {
    saved.add(key.first);
    saved.add(0);
    saved.add(key.second);
    entry.state.save(saved.add_room(LearnedClip::kSavedBytes));
  }
  return std::move(saved).seal();
}

Result<FlattenSites::Loaded> FlattenSites::read(std::span<const std::byte> saved) {
  Result<SealedReader> opened = SealedReader::open(saved, kMagic);
  if (!opened.ok()) return not_saved(opened.status().message());
  SealedReader& reader = opened.value();
  Loaded loaded;
  for (uint64_t i = 0; i < reader.entries(); ++i) {
    const std::string name = "site " + std::to_string(i);
    if (reader.left() < kSiteHeadBytes) return not_saved("they end early");
    const uint64_t site = reader.take_number();
    const Key key{site, reader.take_number()};
    if (key.second == 0) {
      if (reader.left() < kClipBytes) return not_saved("they end early");
      const ClipKey clip{site, reader.take_number()};
      const auto [entry, is_new] = loaded.clips.try_emplace(clip);
      if (!is_new) return not_saved(name + " stands twice");
      if (!entry->second.state.load(reader.take(LearnedClip::kSavedBytes))) {
        return not_saved(name + " has no clip");
      }
      continue;
    }
    if (key.second < 2 || key.second > ChannelState::kChannelsMax || loaded.sites.contains(key)) {
      return not_saved(name + " has " + std::to_string(key.second) + " channels, or stands twice");
    }
    ChannelState& state = loaded.sites.try_emplace(key, key.second).first->second.state;
    if (reader.left() < state.saved_bytes() || !state.load(reader.take(state.saved_bytes()))) {
      return not_saved(name + " has no state");
    }
  }
  if (reader.left() > 0) return not_saved("something stands behind the last site");
  return loaded;
}

Status FlattenSites::put(Loaded loaded) {
  Status full = invalid_argument("more than " + std::to_string(kSitesMax) + " flatten sites");
  for (auto& [key, entry] : loaded.sites) {
    FlattenSite* const site = find_or_make(key.first, key.second);
    if (site == nullptr) return full;
    site->state = std::move(entry.state);
  }
  for (const auto& [key, entry] : loaded.clips) {
    ClipSite* const site = find_or_make_clip(key.first, key.second);
    if (site == nullptr) return full;
    site->state = entry.state;
  }
  return {};
}

Status FlattenSites::load(std::span<const std::byte> saved) {
  TERSUM_RETURN_IF_ERROR(check_idle());
  Result<Loaded> loaded = read(saved);
  if (!loaded.ok()) return loaded.status();
  return put(std::move(loaded).value());
}

}  // namespace tersum
