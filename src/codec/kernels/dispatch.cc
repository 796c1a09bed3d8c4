#include "codec/kernels/dispatch.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cctype>
#include <string>

#include "base/check.h"
#include "hwy/targets.h"

namespace tersum {
namespace {

// -1: not chosen yet.
std::atomic<int64_t> chosen_target{-1};

int64_t best_target() { return available_targets().front(); }

}  // namespace

std::vector<int64_t> available_targets() {
  std::vector<int64_t> targets;
  // Lower bits are better targets. Highway's own scalar target has no kernels: there the reference
  // takes its place.
  int64_t left = hwy::SupportedTargets() & HWY_TARGETS & ~HWY_SCALAR;
  for (; left != 0; left &= left - 1) targets.push_back(left & -left);
  targets.push_back(kReferenceTarget);
  return targets;
}

int64_t active_target() {
  int64_t target = chosen_target.load(std::memory_order_relaxed);
  if (target >= 0) [[likely]]
    return target;
  const int64_t best = best_target();
  // A concurrent force_target wins over this first guess.
  return chosen_target.compare_exchange_strong(target, best) ? best : target;
}

void force_target(int64_t target) {
  const std::vector<int64_t> targets = available_targets();
  TERSUM_CHECK(std::find(targets.begin(), targets.end(), target) != targets.end());
  chosen_target.store(target);
}

void unforce_target() { chosen_target.store(best_target()); }

size_t table_index(int64_t target) {
  constexpr size_t kFallback = HWY_MAX_DYNAMIC_TARGETS;
  if (target == HWY_EMU128 || target == HWY_SCALAR) return kFallback;
  const auto bit = static_cast<size_t>(std::countr_zero(static_cast<uint64_t>(target)));
  const size_t first_bit = HWY_HIGHEST_TARGET_BIT + 1 - HWY_MAX_DYNAMIC_TARGETS;
  TERSUM_CHECK(bit >= first_bit && bit - first_bit < kFallback);
  return bit - first_bit;
}

std::string_view target_name(int64_t target) {
  if (target == kReferenceTarget) return "scalar";
  static const auto* const names = [] {
    auto* lower = new std::array<std::string, 63>();
    for (size_t bit = 0; bit < lower->size(); ++bit) {
      for (const char* c = hwy::TargetName(int64_t{1} << bit); *c != '\0'; ++c) {
        (*lower)[bit] += static_cast<char>(std::tolower(static_cast<unsigned char>(*c)));
      }
    }
    return lower;
  }();
  for (size_t bit = 0; bit < names->size(); ++bit) {
    if (target == int64_t{1} << bit) return (*names)[bit];
  }
  return "unknown";
}

}  // namespace tersum
