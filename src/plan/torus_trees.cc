// The torus: all dimensions and both directions of each are busy at once.
//
// A contribution goes to the chunk's owner dimension by dimension, along each by the shorter way.
// The first dimension of the order carries the most: there every line of the grid sums up by
// itself, in the last one a single line does. So the array is divided into one class per dimension,
// which begin with different dimensions, and the classes' sizes are such that all dimensions take
// equally long.
#include <algorithm>
#include <array>
#include <cmath>
#include <string>
#include <utility>

#include "plan/plan_trees.h"
#include "plan/topology_shape.h"

namespace tersum {
namespace {

size_t at(int index) { return static_cast<size_t>(index); }

struct Grid {
  std::vector<int> extents;
  std::vector<int> strides;

  explicit Grid(std::vector<int> dims) : extents(std::move(dims)), strides(extents.size()) {
    int stride = 1;
    for (size_t i = extents.size(); i-- > 0;) {
      strides[i] = stride;
      stride *= extents[i];
    }
  }
  [[nodiscard]] size_t dimensions() const { return extents.size(); }
  [[nodiscard]] int size() const { return strides[0] * extents[0]; }
  [[nodiscard]] int coordinate(int rank, size_t dimension) const {
    return rank / strides[dimension] % extents[dimension];
  }
  // The next node on the way of `rank` to `goal` along one dimension in which they differ. Where
  // both ways are equally long `leans_back` chooses.
  [[nodiscard]] int step(int rank, int goal, size_t dimension, bool leans_back) const {
    const int extent = extents[dimension];
    const int here = coordinate(rank, dimension);
    const int twice = 2 * ((coordinate(goal, dimension) - here + extent) % extent);
    const bool forwards = twice < extent || (twice == extent && !leans_back);
    const int there = (here + (forwards ? 1 : extent - 1)) % extent;
    return rank + (there - here) * strides[dimension];
  }
  // Where no extent beyond 2 is even no way is as long as another (of two nodes, both are the same
  // link).
  [[nodiscard]] bool has_ties() const {
    return std::any_of(extents.begin(), extents.end(),
                       [](int extent) { return extent > 2 && extent % 2 == 0; });
  }
};

void fill_torus(const Grid& grid, int owner, size_t first_dimension, bool leans_back,
                ChunkTree& tree) {
  tree.reset(grid.size(), owner);
  for (int rank = 0; rank < grid.size(); ++rank) {
    for (size_t i = 0; i < grid.dimensions(); ++i) {
      const size_t dimension = (first_dimension + i) % grid.dimensions();
      if (grid.coordinate(rank, dimension) == grid.coordinate(owner, dimension)) continue;
      tree.parent[at(rank)] = grid.step(rank, owner, dimension, leans_back);
      break;
    }
  }
  tree.hand_out_by_the_same_way();
}

// The slowest link of each dimension; all 1 without a topology.
std::vector<double> dimension_rates(const Grid& grid, const Topology* topology) {
  std::vector<double> rates(grid.dimensions(), 1);
  if (topology == nullptr) return rates;
  std::fill(rates.begin(), rates.end(), HUGE_VAL);
  for (const TopologyLink& link : topology->links) {
    for (size_t i = 0; i < rates.size(); ++i) {
      if (grid.coordinate(link.from, i) == grid.coordinate(link.to, i)) continue;
      rates[i] = std::min(rates[i], link.bytes_per_s);
    }
  }
  return rates;
}

// Rows of linear equations, the right side last; solved by elimination with pivoting. False when
// they have no single solution.
using Equations = std::vector<std::vector<double>>;
bool solve(Equations& rows) {
  const size_t count = rows.size();
  for (size_t column = 0; column < count; ++column) {
    size_t pivot = column;
    for (size_t row = column + 1; row < count; ++row) {
      if (std::abs(rows[row][column]) > std::abs(rows[pivot][column])) pivot = row;
    }
    if (std::abs(rows[pivot][column]) < 1e-12) return false;
    std::swap(rows[column], rows[pivot]);
    for (size_t row = 0; row < count; ++row) {
      if (row == column) continue;
      const double factor = rows[row][column] / rows[column][column];
      for (size_t i = column; i <= count; ++i) rows[row][i] -= factor * rows[column][i];
    }
  }
  for (size_t row = 0; row < count; ++row) rows[row][count] /= rows[row][row];
  return true;
}

// The classes' shares of the array. A class that begins with dimension a sends, per chunk, along
// (n / A) (A - 1) links of it, then (n / (A B)) (B - 1) of the next, …. A dimension has n directed
// links if its extent is 2, else 2 n. Unknown are the shares and the time that all dimensions take.
std::vector<uint32_t> class_weights(const Grid& grid, const Topology* topology) {
  constexpr double kUnits = 720'720;  // all shares with a small denominator come out exactly
  const size_t k = grid.dimensions();
  const std::vector<double> rates = dimension_rates(grid, topology);
  const double fastest = *std::max_element(rates.begin(), rates.end());
  Equations rows(k + 1, std::vector<double>(k + 2, 0));
  for (size_t first = 0; first < k; ++first) {
    double lines = grid.size();
    for (size_t i = 0; i < k; ++i) {
      const size_t dimension = (first + i) % k;
      const int extent = grid.extents[dimension];
      lines /= extent;
      const double links = (extent == 2 ? 1.0 : 2.0) * grid.size();
      rows[dimension][first] = lines * (extent - 1) / links * fastest / rates[dimension];
    }
    rows[k][first] = 1;
  }
  for (size_t dimension = 0; dimension < k; ++dimension) rows[dimension][k] = -1;
  rows[k][k + 1] = 1;
  std::vector<uint32_t> weights(k, 1);
  if (!solve(rows)) return weights;
  for (size_t i = 0; i < k; ++i) {
    // A dimension so slow that a class had better send nothing first through it: none, then.
    weights[i] = static_cast<uint32_t>(std::lround(std::max(rows[i][k + 1], 0.0) * kUnits));
  }
  return weights;
}

// Where all reach each other, the two dimensions that are nearest to a square; a prime size has
// one.
std::vector<int> squarest_extents(int size) {
  int shorter = static_cast<int>(std::sqrt(static_cast<double>(size)));
  while (size % shorter != 0) --shorter;
  if (shorter == 1) return {size};
  return {shorter, size / shorter};
}

// "2 x 4".
std::string extents_text(const std::vector<int>& extents) {
  std::string text;
  for (const int extent : extents) text += (text.empty() ? "" : " x ") + std::to_string(extent);
  return text;
}

}  // namespace

Result<PlanTrees> torus_trees(const PlanRequest& request) {
  const Topology* const topology = request.topology;
  const bool reaches_all = topology == nullptr || topology->all_adjacent;
  const bool is_grid = topology != nullptr && !topology->dims.empty();
  const std::vector<int> squarest = squarest_extents(request.size);
  if (!reaches_all && !is_grid) {
    return invalid_argument("torus needs a torus of links; for one of " + extents_text(squarest) +
                            " topology " + topology->name + " " +
                            missing_torus_link(*topology, squarest));
  }
  const Grid grid(is_grid ? topology->dims : squarest);
  const uint32_t halves = grid.has_ties() ? 2 : 1;
  const std::vector<uint32_t> shares = class_weights(grid, is_grid ? topology : nullptr);
  PlanTrees trees = equal_trees(request, halves * static_cast<uint32_t>(grid.dimensions()));
  for (size_t chunk = 0; chunk < trees.weights.size(); ++chunk) {
    trees.weights[chunk] = shares[chunk % trees.splits / halves];
  }
  trees.fill = [grid, halves, splits = trees.splits, request](uint32_t chunk, ChunkTree& tree) {
    const uint32_t split = chunk % splits;
    fill_torus(grid, owner_of(request, chunk / splits), split / halves, split % halves == 1, tree);
  };
  return trees;
}

}  // namespace tersum
