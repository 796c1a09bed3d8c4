// Topologies: which hosts have wires between them. Plans use only these wires.
//
// Thread safety: pure functions, plain values. docs/topologies.md describes names and files.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "tersum/status.h"

namespace tersum {

// A wire between two nodes (hosts first, then switches, by index); its rate holds in each direction
// at once.
struct TopologyWire {
  int left = 0;
  int right = 0;
  double bits_per_s = 0;
  double latency_us = 0;
  double burst_bytes = 0;  // what passes at once after a rest; 0: nothing
};

struct TopologyInfo {
  std::string name;
  std::vector<int> host_of;  // by rank
  std::vector<std::string> hosts;
  std::vector<std::string> switches;
  std::vector<TopologyWire> wires;
  std::vector<int> dims;  // a grid's extents; empty for other shapes
};

// `text` is a name ("pair", "ring8", "mesh4", "star8", "torus2x4"), whose wires then have `rate`
// ("1gbit") and `latency_us`, or the text of a topology file, which says these itself.
// kInvalidArgument: an unknown name, a bad rate; a file's errors name their line.
Result<TopologyInfo> read_topology(std::string_view text, std::string_view rate = "1gbit",
                                   double latency_us = 20);

}  // namespace tersum
