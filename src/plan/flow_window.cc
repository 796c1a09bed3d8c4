#include "plan/flow_window.h"

#include <algorithm>

#include "plan/collective_rules.h"

namespace tersum {
namespace {

// Two slices that are worth a message each.
constexpr double kFlowBytesMin = 40 * 1024;
// Four ranks on two cores behind a switch at 2 Gbit/s: two_step took 1.07 of its bound with 360
// KiB, 1.02 with 670 and 1.03 without a limit.
constexpr double kFlowBytesMax = 512 * 1024;
// Until a rank has taken what came, and said so. Fitted at 250 Mbit/s, where 40 KiB take as long,
// and at 1 Gbit/s.
constexpr double kTurnSeconds = 1.3e-3;
constexpr double kKibibyte = 1024;

bool adds_in_step(Collective collective, PlanKind plan) {
  return reduces(collective) && plan != PlanKind::kRing && plan != PlanKind::kOneShot;
}

}  // namespace

size_t flow_bytes_max(const Topology* topology, Collective collective, PlanKind plan) {
  if (topology == nullptr || topology->switches.empty()) return kFlowUnlimited;
  if (topology->host_count() < 3 || !adds_in_step(collective, plan)) return kFlowUnlimited;
  double latency_s = 0;
  double port_bytes_per_s = 0;
  for (const TopologyLink& link : topology->links) {
    if (link.latency_s <= 0) return kFlowUnlimited;
    latency_s = std::max(latency_s, link.latency_s);
    // Not those between switches, which many ports share.
    const bool is_port = link.from < topology->host_count() && link.to >= topology->host_count();
    if (is_port) port_bytes_per_s = std::max(port_bytes_per_s, link.bytes_per_s);
  }
  // There through every switch, back, and as much again.
  const double ways_s = 4 * latency_s * static_cast<double>(topology->switches.size() + 1);
  const double bytes = std::max(port_bytes_per_s * (kTurnSeconds + ways_s), kFlowBytesMin);
  if (bytes > kFlowBytesMax) return kFlowUnlimited;
  return static_cast<size_t>(bytes / kKibibyte) * static_cast<size_t>(kKibibyte);
}

}  // namespace tersum
