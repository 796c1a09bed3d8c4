// The least time that any plan could take, by its links alone.
#include <algorithm>

#include "plan/cost_model.h"

namespace tersum {
namespace {

size_t at(int index) { return static_cast<size_t>(index); }

// Wire bytes as multiples of the array's: what all hosts together must be sent, and what one host
// must send or be sent.
struct Need {
  double together = 0;
  double alone = 0;
};

// H hosts with n ranks, of which this one has `local`. Sums within a host cost no link.
Need need_of(const CostRequest& request, double hosts, double ranks, int host, double local) {
  const bool is_root_host = request.topology->host_of[at(request.root)] == host;
  const double away = 1 - local / ranks;
  switch (request.collective) {
    case Collective::kAllReduce:
      // Every element's sum needs H - 1 messages, and as many to become known; a host gives out at
      // least what it does not own and then what it does.
      return {2 * (hosts - 1), 1};
    case Collective::kReduceScatter:
    case Collective::kAllGather:
      return {hosts - 1, away};
    case Collective::kBroadcast:
      return {hosts - 1, 1};
    case Collective::kAllToAll:
      return {0, local / ranks * away};
    case Collective::kGather:
    case Collective::kScatter:
      return {0, is_root_host ? away : local / ranks};
    case Collective::kBarrier:
      break;
  }
  return {};
}

}  // namespace

double wire_bound_s(const CostRequest& request) {
  const Topology& topology = *request.topology;
  const int hosts = topology.host_count();
  if (hosts < 2) return 0;
  const double wire_bytes = request.value_bytes * request.codec.wire_ratio;
  double together = 0;
  double all_rates = 0;
  double bound = 0;
  for (int host = 0; host < hosts; ++host) {
    double rate = 0;
    for (size_t i = topology.first_link[at(host)]; i < topology.first_link[at(host) + 1]; ++i) {
      rate += topology.links[i].bytes_per_s * request.machine.goodput;
    }
    all_rates += rate;
    const Need need = need_of(request, hosts, topology.ranks(), host,
                              static_cast<double>(topology.ranks_of[at(host)].size()));
    together = need.together;
    bound = std::max(bound, need.alone * wire_bytes / rate);
  }
  return std::max(bound, together * wire_bytes / all_rates);
}

}  // namespace tersum
