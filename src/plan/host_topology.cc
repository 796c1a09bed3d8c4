#include "plan/host_topology.h"

#include <algorithm>
#include <map>

#include "base/check.h"

namespace tersum {
namespace {

template <typename Name>
std::vector<int> number(std::span<const Name> names) {
  std::map<Name, int> numbers;
  std::vector<int> numbered;
  numbered.reserve(names.size());
  for (const Name& name : names) {
    numbered.push_back(numbers.emplace(name, static_cast<int>(numbers.size())).first->second);
  }
  return numbered;
}

}  // namespace

std::vector<int> number_hosts(std::span<const std::string> names) { return number(names); }

std::vector<int> hosts_of_part(std::span<const int> host_of, std::span<const int> ranks) {
  std::vector<int> hosts;
  hosts.reserve(ranks.size());
  for (const int rank : ranks) hosts.push_back(host_of[static_cast<size_t>(rank)]);
  return number(std::span<const int>(hosts));
}

std::shared_ptr<const Topology> topology_of_hosts(std::span<const int> host_of) {
  if (host_of.empty() || host_of.size() > kTopologyRanksMax) return nullptr;
  const int hosts = 1 + *std::max_element(host_of.begin(), host_of.end());
  const auto ranks = static_cast<int>(host_of.size());
  if (hosts == 1 || hosts == ranks) return nullptr;
  auto topology = std::make_shared<Topology>();
  topology->name = "of " + std::to_string(hosts) + " hosts";
  topology->host_of.assign(host_of.begin(), host_of.end());
  topology->switches.emplace_back("network");
  for (int host = 0; host < hosts; ++host) {
    topology->hosts.push_back("host" + std::to_string(host));
    topology->links.push_back({host, hosts, kUnknownBytesPerSecond, 0, 0});
    topology->links.push_back({hosts, host, kUnknownBytesPerSecond, 0, 0});
  }
  int culprit = -1;
  TERSUM_CHECK(complete_topology(*topology, culprit).ok());
  return topology;
}

std::shared_ptr<const Topology> named_or_found(std::shared_ptr<const Topology> named,
                                               std::vector<int>& host_of) {
  if (named == nullptr) return topology_of_hosts(host_of);
  host_of = number(std::span<const int>(named->host_of));
  return named;
}

}  // namespace tersum
