// Topology: which hosts, switches and links there are, and which ranks live where.
//
// A link joins two nodes and carries its rate both ways at once; it is listed as two directed
// links. Ranks of one host reach each other without any link (shared memory). Two hosts are
// *adjacent* when a link joins them, or switches only lie between them.
//
// Thread safety: immutable once made; share it freely. Invariants: nodes are the hosts, then the
// switches; every host has a rank, every rank one host; the graph is connected; all of it is the
// same on every rank that made it from the same name or text, and so is every answer given here.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "tersum/status.h"

namespace tersum {

// One direction of a link.
struct TopologyLink {
  int from = 0;  // nodes
  int to = 0;
  double bytes_per_s = 0;
  double latency_s = 0;
  // A token bucket's: what passes at once after a rest; 0 where a link only has its rate.
  double burst_bytes = 0;
  friend bool operator==(const TopologyLink&, const TopologyLink&) = default;
};

// What the links between two adjacent ranks allow together. As it stands for a host's own ranks.
struct PathSpeed {
  double bytes_per_s = std::numeric_limits<double>::infinity();  // the slowest link's
  double latency_s = 0;                                          // of all links
  double burst_bytes = 0;                                        // the smallest
};

struct Topology {
  std::string name;
  // "ring", "torus2x4", …: what the graph is known to be; empty for a graph of no particular shape.
  std::string shape;
  // Extents of the grid that the hosts form, the last one varying fastest; empty unless it is one.
  // Rank r is then the only rank of host r.
  std::vector<int> dims;
  std::vector<std::string> hosts;
  std::vector<std::string> switches;
  std::vector<int> host_of;         // rank -> host
  std::vector<TopologyLink> links;  // sorted by (from, to)

  // Derived.
  std::vector<size_t> first_link;                // node -> its first link out, and one past the end
  std::vector<std::vector<int>> ranks_of;        // host -> its ranks, ascending
  std::vector<std::vector<int>> adjacent_hosts;  // host -> hosts, ascending
  bool all_adjacent = false;                     // every pair of hosts is
  double slowest_bytes_per_s = 0;                // of all links; infinite without any

  [[nodiscard]] int ranks() const { return static_cast<int>(host_of.size()); }
  [[nodiscard]] int host_count() const { return static_cast<int>(hosts.size()); }
  [[nodiscard]] int node_count() const { return static_cast<int>(hosts.size() + switches.size()); }
  [[nodiscard]] const std::string& node_name(int node) const;

  [[nodiscard]] bool hosts_adjacent(int a, int b) const;
  // Whether a message goes from one rank to the other without passing through a third.
  [[nodiscard]] bool adjacent(int rank_a, int rank_b) const {
    return hosts_adjacent(host_of[static_cast<size_t>(rank_a)],
                          host_of[static_cast<size_t>(rank_b)]);
  }
  // The first link out of `node` to a node that is not before `first_target`; past the node's last
  // one when there is none.
  [[nodiscard]] const TopologyLink* links_from(int node, int first_target) const;
  // Indices into `links` that a message between adjacent hosts passes, in order: the fewest there
  // are. Empty for a host and itself.
  [[nodiscard]] std::vector<size_t> path(int host_a, int host_b) const;
  // Of the path between adjacent ranks.
  [[nodiscard]] PathSpeed path_speed(int rank_a, int rank_b) const;

  // For each rank, the adjacent rank to which `from` passes what is meant for it: the rank itself
  // when it is adjacent, else one that is nearer to it. `from` itself for `from`.
  [[nodiscard]] std::vector<int> next_hops(int from) const;
  [[nodiscard]] int next_hop(int from, int to) const {
    return next_hops(from)[static_cast<size_t>(to)];
  }
  // Hops from `host` to every host, through hosts and switches.
  [[nodiscard]] std::vector<int> host_distances(int host) const;
};

inline constexpr int kTopologyRanksMax = 4096;
// What a link may be said to have: within it no product of the cost model overflows.
inline constexpr double kRateBytesPerSecondMin = 0.125;    // 1 bit/s
inline constexpr double kRateBytesPerSecondMax = 1.25e17;  // 10^6 Tbit/s
inline constexpr double kLatencySecondsMax = 60;
// False for nan, too.
constexpr bool is_link_rate(double bytes_per_s) {
  return bytes_per_s >= kRateBytesPerSecondMin && bytes_per_s <= kRateBytesPerSecondMax;
}
inline constexpr double kDefaultRateBytesPerSecond = 125e6;  // 1 Gbit/s
inline constexpr double kDefaultLatencySeconds = 20e-6;
// Of links that nobody has measured or described: so high that no choice goes by it.
inline constexpr double kUnknownBytesPerSecond = 1e12;

// "pair", "ring8", "mesh4" (a link between every two), "star8" (eight hosts on one switch),
// "torus2x4", "torus2x2x2"; one rank per host. A torus dimension of 2 has one link between the two,
// not two. kInvalidArgument: an unknown shape, fewer than 2 or too many ranks, a rate or a
// latency beyond the limits above.
Result<std::shared_ptr<const Topology>> make_topology(
    std::string_view name, double bytes_per_s = kDefaultRateBytesPerSecond,
    double latency_s = kDefaultLatencySeconds);

// From JSON (docs/topologies.md). kInvalidArgument names the line and what is wrong there.
Result<std::shared_ptr<const Topology>> parse_topology(std::string_view text);
// Either of the two: text that begins with '{' is a file's, everything else a name.
Result<std::shared_ptr<const Topology>> open_topology(
    std::string_view text, double bytes_per_s = kDefaultRateBytesPerSecond,
    double latency_s = kDefaultLatencySeconds);
// The same topology as text that parse_topology accepts.
std::string describe_topology(const Topology& topology);

// "1gbit", "250mbit", "2.5gbit", "1000" (bits per second), as tc writes them; bytes per second.
Result<double> parse_rate(std::string_view text);

// What the two makers above end with: derives the derived fields of a topology whose others are
// set. Empty, or why it is none: an unconnected node ("… cannot be reached"), a graph that has not
// the shape it claims. `culprit` gets the node that the complaint is about, -1 when it is the
// shape.
Status complete_topology(Topology& topology, int& culprit);

}  // namespace tersum
