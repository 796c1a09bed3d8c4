#include "codec/best_levels.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>

#include "base/check.h"

namespace tersum {
namespace {

constexpr size_t kBins = LevelHistogram::kBins;
constexpr size_t kEdges = kBins + 1;

// Sums of all bins before an edge: what lies between two edges is a difference.
struct Running {
  double weight = 0;
  double first = 0;
  double second = 0;
};
using RunningSums = std::vector<Running>;

double mean_between(const RunningSums& sums, size_t begin, size_t end) {
  const double weight = sums[end].weight - sums[begin].weight;
  return weight > 0 ? (sums[end].first - sums[begin].first) / weight : 0;
}

// The squared error of the bins begin..end-1 under one level.
double cost_between(const RunningSums& sums, size_t begin, size_t end) {
  const double first = sums[end].first - sums[begin].first;
  const double second = sums[end].second - sums[begin].second;
  return std::max(second - mean_between(sums, begin, end) * first, 0.0);
}

// With one level more: for the edges low..high, where the last run begins, one of from..to, and
// what it all costs. That beginning never moves left as the edge moves right, which halves the
// choice at every step.
struct LevelStep {
  const RunningSums& sums;
  const std::vector<double>& before;  // costs with one level less
  std::vector<double>& costs;
  std::vector<uint16_t>& begins;

  // NOLINTNEXTLINE(misc-no-recursion): as deep as the edges can be halved.
  void solve(size_t low, size_t high, size_t from, size_t to) {
    const size_t edge = (low + high) / 2;
    double least = std::numeric_limits<double>::infinity();
    size_t best = from;
    for (size_t begin = from; begin <= std::min(edge, to); ++begin) {
      const double cost = before[begin] + cost_between(sums, begin, edge);
      if (cost >= least) continue;
      least = cost;
      best = begin;
    }
    costs[edge] = least;
    begins[edge] = static_cast<uint16_t>(best);
    if (edge > low) solve(low, edge - 1, from, best);
    if (edge < high) solve(edge + 1, high, best, to);
  }
};

// Where each of the runs begins, from the last one back.
std::vector<size_t> best_begins(const RunningSums& sums, size_t count) {
  std::vector<double> before(kEdges);
  for (size_t edge = 0; edge < kEdges; ++edge) before[edge] = cost_between(sums, 0, edge);
  std::vector<std::vector<uint16_t>> begins(count - 1, std::vector<uint16_t>(kEdges));
  for (std::vector<uint16_t>& step : begins) {
    std::vector<double> costs(kEdges);
    LevelStep{sums, before, costs, step}.solve(0, kBins, 0, kBins);
    before = std::move(costs);
  }
  std::vector<size_t> found;
  size_t end = kBins;
  for (size_t i = begins.size(); i-- > 0; end = found.back()) found.push_back(begins[i][end]);
  found.push_back(0);
  return found;
}

void add_level(std::vector<float>& levels, float level) {
  const auto at = std::lower_bound(levels.begin(), levels.end(), level);
  if (at == levels.end() || *at != level) levels.insert(at, level);
}

// Until there are `count` levels: the middle of the widest gap, or the end that is further from the
// outermost level than half of that.
void fill_up(std::vector<float>& levels, size_t count) {
  while (levels.size() < count) {
    float widest = levels.front() + 1;
    float filler = -1;
    for (size_t i = 1; i < levels.size(); ++i) {
      const float half = (levels[i] - levels[i - 1]) / 2;
      if (half <= widest) continue;
      widest = half;
      filler = levels[i - 1] + half;
    }
    add_level(levels, 1 - levels.back() > widest ? 1 : filler);
  }
}

}  // namespace

void LevelHistogram::add(double part, double weight) {
  TERSUM_CHECK(std::abs(part) <= 1 && weight >= 0);
  const auto at = static_cast<size_t>((part + 1) * (kBins / 2.0));
  Bin& bin = bins_[std::min(at, kBins - 1)];
  bin.weight += weight;
  bin.first += weight * part;
  bin.second += weight * part * part;
}

std::vector<float> LevelHistogram::best_levels(size_t count) const {
  TERSUM_CHECK(count >= 2 && count <= 16);
  RunningSums sums(kEdges);
  for (size_t i = 0; i < kBins; ++i) {
    sums[i + 1] = {sums[i].weight + bins_[i].weight, sums[i].first + bins_[i].first,
                   sums[i].second + bins_[i].second};
  }
  if (!(sums.back().weight > 0)) return {};
  std::vector<float> levels;
  size_t end = kBins;
  for (const size_t begin : best_begins(sums, count)) {
    if (sums[end].weight > sums[begin].weight) {
      const double mean = std::clamp(mean_between(sums, begin, end), -1.0, 1.0);
      add_level(levels, std::abs(mean) < 1.0 / kBins ? 0.0F : static_cast<float>(mean));
    }
    end = begin;
  }
  fill_up(levels, count);
  return levels;
}

}  // namespace tersum
