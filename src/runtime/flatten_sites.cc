#include "runtime/flatten_sites.h"

#include <algorithm>
#include <string>
#include <utility>

#include "base/check.h"
#include "runtime/sealed_bytes.h"

namespace tersum {
namespace {

// An entry: its key, its channels (8 bytes each) and its state. In place of channels a clip's has 0
// and levels have 1, and then a digest of its calls.
constexpr std::string_view kMagic = "tersumF1";
constexpr size_t kSiteHeadBytes = 16;
constexpr size_t kClipMark = 0;
constexpr size_t kLevelsMark = 1;

Status not_saved(std::string_view what) {
  return invalid_argument("these bytes are no saved flatten states: " + std::string(what) +
                          "; pass what save_flatten() returned");
}

// The states that are keyed by a site and a digest of its calls.
template <class Site>
using CallSites = std::map<std::pair<uint64_t, uint64_t>, Site>;

template <class Site>
Site* find_or_make_call(CallSites<Site>& sites, uint64_t site, uint64_t call) {
  const auto found = sites.find({site, call});
  if (found != sites.end()) return &found->second;
  if (sites.size() >= FlattenSites::kSitesMax) return nullptr;
  return &sites[{site, call}];
}

template <class Site>
void save_calls(const CallSites<Site>& sites, size_t mark, SealedWriter& saved) {
  for (const auto& [key, entry] : sites) {
    saved.add(key.first);
    saved.add(mark);
    saved.add(key.second);
    entry.state.save(saved.add_room(decltype(entry.state)::kSavedBytes));
  }
}

// Behind the mark. What is wrong, if anything is.
template <class Site>
std::string_view read_call(SealedReader& reader, uint64_t site, CallSites<Site>& sites) {
  constexpr size_t kStateBytes = decltype(Site::state)::kSavedBytes;
  if (reader.left() < 8 + kStateBytes) return "ends early";
  const auto [entry, is_new] = sites.try_emplace({site, reader.take_number()});
  if (!is_new) return "stands twice";
  return entry->second.state.load(reader.take(kStateBytes)) ? "" : "has no state";
}

// There is room for all.
template <class Site>
void put_calls(const CallSites<Site>& loaded, CallSites<Site>& sites) {
  for (const auto& [key, entry] : loaded) {
    find_or_make_call(sites, key.first, key.second)->state = entry.state;
  }
}

}  // namespace

Status learning_in_flight() {
  return invalid_argument(
      "a call with +flatten, +clip or kmeans, or one with auto that learns channels, is in flight; "
      "wait() for it first");
}

void SiteLine::leave(const Operation* operation) {
  line.erase(std::remove(line.begin(), line.end(), operation), line.end());
}

FlattenSite* FlattenSites::find_or_make(uint64_t site, size_t channels) {
  const auto found = sites_.find({site, channels});
  if (found != sites_.end()) return &found->second;
  if (sites_.size() >= kSitesMax) return nullptr;
  return &sites_.try_emplace({site, channels}, channels).first->second;
}

std::unique_ptr<const ChannelState> FlattenSites::copy_channels(uint64_t site,
                                                                size_t channels) const {
  const auto found = sites_.find({site, channels});
  if (found == sites_.end() || found->second.state.factors() == nullptr) return nullptr;
  std::vector<std::byte> saved(found->second.state.saved_bytes());
  found->second.state.save(saved);
  auto copy = std::make_unique<ChannelState>(channels);
  TERSUM_CHECK(copy->load(saved));
  return copy;
}

ClipSite* FlattenSites::find_or_make_clip(uint64_t site, uint64_t call) {
  return find_or_make_call(clips_, site, call);
}

LevelsSite* FlattenSites::find_or_make_levels(uint64_t site, uint64_t codec) {
  return find_or_make_call(levels_, site, codec);
}

Status FlattenSites::check_idle() const {
  const auto is_busy = [](const auto& entry) { return !entry.second.line.empty(); };
  if (std::none_of(sites_.begin(), sites_.end(), is_busy) &&
      std::none_of(clips_.begin(), clips_.end(), is_busy) &&
      std::none_of(levels_.begin(), levels_.end(), is_busy)) {
    return {};
  }
  return learning_in_flight();
}

Status FlattenSites::reset(std::optional<uint64_t> site) {
  TERSUM_RETURN_IF_ERROR(check_idle());
  const auto is_meant = [&](const auto& entry) {
    return !site.has_value() || entry.first.first == *site;
  };
  // The room of a site, too: ranks that know the same have the same room left.
  std::erase_if(sites_, is_meant);
  std::erase_if(clips_, is_meant);
  std::erase_if(levels_, is_meant);
  return {};
}

Result<std::vector<std::byte>> FlattenSites::save() const {
  TERSUM_RETURN_IF_ERROR(check_idle());
  SealedWriter saved(kMagic, sites_.size() + clips_.size() + levels_.size());
  for (const auto& [key, entry] : sites_) {
    saved.add(key.first);
    saved.add(key.second);
    entry.state.save(saved.add_room(entry.state.saved_bytes()));
  }
  save_calls(clips_, kClipMark, saved);
  save_calls(levels_, kLevelsMark, saved);
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
    if (key.second == kClipMark || key.second == kLevelsMark) {
      const std::string_view fault = key.second == kClipMark
                                         ? read_call(reader, site, loaded.clips)
                                         : read_call(reader, site, loaded.levels);
      if (!fault.empty()) return not_saved(name + " " + std::string(fault));
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

bool FlattenSites::has_room(const Loaded& loaded) const {
  const auto fits = [](const auto& more, const auto& known) {
    const auto is_new = [&](const auto& entry) { return !known.contains(entry.first); };
    const auto added = std::count_if(more.begin(), more.end(), is_new);
    return known.size() + static_cast<size_t>(added) <= kSitesMax;
  };
  return fits(loaded.sites, sites_) && fits(loaded.clips, clips_) && fits(loaded.levels, levels_);
}

Status FlattenSites::put(Loaded loaded) {
  if (!has_room(loaded)) {
    return invalid_argument("more than " + std::to_string(kSitesMax) + " flatten sites");
  }
  for (auto& [key, entry] : loaded.sites) {
    find_or_make(key.first, key.second)->state = std::move(entry.state);
  }
  put_calls(loaded.clips, clips_);
  put_calls(loaded.levels, levels_);
  return {};
}

Status FlattenSites::load(std::span<const std::byte> saved) {
  TERSUM_RETURN_IF_ERROR(check_idle());
  Result<Loaded> loaded = read(saved);
  if (!loaded.ok()) return loaded.status();
  return put(std::move(loaded).value());
}

}  // namespace tersum
