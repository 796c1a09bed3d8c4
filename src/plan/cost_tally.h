// Adds up what a plan makes every link and every core do.
//
// Thread safety: none needed. Invariant: a message between two hosts is counted on every link of
// its path, one within a host on no link.
#pragma once

#include <vector>

#include "plan/cost_model.h"
#include "plan/plan_trees.h"
#include "plan/tree_order.h"

namespace tersum {

// One chunk's way alone, over its longest chain of dependent messages.
struct ChunkChain {
  double time_s = 0;      // until its last slice has arrived and is decoded
  int hops = 0;           // dependent messages
  double hop_s = 0;       // what one of them takes on average beside its bytes' time on the wire
  double slices = 1;      // in which it travels
  double ends_s = 0;      // the first slice's encoding; the last one's last hop and decoding
  bool saves_up = false;  // the slowest path's bucket has room for a slice and more
};

class CostTally {
 public:
  CostTally(const CostRequest& request, PlanKind plan);

  // One chunk of `value_bytes`, moved along its trees. `follow`: its chain is looked at too, which
  // costs more than adding up.
  void add_chunk(const ChunkTree& tree, double value_bytes, bool follow);
  // Everybody sends everything to everybody (one_shot).
  void add_exchange();
  // After all chunks, before any question: brings the messages onto links and cores.
  void settle();

  // The busiest link's seconds.
  [[nodiscard]] double wire_s() const;
  // What the link that takes longest needs beyond that, because flows share a switch's port.
  [[nodiscard]] double ports_s() const;
  // The busiest machine's.
  [[nodiscard]] double cpu_s() const;
  [[nodiscard]] double memory_s() const;
  // Messages that the busiest rank sends and receives.
  [[nodiscard]] double messages_max() const;
  // The codec's share of all core seconds.
  [[nodiscard]] double codec_share() const;
  // Of the followed chunk that takes longest.
  [[nodiscard]] const ChunkChain& longest() const { return longest_; }

 private:
  // How far a slice has come: when, how much of that was not transmission, after how many messages.
  struct Reached {
    double time_s = 0;
    double still_s = 0;
    int hops = 0;
  };

  void count_message(int from, int to);
  void set_slices(double value_bytes);
  [[nodiscard]] double combine_s(double value_bytes, int peers) const;
  void follow_chunk(const ChunkTree& tree, bool hands_out);
  void follow_reduce(const ChunkTree& tree);
  [[nodiscard]] Reached after_hop(const Reached& before, int from, int to, double work_s);
  void keep_longest(const Reached& reached);

  const CostRequest& request_;
  const Topology& topology_;
  const size_t size_;
  const size_t flow_bytes_max_;
  std::vector<double> pair_bytes_;   // from * size_ + to
  std::vector<double> messages_;     // by rank, both ends
  std::vector<double> codec_s_;      // by rank
  std::vector<double> transport_s_;  // by rank
  std::vector<double> link_bytes_;
  std::vector<int> link_flows_;  // pairs of ranks whose messages pass it
  ChunkChain longest_;
  TreeOrder order_;
  // Of the chunk that is being added.
  double wire_bytes_ = 0;
  double slice_bytes_ = 0;   // on the wire
  double slice_values_ = 0;  // bytes of values
  double slices_ = 1;
  double slowest_s_per_byte_ = 0;
  double burst_bytes_ = 0;  // payload that passes the slowest path at once
  std::vector<Reached> reached_;
  std::vector<int> children_;
};

}  // namespace tersum
