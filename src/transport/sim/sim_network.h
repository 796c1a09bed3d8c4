// SimNetwork: a network of processes in one thread, on a virtual clock, from one seed.
//
// Messages take time (latency, jitter, bandwidth), overtake each other, are cut into pieces that
// arrive apart, and reach a process a few at a time. Processes can be killed, frozen and cut off
// from each other. The same seed and the same calls give the same run, bit for bit.
//
// How a test drives it: poll every node until none moves, then advance_to_next_event(); or let one
// node wait(), which advances the clock by at most its timeout.
//
// Thread safety: none; everything in one thread (wake() of its transports is safe but does
// nothing). Invariants: time moves only in advance_to_next_event(), advance_by() and
// Transport::wait(). The network outlives its transports. A payload's slot stays referenced until
// its message has arrived, and is read only then: bytes that change after send() show up as wrong.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>

#include "tersum/status.h"
#include "transport/sim/sim_clock.h"
#include "transport/transport.h"
#include "wire/message.h"

namespace tersum {

class SimState;

struct SimOptions {
  int64_t latency_ns = 20'000;
  // Every piece of a message takes up to this much longer.
  int64_t jitter_ns = 10'000;
  // Of each direction between two nodes; 0: unlimited.
  double bandwidth_bytes_per_s = 1e9;
  // Chance that a message is held back by up to 8 latencies, so that later ones overtake it. With
  // 0, each direction between two nodes keeps its order.
  double reorder_probability = 0.1;
  // Chance that a message is cut into 2 to 8 pieces; it has arrived when the last one has.
  double split_probability = 0.3;
  // One poll() delivers 1 to this many of the messages of a link that have arrived.
  size_t messages_per_poll = 4;
  // Payload bytes under way from one node to another; more is backlog. Like a socket buffer.
  size_t window_bytes = 1 << 20;
  // From a death to the peers' link going down, beside the latency.
  int64_t death_notice_ns = 1'000'000;
  // A cut of this length takes the links across it down (as TCP_USER_TIMEOUT would).
  int64_t cut_tolerance_ns = 120'000'000'000;
  size_t arena_capacity_bytes = size_t{1} << 30;
  // Links say that they take much at once, as loopback does.
  bool gathers = false;
  // Above 0: nodes take turns to say that they are on one of so many hosts. No link is faster by
  // it.
  int hosts = 0;
  // On which every node says that it may run, whatever runs the simulation; empty: it does not say.
  std::string cpus;
  // What a broken peer sends: every message goes through this before it arrives, a copy of its
  // payload cut to what the header then says, or with zeros behind; returns how often the message
  // arrives. Null: peers that work.
  std::function<int(MessageHeader& header, std::span<std::byte> payload)> alter;
};

class SimNetwork {
 public:
  explicit SimNetwork(uint64_t seed, const SimOptions& options = {});
  ~SimNetwork();

  [[nodiscard]] const SimClock& clock() const;
  // Drawn from the network's seed: for tests' own choices.
  [[nodiscard]] SimRandom& random();

  // Nodes count from 0 in the order in which they are made.
  std::unique_ptr<Transport> make_node();

  // Moves the clock to the next thing that happens and lets it happen; false when nothing is to
  // come.
  bool advance_to_next_event();
  // Moves the clock by `duration_ns`, through everything that happens meanwhile.
  void advance_by(int64_t duration_ns);
  // The time of the next event, or the largest time when there is none.
  [[nodiscard]] int64_t next_event_ns() const;

  // The process ends without a word. Of its messages under way, each may or may not still arrive.
  void kill(int node);
  // The process stops (its calls do nothing) until thaw(); what is sent to it waits.
  void freeze(int node);
  void thaw(int node);
  // Nothing passes between the two, until heal(); what was under way waits.
  void cut(int node, int other);
  void heal(int node, int other);
  // From now on what departs between the two, either way, takes this rate instead of the options'.
  void set_bandwidth(int node, int other, double bytes_per_s);

 private:
  std::unique_ptr<SimState> state_;
};

}  // namespace tersum
