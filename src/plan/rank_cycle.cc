#include "plan/rank_cycle.h"

#include <algorithm>
#include <numeric>

namespace tersum {
namespace {

size_t at(int index) { return static_cast<size_t>(index); }

bool is_cycle(const Topology& topology, const std::vector<int>& order) {
  for (size_t i = 0; i < order.size(); ++i) {
    if (!topology.adjacent(order[i], order[(i + 1) % order.size()])) return false;
  }
  return !order.empty();
}

// The ranks' own order, but for those of one host, who follow the first of them: so each host's
// wire is crossed once each way.
std::vector<int> host_by_host(const Topology& topology) {
  std::vector<int> order;
  order.reserve(topology.host_of.size());
  for (int rank = 0; rank < topology.ranks(); ++rank) {
    const std::vector<int>& together = topology.ranks_of[at(topology.host_of[at(rank)])];
    if (together.front() == rank) order.insert(order.end(), together.begin(), together.end());
  }
  return order;
}

// Goes round `rows` rings of `columns` nodes each. A row is walked through in one direction from
// where the row above left off, which puts the next row's start one column back (walking up) or
// one on (walking down); the way closes when these shifts cancel out over all rows. With an even
// number of rows they alternate. With an odd number of rows, an odd number of columns that is no
// larger, as many rows more go up as there are columns.
std::vector<int> product_cycle(const std::vector<int>& rows, const std::vector<int>& columns,
                               int row_stride) {
  const auto row_count = static_cast<int>(rows.size());
  const auto column_count = static_cast<int>(columns.size());
  const int more_up = row_count % 2 == 0 ? 0 : column_count;
  const int down = (row_count - more_up) / 2;
  std::vector<int> order;
  order.reserve(rows.size() * columns.size());
  int column = 0;
  for (int row = 0; row < row_count; ++row) {
    const bool is_down = row < 2 * down && row % 2 == 1;
    for (int i = 0; i < column_count; ++i) {
      order.push_back(rows[at(row)] * row_stride + columns[at(column)]);
      if (i + 1 == column_count) break;
      column = (column + (is_down ? column_count - 1 : 1)) % column_count;
    }
  }
  return order;
}

// Extends a path rank by rank, to the neighbour that has the fewest free neighbours left (one that
// is passed by might become a dead end), and steps back where there is none.
class CycleSearch {
 public:
  explicit CycleSearch(const Topology& topology) : topology_(topology) {}

  std::vector<int> run() {
    used_.assign(at(topology_.ranks()), 0);
    path_ = {0};
    used_[0] = 1;
    choices_.push_back(choices_after(0));
    while (!path_.empty() && steps_ < kStepsMax) {
      if (path_.size() == used_.size() && topology_.adjacent(path_.back(), 0)) return path_;
      advance();
    }
    return {};
  }

 private:
  static constexpr int kStepsMax = 200'000;

  void advance() {
    ++steps_;
    std::vector<int>& choices = choices_.back();
    if (choices.empty()) {
      used_[at(path_.back())] = 0;
      path_.pop_back();
      choices_.pop_back();
      return;
    }
    const int next = choices.back();
    choices.pop_back();
    used_[at(next)] = 1;
    path_.push_back(next);
    choices_.push_back(choices_after(next));
  }

  template <typename Visit>
  void visit_free_neighbours(int rank, const Visit& visit) const {
    const int host = topology_.host_of[at(rank)];
    const auto visit_host = [&](int near) {
      for (const int other : topology_.ranks_of[at(near)]) {
        if (used_[at(other)] == 0) visit(other);
      }
    };
    visit_host(host);
    for (const int near : topology_.adjacent_hosts[at(host)]) visit_host(near);
  }

  // The best one last.
  std::vector<int> choices_after(int rank) const {
    struct Choice {
      int rank;
      int host_differs;
      int free;
    };
    std::vector<Choice> found;
    visit_free_neighbours(rank, [&](int next) {
      int free = 0;
      visit_free_neighbours(next, [&](int) { ++free; });
      found.push_back({next, topology_.host_of[at(next)] != topology_.host_of[at(rank)], free});
    });
    std::sort(found.begin(), found.end(), [](const Choice& a, const Choice& b) {
      if (a.host_differs != b.host_differs) return a.host_differs > b.host_differs;
      return a.free != b.free ? a.free > b.free : a.rank > b.rank;
    });
    std::vector<int> choices;
    choices.reserve(found.size());
    for (const Choice& choice : found) choices.push_back(choice.rank);
    return choices;
  }

  const Topology& topology_;
  std::vector<char> used_;
  std::vector<int> path_;
  std::vector<std::vector<int>> choices_;
  int steps_ = 0;
};

}  // namespace

std::vector<int> grid_cycle(const std::vector<int>& extents) {
  std::vector<int> cycle{0};
  for (size_t i = extents.size(); i-- > 0;) {
    std::vector<int> ring(at(extents[i]));
    std::iota(ring.begin(), ring.end(), 0);
    const auto inner = static_cast<int>(cycle.size());
    if (inner == 1) {
      cycle = ring;
    } else if (extents[i] % 2 == 0 || (inner % 2 == 1 && extents[i] >= inner)) {
      cycle = product_cycle(ring, cycle, inner);
    } else {
      // The other way round: the inner cycle's nodes are the rows.
      cycle = product_cycle(cycle, ring, extents[i]);
      for (int& node : cycle) node = node % extents[i] * inner + node / extents[i];
    }
  }
  return cycle;
}

std::vector<int> find_rank_cycle(const Topology* topology, int size) {
  std::vector<int> order(at(size));
  std::iota(order.begin(), order.end(), 0);
  if (topology == nullptr) return order;
  std::vector<int> by_host = host_by_host(*topology);
  if (is_cycle(*topology, by_host)) return by_host;
  if (is_cycle(*topology, order)) return order;
  if (!topology->dims.empty()) {
    order = grid_cycle(topology->dims);
    if (is_cycle(*topology, order)) return order;
  }
  return CycleSearch(*topology).run();
}

}  // namespace tersum
