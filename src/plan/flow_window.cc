#include "plan/flow_window.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace tersum {
namespace {

// Two slices that are worth a message each.
constexpr double kFlowBytesMin = 40 * 1024;
// Until a rank has taken what came, and said so. Fitted at 250 Mbit/s, where 40 KiB take as long,
// and at 1 Gbit/s. Faster ports are no longer what is waited for where ranks share cores: four on
// two cores at 2 Gbit/s take two_step in 1.02 of the bound with twice that, in 1.07 with that, in
// 1.03 without a limit.
constexpr double kTurnSeconds = 1.3e-3;
constexpr double kTurnBytesPerSecond = 125e6;

}  // namespace

size_t flow_bytes_max(const Topology* topology, PlanKind plan) {
  constexpr size_t kNoLimit = std::numeric_limits<size_t>::max();
  if (topology == nullptr || topology->switches.empty()) return kNoLimit;
  if (plan == PlanKind::kRing || plan == PlanKind::kOneShot) return kNoLimit;
  double latency_s = 0;
  double rate = 0;
  for (const TopologyLink& link : topology->links) {
    latency_s = std::max(latency_s, link.latency_s);
    rate = std::max(rate, link.bytes_per_s);
  }
  if (rate >= kUnknownBytesPerSecond) return kNoLimit;
  // There through every switch, back, and as much again.
  const double round_trips_s = 4 * latency_s * static_cast<double>(topology->switches.size() + 1);
  const double turn_s = kTurnSeconds * std::max(rate / kTurnBytesPerSecond, 1.0);
  const double bytes = std::max(rate * (turn_s + round_trips_s), kFlowBytesMin);
  return bytes < 1e15 ? static_cast<size_t>(std::ceil(bytes)) : kNoLimit;
}

}  // namespace tersum
