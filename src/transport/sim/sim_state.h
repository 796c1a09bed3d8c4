// SimState: the inside of SimNetwork: events, nodes, and the messages under way.
//
// Thread safety: none.
// Invariants: events of equal time run in the order in which they were made. Nodes are named by
// index; a node whose transport has ended, or that was killed, is `gone` and never comes back.
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <queue>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "transport/sim/sim_network.h"

namespace tersum {

class SimTransport;

// One message between its send and its arrival.
struct SimFlight {
  int from = 0;
  int to = 0;
  uint64_t link = 0;  // both ends of a link carry the same number
  MessageHeader header;
  SlotRef slot;                     // the sender's
  std::vector<std::byte> detached;  // its bytes, once the sender is gone
  bool waits_for_heal = false;
};

class SimState {
 public:
  SimState(uint64_t seed, const SimOptions& options) : options(options), random(seed) {}

  void at(int64_t time_ns, std::function<void()> action);
  void after(int64_t duration_ns, std::function<void()> action);
  void run_next();

  int64_t latency_ns() { return options.latency_ns + below(options.jitter_ns); }
  int64_t below(int64_t bound) {
    return static_cast<int64_t>(random.below(static_cast<uint64_t>(bound)));
  }
  // Puts a message on the way.
  void depart(SimFlight flight);
  void arrive(uint64_t flight_id);
  // When everything from one node to the other that is on the way now will have arrived.
  [[nodiscard]] int64_t quiet_ns(int from, int to) const;

  // One try of `from` to link with `to`; tries again until the deadline.
  struct Greeting {
    int from = 0;
    int to = 0;
    ProcessId peer;
    uint64_t group = 0;
    GroupToken token{};
    int64_t deadline_ns = 0;
  };
  void greet(const Greeting& greeting);

  // Takes the other end of link `link` at `node` down after `delay_ns` and what is on the way to
  // it.
  void end_link_later(int from, int to, uint64_t link, int64_t delay_ns, std::string reason);
  // The node is no more; `orderly` keeps all it has sent on its way.
  void remove_node(int node, bool orderly);

  // Both ends of the links between two nodes that were cut off for too long.
  void lose_links_between(int a, int b);
  // Lets what waited for a cut to heal go on.
  void resume_flights();

  [[nodiscard]] ProcessId id_of(int index) const { return ids[static_cast<size_t>(index)]; }
  [[nodiscard]] int index_of(ProcessId id) const;
  [[nodiscard]] SimTransport* node(int index) const { return nodes[static_cast<size_t>(index)]; }
  [[nodiscard]] bool is_cut(int a, int b) const { return cuts.contains(std::minmax(a, b)); }
  [[nodiscard]] double bandwidth(int a, int b) const {
    const auto own = bandwidths.find(std::minmax(a, b));
    return own == bandwidths.end() ? options.bandwidth_bytes_per_s : own->second;
  }

  SimOptions options;
  SimClock clock;
  SimRandom random;
  std::function<void(int64_t)> set_now;
  std::vector<SimTransport*> nodes;  // null: gone
  std::vector<ProcessId> ids;        // of all nodes, ever
  std::set<std::pair<int, int>> cuts;
  std::map<std::pair<int, int>, uint64_t> cut_numbers;
  std::map<std::pair<int, int>, double> bandwidths;  // of links that have one of their own
  uint64_t cut_count = 0;
  uint64_t next_link = 1;

  struct Event {
    int64_t time_ns;
    uint64_t order;
    std::function<void()> action;
    bool operator>(const Event& other) const {
      return std::pair(time_ns, order) > std::pair(other.time_ns, other.order);
    }
  };
  std::priority_queue<Event, std::vector<Event>, std::greater<>> events;

 private:
  struct Path {
    int64_t free_ns = 0;          // when the wire has sent what it was given
    int64_t last_arrival_ns = 0;  // of all messages so far
  };
  // What the receiver gets of a payload, as SimOptions::alter says.
  static SlotRef received(SimTransport& receiver, std::span<const std::byte> payload, size_t bytes);

  uint64_t next_order_ = 0;
  uint64_t next_flight_ = 0;
  std::map<uint64_t, SimFlight> flights_;
  std::map<std::pair<int, int>, Path> paths_;
};

}  // namespace tersum
