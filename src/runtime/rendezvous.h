// Rendezvous: how members of a group find each other through a store and link up.
//
// Thread safety: any thread; blocks, driving the process's node meanwhile. Keys under
// "tersum/<name>/": "token" (group id and token, set by member 0) and "member/<i>" (version, agreed
// options, address and what the caller adds).
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "plan/topology.h"
#include "runtime/member.h"
#include "runtime/progress.h"
#include "tersum/options.h"
#include "tersum/status.h"
#include "tersum/store.h"
#include "transport/transport.h"

namespace tersum {

struct MeetingRequest {
  std::string name;
  std::string noun = "rank";  // what a member is called in messages
  int index = 0;
  int count = 1;
  std::string extra;  // published with the address; no line breaks
  // Members that are not adjacent to this one are not connected to. Null: all are.
  const Topology* topology = nullptr;
};

// What carries a group's messages: links of several hosts, TCP within one, or its memory.
enum class GroupCarrier : uint8_t { kWires, kLoopback, kMemory };

// Of a group, or of a part of one.
GroupCarrier carrier_of(std::span<const RankCarrier> members);

// How many of a group live on the host of member `rank`, it among them.
size_t ranks_together(std::span<const RankCarrier> members, int rank);

// How many CPUs the members of a group may run on, all of which are on one host; 0 where there are
// several hosts, or a member does not say.
int cpus_together(std::span<const RankCarrier> members);

// Whether the members on the host of member `rank` may run on at least as many CPUs as they are;
// not if one of them does not say.
bool has_cpu_each(std::span<const RankCarrier> members, int rank);

// Of the host that has the most members for each of its CPUs; one and one where all have a CPU of
// their own. A host of which a member does not say its CPUs is taken to have one for each.
HostShare most_crowded(std::span<const RankCarrier> members);

// The smallest last-level cache of members that are all on one host; 0: they are not, or one does
// not say.
size_t cache_bytes_of_host(std::span<const RankCarrier> members);

// The same of members that reach each other by memory alone; 0: they do not, or one does not say.
size_t cache_bytes_together(std::span<const RankCarrier> members);

// Tells a member, whose group that is, how many share its host, what CPUs they have and what
// cache.
void tell_carriers(Member& member, std::span<const RankCarrier> members);

struct Meeting {
  uint64_t group = 0;
  GroupToken token{};
  std::vector<std::string> addresses;
  std::vector<std::string> extras;
  std::vector<ProcessId> processes;
  std::vector<int> host_of;           // by member; numbered as they first come up
  std::vector<RankCarrier> carriers;  // by member
};

// Those of members `ranks` of all.
std::vector<RankCarrier> carriers_of_part(std::span<const RankCarrier> all,
                                          std::span<const int> ranks);

// How a group of `size` ranks cuts its messages, whatever their CPUs and caches.
SliceLimits limits_by_carrier(const CommunicatorOptions& options, GroupCarrier carrier,
                              size_t size);

// How a group with these members does.
SliceLimits slice_limits(const CommunicatorOptions& options, std::span<const RankCarrier> members);

// Publishes this member, waits for all others, compares versions and agreed options.
// kTimeout names the first member that did not come; kDisagreement both values and both members.
Result<Meeting> meet(Progress& progress, Store& store, const MeetingRequest& request,
                     const CommunicatorOptions& options, int64_t deadline_ns);

// Waits until this process has a link to every other process of the meeting, or to those that the
// topology makes its neighbours.
Status link_up(Progress& progress, const Meeting& meeting, const MeetingRequest& request,
               const CommunicatorOptions& options, int64_t deadline_ns);

}  // namespace tersum
