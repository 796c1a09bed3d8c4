// Lanes: groups that a communicator makes by itself, because every member can derive them alike.
//
// One holds all ranks, for calls that are matched by keys instead of order (the later buckets of a
// coalesced call). One per pair of ranks carries what these two send each other. A lane is made at
// its first use, without a word to the other ranks: what arrives for one that is not here yet is
// parked by the node.
//
// Thread safety: any thread. Invariants: what poisons a lane poisons the communicator, and the
// other way round. Lanes end with their communicator.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "runtime/member.h"
#include "runtime/progress.h"

namespace tersum {

class Lanes {
 public:
  Lanes(std::shared_ptr<Progress> progress, std::shared_ptr<Member> parent)
      : progress_(std::move(progress)), parent_(std::move(parent)) {}

  // Null after shut(). Of all ranks, in the communicator's order.
  std::shared_ptr<Member> everybody();
  // Of this rank and `peer` (another one, and a neighbour); the lower rank is number 0.
  std::shared_ptr<Member> pair(int peer);

  // What exists so far.
  [[nodiscard]] std::vector<std::shared_ptr<Member>> list() const;
  // The same, and none is made any more.
  std::vector<std::shared_ptr<Member>> shut();

 private:
  std::shared_ptr<Member> find_or_make(uint64_t group, const std::vector<int>& ranks,
                                       std::shared_ptr<const Topology> topology);

  const std::shared_ptr<Progress> progress_;
  const std::shared_ptr<Member> parent_;
  mutable std::mutex mutex_;
  bool shut_ = false;
  std::map<uint64_t, std::shared_ptr<Member>> members_;  // by group
};

}  // namespace tersum
