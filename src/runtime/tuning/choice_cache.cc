#include "runtime/tuning/choice_cache.h"

#include <functional>
#include <utility>

#include "base/mix_bits.h"

namespace tersum {

size_t ChoiceCache::Hash::operator()(const ChoiceKey& key) const {
  uint64_t digest = static_cast<uint64_t>(key.collective) << 24 |
                    static_cast<uint64_t>(key.type) << 16 | static_cast<uint64_t>(key.op) << 8 |
                    static_cast<uint64_t>(key.plan);
  digest = mix_bits(digest ^ mix_bits(key.count + 1));
  digest = mix_bits(digest ^ std::hash<double>()(key.max_rel_error));
  digest = mix_bits(digest ^ std::hash<std::string_view>()(key.codec));
  return mix_bits(digest + key.sampled);
}

std::shared_ptr<const TakenPath> ChoiceCache::find(const ChoiceKey& key) const {
  const auto found = known_.find(key);
  if (found == known_.end()) return nullptr;
  return {found->second, &found->second->path};
}

std::shared_ptr<const TakenPath> ChoiceCache::add(const ChoiceKey& key, TakenPath path) {
  if (auto known = find(key)) return known;
  auto entry = std::make_shared<Entry>();
  entry->codec = key.codec;
  entry->key = key;
  entry->key.codec = entry->codec;
  entry->path = std::move(path);
  if (kept_.size() < kKept) {
    kept_.push_back(entry);
  } else {
    // Any of them, by lot: the oldest would be the very one that a cycle of more shapes than there
    // is room for needs next, at each of its calls.
    std::shared_ptr<const Entry>& given_up = kept_[mix_bits(++replaced_) % kKept];
    known_.erase(given_up->key);
    given_up = entry;
  }
  known_.emplace(entry->key, entry);
  return {entry, &entry->path};
}

void ChoiceCache::clear() {
  known_.clear();
  kept_.clear();
}

}  // namespace tersum
