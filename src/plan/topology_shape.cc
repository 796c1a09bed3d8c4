#include "plan/topology_shape.h"

#include <algorithm>
#include <charconv>
#include <string>
#include <utility>

#include "base/check.h"

namespace tersum {
namespace {

struct ShapeName {
  std::string_view text;
  ShapeKind kind;
};
constexpr ShapeName kShapeNames[] = {
    {"pair", ShapeKind::kPair}, {"ring", ShapeKind::kRing},   {"mesh", ShapeKind::kMesh},
    {"star", ShapeKind::kStar}, {"torus", ShapeKind::kTorus},
};
constexpr size_t kTorusDimensionsMax = 3;
// A mesh has a link for every two hosts: beyond this the list itself is the burden.
constexpr int kMeshRanksMax = 2048;

// "2x4" -> {2, 4}; empty when it is not numbers joined by x.
std::vector<int> parse_extents(std::string_view text) {
  std::vector<int> extents;
  while (!text.empty()) {
    int extent = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), extent);
    if (error != std::errc() || extent < 1 || extent > kTopologyRanksMax) return {};
    extents.push_back(extent);
    text.remove_prefix(static_cast<size_t>(end - text.data()));
    if (text.empty()) return extents;
    if (text.front() != 'x') return {};
    text.remove_prefix(1);
  }
  return {};
}

void add_ring(int size, std::vector<std::pair<int, int>>& wires) {
  for (int i = 0; i + 1 < size; ++i) wires.emplace_back(i, i + 1);
  if (size > 2) wires.emplace_back(0, size - 1);
}

void add_torus(const std::vector<int>& extents, std::vector<std::pair<int, int>>& wires) {
  int size = 1;
  for (const int extent : extents) size *= extent;
  int stride = size;
  for (const int extent : extents) {
    stride /= extent;
    for (int node = 0; node < size; ++node) {
      const int coordinate = node / stride % extent;
      // Two that face each other have one link, whichever way round one looks at them.
      if (extent == 1 || (extent == 2 && coordinate == 1)) continue;
      const int next = coordinate + 1 == extent ? node - coordinate * stride : node + stride;
      wires.emplace_back(std::min(node, next), std::max(node, next));
    }
  }
}

Status unknown_shape(std::string_view name) {
  return invalid_argument("no topology is named \"" + std::string(name) +
                          "\"; use pair, ringN, meshN, starN, torusAxB or torusAxBxC with at "
                          "least 2 ranks and at most " +
                          std::to_string(kTopologyRanksMax) +
                          " (mesh: " + std::to_string(kMeshRanksMax) + "), or a file");
}

bool is_linked(const Topology& topology, int from, int to) {
  const auto found =
      std::lower_bound(topology.links.begin(), topology.links.end(), std::pair(from, to),
                       [](const TopologyLink& link, const std::pair<int, int>& wanted) {
                         return std::pair(link.from, link.to) < wanted;
                       });
  return found != topology.links.end() && found->from == from && found->to == to;
}

// What a claim without numbers, made in a file, means for this many hosts.
bool fits_hosts(Shape& shape, const Topology& topology) {
  if (shape.kind == ShapeKind::kTorus && shape.extents.empty()) return false;
  if (shape.extents.empty()) shape.extents = {topology.host_count()};
  return shape.size() == topology.host_count() && shape.size() >= 2;
}

}  // namespace

int Shape::size() const {
  int64_t size = 1;
  for (const int extent : extents) size = std::min<int64_t>(size * extent, kTopologyRanksMax + 1);
  return static_cast<int>(size);
}

std::optional<Shape> parse_shape(std::string_view name) {
  for (const ShapeName& known : kShapeNames) {
    if (!name.starts_with(known.text)) continue;
    const std::string_view rest = name.substr(known.text.size());
    Shape shape{known.kind,
                known.kind == ShapeKind::kPair ? std::vector<int>{2} : parse_extents(rest)};
    if (known.kind == ShapeKind::kPair || shape.extents.empty()) {
      return rest.empty() ? std::optional(shape) : std::nullopt;
    }
    const bool is_torus = known.kind == ShapeKind::kTorus;
    if (is_torus != (shape.extents.size() > 1)) return std::nullopt;
    if (shape.extents.size() > kTorusDimensionsMax) return std::nullopt;
    if (is_torus && *std::min_element(shape.extents.begin(), shape.extents.end()) < 2) {
      return std::nullopt;
    }
    return shape;
  }
  return std::nullopt;
}

std::vector<std::pair<int, int>> shape_wires(const Shape& shape) {
  std::vector<std::pair<int, int>> wires;
  const int size = shape.size();
  switch (shape.kind) {
    case ShapeKind::kPair:
    case ShapeKind::kRing:
      add_ring(size, wires);
      break;
    case ShapeKind::kMesh:
      for (int a = 0; a < size; ++a) {
        for (int b = a + 1; b < size; ++b) wires.emplace_back(a, b);
      }
      break;
    case ShapeKind::kStar:
      for (int host = 0; host < size; ++host) wires.emplace_back(host, size);
      break;
    case ShapeKind::kTorus:
      add_torus(shape.extents, wires);
      break;
  }
  return wires;
}

std::string missing_torus_link(const Topology& topology, const std::vector<int>& extents) {
  for (const auto& [a, b] : shape_wires({ShapeKind::kTorus, extents})) {
    if (topology.adjacent(a, b)) continue;
    return "has no link between rank " + std::to_string(a) + " and rank " + std::to_string(b);
  }
  return "does not say that it has the shape of one";
}

Status check_shape_claim(Topology& topology) {
  topology.dims.clear();
  if (topology.shape.empty()) return ok_status();
  std::optional<Shape> shape = parse_shape(topology.shape);
  if (!shape) return unknown_shape(topology.shape);
  if (!fits_hosts(*shape, topology)) {
    return invalid_argument("shape " + topology.shape + " does not have " +
                            std::to_string(topology.host_count()) + " hosts");
  }
  if (shape->kind == ShapeKind::kStar) {
    if (topology.switches.size() != 1) {
      return invalid_argument("a star has one switch, not " +
                              std::to_string(topology.switches.size()));
    }
  }
  const std::vector<std::pair<int, int>> wires = shape_wires(*shape);
  for (const auto& [a, b] : wires) {
    if (is_linked(topology, a, b)) continue;
    return invalid_argument("shape " + topology.shape + " needs a link between " +
                            topology.node_name(a) + " and " + topology.node_name(b) +
                            "; there is none");
  }
  if (topology.links.size() != 2 * wires.size()) {
    return invalid_argument("shape " + topology.shape + " has " + std::to_string(wires.size()) +
                            " links; there are " + std::to_string(topology.links.size() / 2));
  }
  if (shape->kind != ShapeKind::kTorus) return ok_status();
  for (int rank = 0; rank < topology.ranks(); ++rank) {
    const bool in_order = topology.host_of[static_cast<size_t>(rank)] == rank;
    if (in_order && topology.ranks() == topology.host_count()) continue;
    return invalid_argument("shape " + topology.shape +
                            " wants one rank per host, rank r on the host listed as number r");
  }
  topology.dims = shape->extents;
  return ok_status();
}

Result<std::shared_ptr<const Topology>> make_topology(std::string_view name, double bytes_per_s,
                                                      double latency_s) {
  const std::optional<Shape> shape = parse_shape(name);
  if (!shape || shape->extents.empty()) return unknown_shape(name);
  const int size = shape->size();
  const int size_max = shape->kind == ShapeKind::kMesh ? kMeshRanksMax : kTopologyRanksMax;
  if (size < 2 || size > size_max) return unknown_shape(name);
  if (!is_link_rate(bytes_per_s)) {
    return invalid_argument("topology " + std::string(name) +
                            ": the rate must be positive: between 1 bit/s and 10^6 Tbit/s");
  }
  // Written so that nan is refused, too.
  const bool is_latency = latency_s >= 0 && latency_s <= kLatencySecondsMax;
  if (!is_latency) {
    return invalid_argument("topology " + std::string(name) +
                            ": the latency must be between 0 and a minute");
  }
  auto topology = std::make_shared<Topology>();
  topology->name = topology->shape = name;
  for (int host = 0; host < size; ++host) {
    topology->hosts.push_back("host" + std::to_string(host));
    topology->host_of.push_back(host);
  }
  if (shape->kind == ShapeKind::kStar) topology->switches.emplace_back("switch");
  for (const auto& [a, b] : shape_wires(*shape)) {
    topology->links.push_back({a, b, bytes_per_s, latency_s, 0});
    topology->links.push_back({b, a, bytes_per_s, latency_s, 0});
  }
  int culprit = -1;
  TERSUM_RETURN_IF_ERROR(complete_topology(*topology, culprit));
  return std::shared_ptr<const Topology>(std::move(topology));
}

}  // namespace tersum
