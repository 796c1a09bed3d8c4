#include "runtime/lanes.h"

#include <algorithm>
#include <numeric>

#include "base/check.h"
#include "runtime/group_id.h"

namespace tersum {
namespace {

// Colors of splits are never negative, and a world of devices takes -1: no other group gets these.
constexpr int64_t kEverybody = -2;
constexpr int64_t kPair = -3;

}  // namespace

std::shared_ptr<Member> Lanes::everybody() {
  std::vector<int> ranks(static_cast<size_t>(parent_->size()));
  std::iota(ranks.begin(), ranks.end(), 0);
  return find_or_make(derive_group_id(parent_->group, 0, kEverybody), ranks, parent_->topology);
}

std::shared_ptr<Member> Lanes::pair(int peer) {
  TERSUM_CHECK(peer >= 0 && peer < parent_->size() && peer != parent_->rank);
  const int low = std::min(peer, parent_->rank), high = std::max(peer, parent_->rank);
  const auto number = static_cast<uint64_t>(low) << 32 | static_cast<uint64_t>(high);
  return find_or_make(derive_group_id(parent_->group, number, kPair), {low, high}, nullptr);
}

std::shared_ptr<Member> Lanes::find_or_make(uint64_t group, const std::vector<int>& ranks,
                                            std::shared_ptr<const Topology> topology) {
  const std::lock_guard lock(mutex_);
  if (shut_) return nullptr;
  std::shared_ptr<Member>& member = members_[group];
  if (member) return member;
  std::vector<RankPlace> places;
  for (const int rank : ranks) {
    RankPlace place;
    place.process = parent_->places[static_cast<size_t>(rank)].process;
    place.local = parent_->places[static_cast<size_t>(rank)].local;
    places.push_back(place);
  }
  const auto own = std::find(ranks.begin(), ranks.end(), parent_->rank);
  member = std::make_shared<Member>(progress_, group, static_cast<int>(own - ranks.begin()),
                                    std::move(places), parent_->limits, true, std::move(topology));
  member->parent = parent_;
  member->parent_ranks = ranks;
  member->ranks_of_host = parent_->ranks_of_host;
  member->host_cpus = parent_->host_cpus;
  member->cpu_each = parent_->cpu_each;
  member->cache_bytes = parent_->cache_bytes;
  member->rounding_seed = parent_->rounding_seed;
  // Posted before the call's submission, so registered before it begins.
  progress_->node().post([member](Node& node) {
    if (member->parent->registered) node.register_member(member);
  });
  return member;
}

std::vector<std::shared_ptr<Member>> Lanes::shut() {
  {
    const std::lock_guard lock(mutex_);
    shut_ = true;
  }
  return list();
}

std::vector<std::shared_ptr<Member>> Lanes::list() const {
  const std::lock_guard lock(mutex_);
  std::vector<std::shared_ptr<Member>> members;
  members.reserve(members_.size());
  for (const auto& [group, member] : members_) members.push_back(member);
  return members;
}

}  // namespace tersum
