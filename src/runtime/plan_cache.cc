#include "runtime/plan_cache.h"

#include <functional>
#include <utility>

#include "base/mix_bits.h"

namespace tersum {
namespace {

bool is_of(const CompiledPlan& plan, const PlanRequest& request, const Codec& asked,
           const SliceLimits& limits) {
  const PlanRequest& own = plan.request;
  return plan.asked == &asked && plan.limits == limits && own.collective == request.collective &&
         own.kind == request.kind && own.size == request.size && own.count == request.count &&
         own.granule == request.granule && own.root == request.root;
}

uint64_t digest_of(const PlanRequest& request, const Codec& asked, const SliceLimits& limits) {
  uint64_t digest =
      static_cast<uint64_t>(request.collective) << 8 | static_cast<uint64_t>(request.kind);
  for (const uint64_t number :
       {static_cast<uint64_t>(request.size), uint64_t{request.count}, uint64_t{request.granule},
        static_cast<uint64_t>(request.root), uint64_t{std::hash<const Codec*>()(&asked)},
        uint64_t{limits.slice_bytes}, uint64_t{limits.window_bytes},
        uint64_t{limits.least_slice_bytes}, uint64_t{limits.slice_values},
        uint64_t{limits.segment_bytes}, uint64_t{limits.plain_slice_bytes},
        uint64_t{limits.plain_window_bytes}}) {
    digest = mix_bits(digest ^ mix_bits(number + 1));
  }
  return digest;
}

}  // namespace

std::shared_ptr<const CompiledPlan> PlanCache::find(const PlanRequest& request, const Codec& asked,
                                                    const SliceLimits& limits) const {
  const auto found = by_digest_.find(digest_of(request, asked, limits));
  if (found == by_digest_.end() || !is_of(*found->second, request, asked, limits)) return nullptr;
  return found->second;
}

void PlanCache::add(std::shared_ptr<const CompiledPlan> plan) {
  const uint64_t digest = digest_of(plan->request, *plan->asked, plan->limits);
  const auto [place, is_new] = by_digest_.insert_or_assign(digest, std::move(plan));
  if (!is_new) return;
  if (digests_.size() < kKept) {
    digests_.push_back(digest);
    return;
  }
  // By lot, as in ChoiceCache: a cycle of more shapes than there is room for misses some, not all.
  uint64_t& given_up = digests_[mix_bits(++replaced_) % kKept];
  by_digest_.erase(given_up);
  given_up = digest;
}

}  // namespace tersum
