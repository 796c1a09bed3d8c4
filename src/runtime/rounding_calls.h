// RoundingCalls: which number a call has in the random rounding of its rank.
//
// A call's key is a hash of the rank's seed, the rank and the call's number. Numbers must not
// depend on what happens by chance: calls matched by sequence have their sequence number, and those
// of a keyed site (whose keys name a run) are counted here.
//
// Thread safety: none; the member's mutex guards it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <unordered_map>

#include "runtime/group_id.h"

namespace tersum {

class RoundingCalls {
 public:
  // Sites beyond that are not counted: their calls take their keys for numbers.
  static constexpr size_t kSitesMax = 16 * 1024;

  // The number of the next call of `site`; `key` names it where it is not counted.
  [[nodiscard]] uint64_t next(uint64_t site, uint64_t key) {
    if (counts_.size() >= kSitesMax && !counts_.contains(site)) return key;
    return mix_digests(site, counts_[site]++);
  }

 private:
  std::unordered_map<uint64_t, uint64_t> counts_;
};

// The key of one call's random numbers on one rank.
inline uint64_t rounding_key(uint64_t seed, int rank, uint64_t number) {
  return mix_digests(mix_digests(seed, static_cast<uint64_t>(rank)), number);
}

}  // namespace tersum
