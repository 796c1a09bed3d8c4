#include "tersum/topology_info.h"

#include <algorithm>

#include "plan/topology.h"

namespace tersum {

Result<std::shared_ptr<const Topology>> open_topology(std::string_view text, double bytes_per_s,
                                                      double latency_s) {
  const size_t begin = text.find_first_not_of(" \t\r\n");
  const bool is_file = begin != std::string_view::npos && text[begin] == '{';
  return is_file ? parse_topology(text) : make_topology(text, bytes_per_s, latency_s);
}

Result<TopologyInfo> read_topology(std::string_view text, std::string_view rate,
                                   double latency_us) {
  constexpr double kBitsPerByte = 8;
  constexpr double kMicroseconds = 1e-6;
  Result<double> bytes_per_s = parse_rate(rate);
  if (!bytes_per_s.ok()) return bytes_per_s.status();
  auto topology = open_topology(text, bytes_per_s.value(), latency_us * kMicroseconds);
  if (!topology.ok()) return topology.status();
  const Topology& source = *topology.value();
  TopologyInfo info{source.name, source.host_of, source.hosts, source.switches, {}, source.dims};
  for (const TopologyLink& link : source.links) {
    if (link.from > link.to) continue;  // the same wire, the other way
    info.wires.push_back({link.from, link.to, link.bytes_per_s * kBitsPerByte,
                          link.latency_s / kMicroseconds, link.burst_bytes});
  }
  return info;
}

}  // namespace tersum
