// Shapes with a name: pair, ringN, meshN, starN, torusAxB[xC].
//
// Thread safety: pure functions. Invariant: what shape_wires lists for a shape is all the links
// that it has, each once.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "plan/topology.h"

namespace tersum {

enum class ShapeKind { kPair, kRing, kMesh, kStar, kTorus };

struct Shape {
  ShapeKind kind = ShapeKind::kPair;
  std::vector<int> extents;  // one number of hosts; of a torus, its dimensions
  [[nodiscard]] int size() const;
};

// nullopt when the text is no shape's name. "ring", "mesh" and "star" may come without a number
// (extents stay empty), as a claim in a file does.
std::optional<Shape> parse_shape(std::string_view name);

// Pairs of nodes, hosts 0..size-1; a star's switch is node `size`.
std::vector<std::pair<int, int>> shape_wires(const Shape& shape);

// Which link a torus of the ranks in their order (with one extent: a ring) would have and the
// topology has not, the first one: "has no link between rank 0 and rank 2".
std::string missing_torus_link(const Topology& topology, const std::vector<int>& extents);

// Whether the links of topology.shape are there. Fills topology.dims of a torus.
Status check_shape_claim(Topology& topology);

}  // namespace tersum
