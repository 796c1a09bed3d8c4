#include "plan/topology.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "base/check.h"
#include "plan/topology_shape.h"

namespace tersum {
namespace {

size_t at(int index) { return static_cast<size_t>(index); }

// The hosts that a message from `host` reaches by one link or through switches only.
std::vector<int> reach_of(const Topology& topology, int host) {
  std::vector<int> reached;
  std::vector<char> seen(at(topology.node_count()), 0);
  std::vector<int> pending{host};
  seen[at(host)] = 1;
  while (!pending.empty()) {
    const int node = pending.back();
    pending.pop_back();
    for (size_t i = topology.first_link[at(node)]; i < topology.first_link[at(node) + 1]; ++i) {
      const int next = topology.links[i].to;
      if (seen[at(next)] != 0) continue;
      seen[at(next)] = 1;
      (next < topology.host_count() ? reached : pending).push_back(next);
    }
  }
  std::sort(reached.begin(), reached.end());
  return reached;
}

void index_links(Topology& topology) {
  topology.slowest_bytes_per_s = std::numeric_limits<double>::infinity();
  for (const TopologyLink& link : topology.links) {
    topology.slowest_bytes_per_s = std::min(topology.slowest_bytes_per_s, link.bytes_per_s);
  }
  std::sort(topology.links.begin(), topology.links.end(),
            [](const TopologyLink& a, const TopologyLink& b) {
              return std::pair(a.from, a.to) < std::pair(b.from, b.to);
            });
  topology.first_link.assign(at(topology.node_count()) + 1, 0);
  for (const TopologyLink& link : topology.links) ++topology.first_link[at(link.from) + 1];
  for (size_t node = 1; node < topology.first_link.size(); ++node) {
    topology.first_link[node] += topology.first_link[node - 1];
  }
}

// The first node that cannot be reached from host 0, or -1.
int unreached_node(const Topology& topology) {
  std::vector<char> seen(at(topology.node_count()), 0);
  std::vector<int> pending{0};
  seen[0] = 1;
  while (!pending.empty()) {
    const int node = pending.back();
    pending.pop_back();
    for (size_t i = topology.first_link[at(node)]; i < topology.first_link[at(node) + 1]; ++i) {
      const int next = topology.links[i].to;
      if (seen[at(next)] != 0) continue;
      seen[at(next)] = 1;
      pending.push_back(next);
    }
  }
  const auto missing = std::find(seen.begin(), seen.end(), 0);
  return missing == seen.end() ? -1 : static_cast<int>(missing - seen.begin());
}

}  // namespace

const std::string& Topology::node_name(int node) const {
  return node < host_count() ? hosts[at(node)] : switches[at(node - host_count())];
}

bool Topology::hosts_adjacent(int a, int b) const {
  if (a == b || all_adjacent) return true;
  const std::vector<int>& near = adjacent_hosts[at(a)];
  return std::binary_search(near.begin(), near.end(), b);
}

const TopologyLink* Topology::links_from(int node, int first_target) const {
  const TopologyLink* first = links.data() + first_link[at(node)];
  const TopologyLink* last = links.data() + first_link[at(node) + 1];
  return std::lower_bound(first, last, first_target,
                          [](const TopologyLink& link, int target) { return link.to < target; });
}

// In breadth over the switches, of which there are few: a list of those seen is quicker than a mark
// on every node.
std::vector<size_t> Topology::path(int host_a, int host_b) const {
  if (host_a == host_b) return {};
  struct Visit {
    int node;
    size_t by_link;
    size_t before;
  };
  std::vector<Visit> seen{{host_a, 0, 0}};
  for (size_t head = 0; head < seen.size(); ++head) {
    const int node = seen[head].node;
    const TopologyLink* const last = links.data() + first_link[at(node) + 1];
    const TopologyLink* link = links_from(node, host_b);
    if (link != last && link->to == host_b) {
      std::vector<size_t> passed{static_cast<size_t>(link - links.data())};
      for (size_t i = head; i != 0; i = seen[i].before) passed.push_back(seen[i].by_link);
      std::reverse(passed.begin(), passed.end());
      return passed;
    }
    // Switches are the nodes after the hosts, so a node's links to switches are its last ones.
    for (link = links_from(node, host_count()); link != last; ++link) {
      const bool is_new = std::none_of(seen.begin(), seen.end(),
                                       [&](const Visit& visit) { return visit.node == link->to; });
      if (is_new) seen.push_back({link->to, static_cast<size_t>(link - links.data()), head});
    }
  }
  TERSUM_CHECK(false);  // the hosts are not adjacent
  return {};
}

PathSpeed Topology::path_speed(int rank_a, int rank_b) const {
  const std::vector<size_t> passed = path(host_of[at(rank_a)], host_of[at(rank_b)]);
  PathSpeed speed;
  if (!passed.empty()) speed.burst_bytes = links[passed.front()].burst_bytes;
  for (const size_t index : passed) {
    const TopologyLink& link = links[index];
    speed.bytes_per_s = std::min(speed.bytes_per_s, link.bytes_per_s);
    speed.latency_s += link.latency_s;
    speed.burst_bytes = std::min(speed.burst_bytes, link.burst_bytes);
  }
  return speed;
}

std::vector<int> Topology::host_distances(int host) const {
  std::vector<int> distance(hosts.size(), -1);
  std::vector<int> queue{host};
  distance[at(host)] = 0;
  for (size_t head = 0; head < queue.size(); ++head) {
    for (const int next : adjacent_hosts[at(queue[head])]) {
      if (distance[at(next)] >= 0) continue;
      distance[at(next)] = distance[at(queue[head])] + 1;
      queue.push_back(next);
    }
  }
  return distance;
}

// A search in breadth from the own host hands every host the neighbour through which it was found.
// The neighbour is on a shortest way, so each hop comes nearer whatever the next rank chooses.
std::vector<int> Topology::next_hops(int from) const {
  const int home = host_of[at(from)];
  std::vector<int> first_host(hosts.size(), -1);
  std::vector<int> queue;
  first_host[at(home)] = home;
  for (const int next : adjacent_hosts[at(home)]) {
    first_host[at(next)] = next;
    queue.push_back(next);
  }
  for (size_t head = 0; head < queue.size(); ++head) {
    for (const int next : adjacent_hosts[at(queue[head])]) {
      if (first_host[at(next)] >= 0) continue;
      first_host[at(next)] = first_host[at(queue[head])];
      queue.push_back(next);
    }
  }
  std::vector<int> hops(host_of.size());
  for (int to = 0; to < ranks(); ++to) {
    const int host = host_of[at(to)];
    const int first = first_host[at(host)];
    hops[at(to)] = first == host ? to : ranks_of[at(first)].front();
  }
  return hops;
}

Status complete_topology(Topology& topology, int& culprit) {
  culprit = -1;
  index_links(topology);
  topology.ranks_of.assign(topology.hosts.size(), {});
  for (int rank = 0; rank < topology.ranks(); ++rank) {
    topology.ranks_of[at(topology.host_of[at(rank)])].push_back(rank);
  }
  if (const int node = unreached_node(topology); node >= 0) {
    culprit = node;
    return invalid_argument(topology.node_name(node) + " cannot be reached from " +
                            topology.hosts[0] + "; link it");
  }
  topology.adjacent_hosts.clear();
  topology.all_adjacent = true;
  for (int host = 0; host < topology.host_count(); ++host) {
    topology.adjacent_hosts.push_back(reach_of(topology, host));
    topology.all_adjacent &= topology.adjacent_hosts.back().size() + 1 == topology.hosts.size();
  }
  return check_shape_claim(topology);
}

}  // namespace tersum
