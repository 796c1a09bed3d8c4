#include "runtime/flatten_sites.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>

#include "base/bytes.h"
#include "base/check.h"
#include "runtime/group_id.h"

namespace tersum {
namespace {

// A saved file: this text, the number of sites; then for each site its key, its channels and its
// state; at the end the digest of all before.
constexpr std::string_view kMagic = "tersumF1";
constexpr size_t kSiteHeadBytes = 16;
constexpr size_t kHeadBytes = 16;
constexpr size_t kDigestBytes = 8;

std::string_view as_text(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

Status not_saved(const std::string& what) {
  return invalid_argument("these bytes are no saved flatten states: " + what +
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
  size_t bytes = kHeadBytes + kDigestBytes;
  for (const auto& [key, entry] : sites_) bytes += kSiteHeadBytes + entry.state.saved_bytes();
  std::vector<std::byte> saved(bytes);
  std::memcpy(saved.data(), kMagic.data(), kMagic.size());
  store_le(saved.data() + kMagic.size(), static_cast<uint64_t>(sites_.size()));
  size_t at = kHeadBytes;
  for (const auto& [key, entry] : sites_) {
    store_le(saved.data() + at, key.first);
    store_le(saved.data() + at + 8, static_cast<uint64_t>(key.second));
    at += kSiteHeadBytes;
    entry.state.save(std::span(saved).subspan(at, entry.state.saved_bytes()));
    at += entry.state.saved_bytes();
  }
  store_le(saved.data() + at, text_digest(as_text(std::span(saved).first(at))));
  return saved;
}

Status FlattenSites::load(std::span<const std::byte> saved) {
  TERSUM_RETURN_IF_ERROR(check_idle());
  if (saved.size() < kHeadBytes + kDigestBytes ||
      std::memcmp(saved.data(), kMagic.data(), kMagic.size()) != 0) {
    return not_saved("they do not begin with \"" + std::string(kMagic) + "\"");
  }
  const size_t end = saved.size() - kDigestBytes;
  if (load_le<uint64_t>(saved.data() + end) != text_digest(as_text(saved.first(end)))) {
    return not_saved("their digest is not that of their content");
  }
  const auto count = load_le<uint64_t>(saved.data() + kMagic.size());
  std::map<Key, FlattenSite> loaded;
  size_t at = kHeadBytes;
  for (uint64_t i = 0; i < count; ++i) {
    if (end - at < kSiteHeadBytes) return not_saved("they end early");
    const Key key{load_le<uint64_t>(saved.data() + at), load_le<uint64_t>(saved.data() + at + 8)};
    at += kSiteHeadBytes;
    if (key.second < 2 || key.second > ChannelState::kChannelsMax || loaded.contains(key)) {
      return not_saved("site " + std::to_string(i) + " has " + std::to_string(key.second) +
                       " channels, or stands twice");
    }
    ChannelState& state = loaded.try_emplace(key, key.second).first->second.state;
    if (end - at < state.saved_bytes() || !state.load(saved.subspan(at, state.saved_bytes()))) {
      return not_saved("site " + std::to_string(i) + " has no state");
    }
    at += state.saved_bytes();
  }
  if (at != end) return not_saved("something stands behind the last site");
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
