// Plans that know which ranks share a host: tree and hierarchical.
//
// Of every host but the owner's one rank, the chunk's leader there, talks to other hosts; the
// others of that host talk to their leader. So each chunk crosses a host's border once per phase.
#include <algorithm>
#include <numeric>
#include <utility>

#include "plan/binomial_trees.h"
#include "plan/collective_rules.h"
#include "plan/plan_trees.h"

namespace tersum {
namespace {

size_t at(int index) { return static_cast<size_t>(index); }

// Hosts and their ranks; without a topology every rank is a host of its own.
struct Hosts {
  const Topology* topology = nullptr;
  std::vector<std::vector<int>> ranks_of;
  std::vector<int> host_of;

  explicit Hosts(const PlanRequest& request) : topology(request.topology) {
    if (topology != nullptr) {
      ranks_of = topology->ranks_of;
      host_of = topology->host_of;
      return;
    }
    host_of.resize(at(request.size));
    std::iota(host_of.begin(), host_of.end(), 0);
    for (const int rank : host_of) ranks_of.push_back({rank});
  }
  [[nodiscard]] int count() const { return static_cast<int>(ranks_of.size()); }
  [[nodiscard]] bool all_adjacent() const { return topology == nullptr || topology->all_adjacent; }
};

// Each host hands on to one that is a hop nearer to the root. Of several such it takes another one
// for every root, so that no link carries the ties of all trees.
std::vector<int> breadth_first_parents(const Topology& topology, int root) {
  const std::vector<int> distance = topology.host_distances(root);
  std::vector<int> parents(topology.hosts.size(), kTreeRoot);
  std::vector<int> nearer;
  for (int host = 0; host < topology.host_count(); ++host) {
    if (host == root) continue;
    nearer.clear();
    for (const int next : topology.adjacent_hosts[at(host)]) {
      if (distance[at(next)] < distance[at(host)]) nearer.push_back(next);
    }
    parents[at(host)] = nearer[at(host + root) % nearer.size()];
  }
  return parents;
}

// The tree over hosts. Where all reach each other, `binomial` takes few steps; a star sends each
// chunk straight.
std::vector<int> host_parents(const Hosts& hosts, int root, bool binomial) {
  if (!hosts.all_adjacent()) return breadth_first_parents(*hosts.topology, root);
  std::vector<int> parents(at(hosts.count()), root);
  parents[at(root)] = kTreeRoot;
  for (int host = 0; binomial && host < hosts.count(); ++host) {
    if (host != root) parents[at(host)] = binomial_parent(host, root, hosts.count());
  }
  return parents;
}

// The host from which the farthest is nearest.
int central_host(const Hosts& hosts) {
  if (hosts.all_adjacent()) return 0;
  int centre = 0;
  int best = hosts.count();
  for (int host = 0; host < hosts.count(); ++host) {
    const std::vector<int> distance = hosts.topology->host_distances(host);
    const int farthest = *std::max_element(distance.begin(), distance.end());
    if (farthest >= best) continue;
    centre = host;
    best = farthest;
  }
  return centre;
}

// `place` in [0, 1) says which of its ranks a host makes the chunk's leader.
void fill_over_hosts(const Hosts& hosts, int owner, const std::vector<int>& parents, double place,
                     ChunkTree& tree) {
  tree.reset(static_cast<int>(hosts.host_of.size()), owner);
  const int home = hosts.host_of[at(owner)];
  const auto leader_of = [&](int host) {
    const std::vector<int>& local = hosts.ranks_of[at(host)];
    if (host == home) return owner;
    const auto index = static_cast<size_t>(place * static_cast<double>(local.size()));
    return local[std::min(index, local.size() - 1)];
  };
  for (int host = 0; host < hosts.count(); ++host) {
    const int leader = leader_of(host);
    for (const int rank : hosts.ranks_of[at(host)]) {
      if (rank != leader) tree.parent[at(rank)] = leader;
    }
    if (host != home) tree.parent[at(leader)] = leader_of(parents[at(host)]);
  }
  tree.hand_out_by_the_same_way();
}

// Where its owner stands among the ranks of its host, as a fraction: its chunks' leaders elsewhere
// then stand there too, and every rank of a host leads equally often.
double place_of(const Hosts& hosts, int owner) {
  const std::vector<int>& local = hosts.ranks_of[at(hosts.host_of[at(owner)])];
  const auto index = std::lower_bound(local.begin(), local.end(), owner) - local.begin();
  return (static_cast<double>(index) + 0.5) / static_cast<double>(local.size());
}

// Equal shares for all hosts, however many ranks a host has: then every host sends
// (H - 1) / H of the array out in each phase, and nobody more.
std::vector<uint32_t> equal_host_shares(const Hosts& hosts) {
  uint64_t common = 1;
  for (const std::vector<int>& ranks : hosts.ranks_of) {
    common = std::min<uint64_t>(std::lcm(common, ranks.size()), 720'720);
  }
  std::vector<uint32_t> weights(hosts.host_of.size());
  for (size_t rank = 0; rank < weights.size(); ++rank) {
    weights[rank] = static_cast<uint32_t>(common / hosts.ranks_of[at(hosts.host_of[rank])].size());
  }
  return weights;
}

// All_reduce over one tree. Its root is in the middle.
PlanTrees one_tree(Hosts hosts) {
  PlanTrees trees;
  trees.weights = {1};
  const int home = central_host(hosts);
  const int owner = hosts.ranks_of[at(home)].front();
  trees.fill = [owner, hosts = std::move(hosts)](uint32_t /*chunk*/, ChunkTree& tree) {
    fill_over_hosts(hosts, owner, host_parents(hosts, hosts.host_of[at(owner)], true), 0, tree);
  };
  return trees;
}

// Of the way out only what leads to the one rank that ends with the chunk: the ranks on it hand the
// bytes on and keep nothing.
void keep_way_to(int receiver, ChunkTree& tree) {
  const std::vector<int> source = std::move(tree.source);
  tree.source.assign(source.size(), kNotInTree);
  for (int rank = receiver; rank >= 0; rank = source[at(rank)]) {
    tree.source[at(rank)] = source[at(rank)];
  }
  tree.source[at(tree.owner)] = kTreeRoot;
}

}  // namespace

Result<PlanTrees> host_trees(const PlanRequest& request) {
  Hosts hosts(request);
  const bool is_tree = request.kind == PlanKind::kTree;
  const bool all_reduces = request.collective == Collective::kAllReduce;
  if (is_tree && all_reduces) return one_tree(std::move(hosts));
  PlanTrees trees = equal_trees(request, 1);
  if (all_reduces) trees.weights = equal_host_shares(hosts);
  trees.fill = [is_tree, request, hosts = std::move(hosts)](uint32_t chunk, ChunkTree& tree) {
    const int owner = owner_of(request, chunk);
    const std::vector<int> parents = host_parents(hosts, hosts.host_of[at(owner)], is_tree);
    fill_over_hosts(hosts, owner, parents, place_of(hosts, owner), tree);
    const PartRule rule = part_rule(request.collective, request.size, request.root, chunk);
    if (rule.receiver != kEveryRank) keep_way_to(rule.receiver, tree);
  };
  return trees;
}

}  // namespace tersum
