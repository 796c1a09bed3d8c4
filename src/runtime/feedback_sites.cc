#include "runtime/feedback_sites.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <string>
#include <utility>

#include "base/bytes.h"
#include "runtime/sealed_bytes.h"

namespace tersum {
namespace {

constexpr std::string_view kMagic = "tersumE1";
// Key, layout, number of values.
constexpr size_t kSiteHeadBytes = 24;

Status not_saved(std::string_view what) {
  return invalid_argument("these bytes are no saved feedback: " + std::string(what) +
                          "; pass what save_feedback() returned");
}

}  // namespace

void FeedbackSite::leave(const Operation* operation) {
  line_.erase(std::remove(line_.begin(), line_.end(), operation), line_.end());
}

float* FeedbackSite::take(size_t values, uint64_t layout) {
  if (owed_.size() != values || layout_ != layout) owed_.assign(values, 0);
  layout_ = layout;
  return owed_.data();
}

FeedbackSite* FeedbackSites::find_or_make(uint64_t key) {
  const auto found = sites_.find(key);
  if (found != sites_.end()) return &found->second;
  if (sites_.size() >= kSitesMax) return nullptr;
  return &sites_[key];
}

Status FeedbackSites::check_idle() const {
  const bool busy = std::any_of(sites_.begin(), sites_.end(),
                                [](const auto& entry) { return !entry.second.is_idle(); });
  if (!busy) return {};
  return invalid_argument("a call with +feedback is in flight; wait() for it first");
}

Status FeedbackSites::reset() {
  TERSUM_RETURN_IF_ERROR(check_idle());
  sites_.clear();
  return {};
}

Result<std::vector<std::byte>> FeedbackSites::save() const {
  TERSUM_RETURN_IF_ERROR(check_idle());
  SealedWriter saved(kMagic, sites_.size());
  for (const auto& [key, site] : sites_) {
    saved.add(key);
    saved.add(site.layout_);
    saved.add(site.owed_.size());
    const std::span<std::byte> room = saved.add_room(site.owed_.size() * sizeof(float));
    if (!room.empty()) std::memcpy(room.data(), site.owed_.data(), room.size());
  }
  return std::move(saved).seal();
}

Status FeedbackSites::load(std::span<const std::byte> saved) {
  TERSUM_RETURN_IF_ERROR(check_idle());
  Result<SealedReader> opened = SealedReader::open(saved, kMagic);
  if (!opened.ok()) return not_saved(opened.status().message());
  SealedReader& reader = opened.value();
  if (reader.entries() > kSitesMax) return not_saved("they have too many sites");
  std::map<uint64_t, FeedbackSite> loaded;
  for (uint64_t i = 0; i < reader.entries(); ++i) {
    if (reader.left() < kSiteHeadBytes) return not_saved("they end early");
    const uint64_t key = reader.take_number();
    if (loaded.contains(key)) return not_saved("site " + std::to_string(i) + " stands twice");
    FeedbackSite& site = loaded[key];
    site.layout_ = reader.take_number();
    const uint64_t values = reader.take_number();
    if (values > reader.left() / sizeof(float)) return not_saved("they end early");
    site.owed_.resize(values);
    const std::span<const std::byte> owed = reader.take(values * sizeof(float));
    if (!owed.empty()) std::memcpy(site.owed_.data(), owed.data(), owed.size());
    if (!std::all_of(site.owed_.begin(), site.owed_.end(),
                     [](float x) { return std::isfinite(x); })) {
      return not_saved("site " + std::to_string(i) + " owes what is no finite number");
    }
  }
  if (reader.left() > 0) return not_saved("something stands behind the last site");
  sites_ = std::move(loaded);
  return {};
}

}  // namespace tersum
