// What an algorithm decides, chunk by chunk: who owns it, and the trees over which it is summed up
// and handed out. Everything else about a plan follows from that (plan_steps.h).
//
// Thread safety: values; building is pure. Invariant: the trees depend on nothing but the request,
// so all ranks see the same ones.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "plan/plan.h"

namespace tersum {

// In ChunkTree::parent and ::source: the tree's root, and a rank that has no part in the tree.
inline constexpr int kTreeRoot = -1;
inline constexpr int kNotInTree = -2;

// Up to here a broadcast goes straight from the root to everybody: 1024 elements are at most 8 KiB,
// which is one eager message per peer, so the second latency of scatter-and-forward would cost more
// than the root's (n - 2) further sends of it.
inline constexpr size_t kStarCountMax = 1024;

struct ChunkTree {
  int owner = 0;
  std::vector<int> parent;  // rank -> to whom it sends its partial sum
  std::vector<int> source;  // rank -> from whom it gets the final value

  // Empty trees of `size` ranks that `new_owner` roots.
  void reset(int size, int new_owner);
  // The sum flows back by the way that its contributions came.
  void hand_out_by_the_same_way() { source = parent; }
};

struct PlanTrees {
  // Relative sizes of the chunks. Chunk `index * splits + split` is a piece of the share of owner
  // number `index` (see owner_of); where a collective has parts, of that part.
  std::vector<uint32_t> weights;
  uint32_t splits = 1;
  // Fills in the trees of one chunk; what is there already is overwritten. A collective that does
  // not reduce, or does not hand out, leaves that tree unread.
  std::function<void(uint32_t chunk, ChunkTree& tree)> fill;
};

// The trees of any request that make_plan accepts but one_shot's and barrier's. kInvalidArgument: a
// topology that has not the shape that the algorithm needs. Whether every edge is a link is for the
// caller to see.
Result<PlanTrees> make_trees(const PlanRequest& request);

// One function per family of algorithms.
Result<PlanTrees> direct_trees(const PlanRequest& request);    // two_step
Result<PlanTrees> cycle_trees(const PlanRequest& request);     // ring, bidirectional_ring
Result<PlanTrees> torus_trees(const PlanRequest& request);     // torus
Result<PlanTrees> binomial_trees(const PlanRequest& request);  // halving_doubling
Result<PlanTrees> host_trees(const PlanRequest& request);      // tree, hierarchical

// Among how many owners the array is shared out (a rank counts anew for each of its parts): as many
// as there are parts, one where a root has it all, else every rank.
uint32_t owner_count(const PlanRequest& request);
// Who owns share number `index`.
int owner_of(const PlanRequest& request, uint32_t index);
// owner_count() shares of `splits` chunks each, all of one size; `fill` is left to be set.
PlanTrees equal_trees(const PlanRequest& request, uint32_t splits);

}  // namespace tersum
