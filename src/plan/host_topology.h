// The topology of a group whose wires nobody described: which ranks share a host, and nothing else.
//
// Thread safety: pure functions. Invariant: the answer is the same on every rank that knows the
// same names.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "plan/topology.h"

namespace tersum {

// Per name the number of its host, counted in the order in which hosts first come up; equal names
// are one host.
std::vector<int> number_hosts(std::span<const std::string> names);
// The same of some of the ranks of a group, which have new numbers in a part of it.
std::vector<int> hosts_of_part(std::span<const int> host_of, std::span<const int> ranks);

// Hosts 0.. around one switch, rank r on host host_of[r]; links of a rate so high that choices are
// those of an unknown one, and of no latency. Null where hosts tell plans nothing: there is one, or
// every rank has its own, or there are more than kTopologyRanksMax ranks.
std::shared_ptr<const Topology> topology_of_hosts(std::span<const int> host_of);

// The topology that is `named`, which then says who shares a host; without one, that of the hosts.
std::shared_ptr<const Topology> named_or_found(std::shared_ptr<const Topology> named,
                                               std::vector<int>& host_of);

}  // namespace tersum
