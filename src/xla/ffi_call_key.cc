#include "xla/ffi_call_key.h"

#include <xxhash.h>

#include <algorithm>
#include <array>
#include <bit>
#include <iterator>

namespace tersum::xla_ffi {

// Keys are compared between processes, and hashed here as they lie in memory.
static_assert(std::endian::native == std::endian::little);

uint64_t call_key(const CallIdentity& identity) {
  const std::array<uint64_t, 6> words = {
      XXH3_64bits(identity.groups.data(), identity.groups.size_bytes()),
      static_cast<uint64_t>(identity.group_size),
      identity.operation.fingerprint,
      static_cast<uint64_t>(identity.operation.operation),
      static_cast<uint64_t>(identity.run_id),
      (uint64_t{identity.occurrence} << 32) | identity.operand,
  };
  return XXH3_64bits(words.data(), sizeof(words));
}

size_t OccurrenceCounter::PlaceHash::operator()(const Place& place) const {
  const std::array<uint64_t, 3> words = {static_cast<uint64_t>(place.device),
                                         place.operation.fingerprint,
                                         static_cast<uint64_t>(place.operation.operation)};
  return XXH3_64bits(words.data(), sizeof(words));
}

OccurrenceCounter::Table& OccurrenceCounter::table_of(const Place& place) {
  if (const auto found = index_.find(place); found != index_.end()) {
    tables_.splice(tables_.end(), tables_, found->second);
    return tables_.back();
  }
  if (tables_.size() >= tables_max_) {
    index_.erase(tables_.front().place);
    tables_.pop_front();
  }
  tables_.push_back(Table{place, {}});
  index_.emplace(place, std::prev(tables_.end()));
  return tables_.back();
}

uint32_t OccurrenceCounter::next(int64_t device, const OperationId& operation, int64_t run_id) {
  const std::scoped_lock lock(mutex_);
  std::vector<Run>& runs = table_of(Place{device, operation}).runs;
  const auto found = std::find_if(runs.rbegin(), runs.rend(),
                                  [run_id](const Run& run) { return run.run_id == run_id; });
  if (found != runs.rend()) {
    const uint32_t occurrence = found->calls++;
    // rotate: [found, newer...] becomes [newer..., found]
    std::rotate(std::prev(found.base()), found.base(), runs.end());
    return occurrence;
  }
  if (runs.size() == kRunsPerTable) runs.erase(runs.begin());
  runs.push_back(Run{run_id, 1});
  return 0;
}

size_t OccurrenceCounter::table_count() const {
  const std::scoped_lock lock(mutex_);
  return tables_.size();
}

}  // namespace tersum::xla_ffi
