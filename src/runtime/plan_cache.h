// PlanCache: the compiled plans of a group's calls, so that a training loop compiles each of its
// shapes once.
//
// Thread safety: none of its own; the progress role's. What find() gives outlives the cache.
// Invariants: it holds kKept plans at most; find() does not allocate.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <unordered_map>
#include <vector>

#include "runtime/compiled_plan.h"

namespace tersum {

class PlanCache {
 public:
  // A model has some hundred lengths of tensors. A plan takes about 1 KB for two ranks, 60 for a
  // ring of 64.
  static constexpr size_t kKept = 512;

  // The plan that compile_plan() made of a request with these numbers, for this codec under these
  // limits. All requests are of one group, so their topology does not count. Null: not kept.
  [[nodiscard]] std::shared_ptr<const CompiledPlan> find(const PlanRequest& request,
                                                         const Codec& asked,
                                                         const SliceLimits& limits) const;
  void add(std::shared_ptr<const CompiledPlan> plan);
  [[nodiscard]] size_t size() const { return by_digest_.size(); }

 private:
  // Of all that find() goes by. Two plans of one digest take turns.
  std::unordered_map<uint64_t, std::shared_ptr<const CompiledPlan>> by_digest_;
  std::vector<uint64_t> digests_;  // of those kept
  uint64_t replaced_ = 0;
};

}  // namespace tersum
