// Member: one rank's place in one group, as the node knows it.
//
// Thread safety: fields under `mutex` may be used from any thread; all others belong to the holder
// of the progress role. Invariants: sequence numbers are drawn in the order in which calls reach
// the node's inbox. `poison` is set once, to the first cause, and never cleared.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "runtime/feedback_sites.h"
#include "runtime/flatten_sites.h"
#include "runtime/group_routes.h"
#include "runtime/operation.h"
#include "runtime/plan_cache.h"
#include "runtime/plan_fits.h"
#include "runtime/rounding_calls.h"
#include "runtime/usual_plan.h"
#include "tersum/communicator.h"
#include "tersum/options.h"
#include "tersum/status.h"
#include "transport/link.h"

namespace tersum {

// Where a rank of the group lives.
struct RankPlace {
  ProcessId process;
  bool local = false;    // in this process: messages are handed over, not sent
  Link* link = nullptr;  // null while local, not linked, or after the link went down
  bool left = false;     // said goodbye to this group
  int64_t left_ns = 0;
  int64_t heard_ns = 0;  // last message handed on by others; those of the own link count there
};

// What a rank's messages are carried by, as the meeting of its group found it.
struct RankCarrier {
  int host = 0;            // as Meeting::host_of, whatever a topology says of hosts
  bool over_tcp = false;   // it takes TCP alone
  std::string cpus;        // on which it may run (platform/cpu_count.h); empty: unknown
  size_t cache_bytes = 0;  // of its last-level cache; 0: unknown
};

// How many ranks a CPU may reach each other's arrays: eight of two cores gain nothing, or lose.
inline constexpr int kReachingRanksOfACpuMax = 2;

// Ranks of one host, and the CPUs on which they may run.
struct HostShare {
  int ranks = 1;
  int cpus = 1;
};

class Progress;

class Member {
 public:
  Member(std::shared_ptr<Progress> driver, uint64_t group_id, int own_rank,
         std::vector<RankPlace> rank_places, SliceLimits slice_limits, bool calls_by_key,
         std::shared_ptr<const Topology> wires = nullptr)
      : progress(std::move(driver)),
        group(group_id),
        rank(own_rank),
        limits(slice_limits),
        keyed(calls_by_key),
        topology(std::move(wires)),
        routes(topology ? make_routes(*topology, own_rank) : GroupRoutes{}),
        places(std::move(rank_places)) {}

  [[nodiscard]] int size() const { return static_cast<int>(places.size()); }
  [[nodiscard]] bool is_neighbour(int other) const { return routes.next_to(other) == other; }
  // What a rank of this group is called in messages: in a lane, by the communicator's number.
  [[nodiscard]] int shown_rank(int other) const {
    return parent_ranks.empty() ? other : parent_ranks[static_cast<size_t>(other)];
  }
  // Why no call can succeed any more; ok while calls can. Progress role only.
  [[nodiscard]] Status current_poison() {
    {
      const std::lock_guard lock(mutex);
      if (!poison.ok() || parent == nullptr) return poison;
    }
    // That a third rank has left or died does not concern two that can still talk.
    Status above = parent->current_poison();
    bool others = above.code() == StatusCode::kPeerLost && size() < parent->size();
    for (const int own : parent_ranks) others &= !parent->places[static_cast<size_t>(own)].left;
    return others ? Status() : above;
  }
  // "rank 3", or "device 2048 (rank 3)" where ranks are devices.
  [[nodiscard]] std::string name_of(int other) const {
    std::string text = "rank " + std::to_string(shown_rank(other));
    if (!devices.empty()) {
      text = "device " + std::to_string(devices[static_cast<size_t>(other)]) + " (" + text + ")";
    }
    return text;
  }

  // A rank's arrays of a call that hold fewer bytes together may gain by being touched by others: 0
  // where the group's ranks share no cache or have too few CPUs. The same on all of them, whatever
  // the system lets them do.
  [[nodiscard]] size_t reach_room() const {
    const bool has_cpus = size() <= kReachingRanksOfACpuMax * host_cpus;
    return has_cpus ? cache_bytes / 4 / static_cast<size_t>(size()) : 0;
  }
  [[nodiscard]] PlanGround ground() const { return {size(), topology.get(), host_cpus}; }

  const std::shared_ptr<Progress> progress;
  const uint64_t group;
  const int rank;
  const SliceLimits limits;
  const bool keyed;  // calls are matched by keys of the caller instead of by sequence
  const std::shared_ptr<const Topology> topology;  // null: everybody reaches everybody
  const GroupRoutes routes;
  std::vector<RankPlace> places;
  std::vector<int64_t> devices;       // global device ids by rank; empty for ordinary groups
  std::vector<int> host_of;           // by rank; set before the first call, empty in a lane
  std::vector<RankCarrier> carriers;  // by rank, of what split may divide; else empty
  // Of the communicator, where this one lives, it among them, whatever a topology says of hosts.
  size_t ranks_of_host = 1;
  // On which the communicator's ranks may run, all of which are on one host; 0: there are several
  // hosts, or somebody does not say.
  int host_cpus = 0;
  // Of the last-level cache of ranks that are all on one host; 0: they are not, or it is unknown.
  // Unset in a lane.
  size_t host_cache_bytes = 0;
  // Of the last-level cache of ranks that reach each other by memory alone; 0: they do not, or it
  // is unknown.
  size_t cache_bytes = 0;
  // This host has a CPU for each of the communicator's ranks that live there, as far as they say.
  bool cpu_each = false;
  HostShare most_crowded;  // of the communicator's hosts; unset in a lane
  // Lanes (lanes.h): the communicator's member, and the communicator's number of each rank.
  std::shared_ptr<Member> parent;
  std::vector<int> parent_ranks;

  // Progress role only.
  uint64_t begun_calls = 0;  // sequence numbers below this have begun here
  std::vector<std::shared_ptr<Operation>> active;
  const Operation* leader = nullptr;  // of those that take turns, who has it
  uint64_t leader_begin_bytes = 0;    // what it had sent when it got it
  std::vector<InMessage> parked;      // for calls that have not begun here
  // (call, descriptors handed on for others) of calls that have not begun here.
  std::vector<std::pair<uint64_t, uint32_t>> early_transits;
  std::vector<uint64_t> ended_keys;  // keyed calls that are over: late messages are dropped
  Status doom;                       // set: everything in flight ends with it
  bool registered = false;
  PlanCache plans;
  FlattenSites flatten;
  FeedbackSites feedback;      // of a lane: its parent's is used
  uint64_t rounding_seed = 0;  // before the first call

  // Any thread.
  PlanFits plan_fits;
  std::mutex mutex;  // of what follows
  uint64_t next_call = 0;
  RoundingCalls rounding_calls;
  Status poison;
  bool closed = false;  // no call can start any more
  Status refusal;       // what they get instead, once closed
  CommunicatorStats stats;
  std::vector<std::shared_ptr<Operation>> pool;
};

// Adds what the member's calls have counted so far.
inline void add_stats(CommunicatorStats& sum, Member& member) {
  const std::lock_guard lock(member.mutex);
  sum.calls += member.stats.calls;
  sum.values += member.stats.values;
  sum.wire_bytes_sent += member.stats.wire_bytes_sent;
  sum.wire_bytes_received += member.stats.wire_bytes_received;
  sum.seconds += member.stats.seconds;
}

}  // namespace tersum
