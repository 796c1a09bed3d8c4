#include "runtime/tuning/link_speed.h"

#include <algorithm>
#include <vector>

#include "wire/message.h"

namespace tersum {
namespace {

// kGrowthMin where the smaller one leaves at once, and the larger one's rest only when the receiver
// has said that it is ready: one more hop, which is less than a tenth of the difference where four
// times the bytes take three times as long.
constexpr double kGrowthMinFromEager = 3;
// What less takes may be a network's whim, unless still less grew like it.
constexpr size_t kSurelySeenBytes = 256 << 10;

}  // namespace

std::optional<LinkSpeed> link_speed_of(const TuningTable& table, int ranks) {
  constexpr TuningWay kWay{"exact", PlanKind::kTwoStep};
  const double sent = 2.0 * (ranks - 1) / ranks;  // by a rank, per byte of the array
  std::vector<TuningPoint> points;                // by size, as the table has them
  for (const TuningPoint& point : table.points()) {
    // One call may have waited for anything.
    if (point.way == kWay && !point.is_rough) points.push_back(point);
  }
  if (points.size() < 2 || ranks < 2) return std::nullopt;
  const auto sent_bytes = [&](const TuningPoint& p) { return sent * static_cast<double>(p.bytes); };
  const TuningPoint& large = points.back();
  const TuningPoint& next = points[points.size() - 2];
  const bool is_eager = 2 * next.bytes / static_cast<size_t>(ranks) <= kEagerBytesMax;
  const double growth_min = is_eager ? kGrowthMinFromEager : kGrowthMin;
  if (large.seconds < growth_min * next.seconds) return std::nullopt;
  if (large.bytes < kSurelySeenBytes) {
    const bool has_grown_before =
        points.size() > 2 &&
        next.seconds >= kGrowthMinFromEager * points[points.size() - 3].seconds;
    if (!has_grown_before) return std::nullopt;
  }
  LinkSpeed speed;
  speed.bytes_per_second = (sent_bytes(large) - sent_bytes(next)) / (large.seconds - next.seconds);
  const TuningPoint& small = points.front();
  const double waited = small.seconds - sent_bytes(small) / speed.bytes_per_second;
  speed.latency_seconds = std::max(waited / 2, 0.0);
  return speed;
}

}  // namespace tersum
