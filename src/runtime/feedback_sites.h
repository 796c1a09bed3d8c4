// FeedbackSites: what codings with +feedback have lost so far, for every call site of one member.
//
// A site's calls run one after the other, in the order in which they started: each adds what the
// one before has lost. What is owed is this rank's own; no other rank knows or needs it.
//
// Thread safety: the progress role's holder only. Invariants: what is owed changes only through the
// site's front call, which has entered its site until it leaves. A call of another length or of
// other tensors than the one before begins with nothing owed, and so does one after a failure,
// whose slices may have been coded or not.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <vector>

#include "tersum/status.h"

namespace tersum {

class Operation;

class FeedbackSite {
 public:
  // The calls in their order; the front one runs.
  void enter(const Operation* operation) { line_.push_back(operation); }
  void leave(const Operation* operation);
  [[nodiscard]] bool holds(const Operation* operation) const { return line_.front() == operation; }
  [[nodiscard]] bool is_idle() const { return line_.empty(); }

  // For the front call: what is owed of each of `values` values. `layout` says what they are.
  float* take(size_t values, uint64_t layout);
  // Nothing is owed any more.
  void forget() { owed_.clear(); }

 private:
  friend class FeedbackSites;

  uint64_t layout_ = 0;
  std::vector<float> owed_;
  std::vector<const Operation*> line_;
};

class FeedbackSites {
 public:
  // Calls of sites beyond that owe nothing and are owed nothing.
  static constexpr size_t kSitesMax = 16 * 1024;

  // Null if there is no more room.
  FeedbackSite* find_or_make(uint64_t key);

  // Of all sites. kInvalidArgument while a call is in flight there: nothing has changed.
  Status reset();
  // As docs/wire-format.md says; kInvalidArgument while a call is in flight.
  [[nodiscard]] Result<std::vector<std::byte>> save() const;
  // Puts saved errors in place of all that is owed. kInvalidArgument: a call is in flight, or the
  // bytes are none of save(); nothing has changed.
  Status load(std::span<const std::byte> saved);

 private:
  [[nodiscard]] Status check_idle() const;

  std::map<uint64_t, FeedbackSite> sites_;
};

}  // namespace tersum
