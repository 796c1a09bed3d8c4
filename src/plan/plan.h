// Plan: who sends which chunk to whom, as data. Pure; knows no formats and no sockets.
//
// Three readers use the same steps: the executor runs them, the verifier proves them, the cost
// model prices them.
//
// Thread safety: plans are values, immutable once built.
// Invariants (verify_plan proves them): the chunks of a collective cover its elements; for every
// chunk the kReduce messages form a tree (or, in one_shot, one star per rank) whose root, the
// *owner*, receives each contribution exactly once; the kGather messages form a tree from the owner
// to every rank that must end with the chunk. So data flow is acyclic per chunk and cannot block.
// No message goes between ranks that the topology does not join.
//
// Order of a rank's steps on one chunk: (receive_add)* (send_partial | finish)? ; then, after
// finish, (send_final)*; or, for a rank that is not the owner, receive_store (forward)*, where one
// that does not end with the chunk only hands it on. In a
// replicated plan instead: (send_partial)* (receive_add)* finish. The receive_adds of a chunk are
// listed by ascending peer. A rank's whole list is in causal order: run strictly in order on every
// rank, with sends that never wait, it comes to its end.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "plan/topology.h"
#include "tersum/options.h"
#include "tersum/status.h"

namespace tersum {

enum class StepKind : uint8_t {
  kReceiveAdd,    // receive peer's contribution or partial, add it (contributions in rank order)
  kSendPartial,   // send own contribution plus all that was added, encoded, to peer
  kFinish,        // this rank owns the chunk: the value is final; encode once if it is sent on
  kSendFinal,     // send the final bytes to peer
  kReceiveStore,  // receive the final bytes from peer, decode them into the output if it is there
  kForward,       // send the final bytes as received, unchanged, to peer
};

struct Step {
  StepKind kind;
  int peer;        // -1 for kFinish
  uint32_t chunk;  // index into Plan::chunks
  friend bool operator==(const Step&, const Step&) = default;
};

// Elements [begin, end) of the collective's array.
struct ChunkRange {
  size_t begin = 0;
  size_t end = 0;
};

struct Plan {
  Collective collective = Collective::kAllReduce;
  PlanKind kind = PlanKind::kTwoStep;  // never kAuto
  int size = 1;
  std::vector<ChunkRange> chunks;        // may be empty ranges for short arrays
  std::vector<std::vector<Step>> steps;  // per rank; see "Order" above
  // True when every rank combines the encoded contributions itself (one_shot): kSendPartial goes to
  // every other rank, each rank finishes the chunk for itself from the *encoded* contributions, its
  // own included, and nothing is gathered. False for size 1, where nothing is encoded.
  bool replicated = false;
  // As requested, so that the verifier can tell whether the chunks are right.
  size_t count = 0;
  size_t granule = 1;
  int root = 0;
  const Topology* topology = nullptr;  // borrowed; null: everybody reaches everybody
  // Chunks that share an owner's part. Where the chunks are the ranks' parts (reduce_scatter,
  // all_gather, all_to_all, gather, scatter), chunk c belongs to part c / splits.
  uint32_t splits = 1;
  // The most flows (one per chunk, phase and sender) that any rank receives, whichever ranks' steps
  // are filled in: memory in flight is shared out among so many.
  size_t incoming_flows_max = 0;
};

// What a plan is made for. `count`: elements of the whole array: the input of all_reduce and
// reduce_scatter, the array of broadcast, the output of all_gather and (at the root) gather, the
// root's input of scatter; of all_to_all everything that is exchanged, size * size equal parts, of
// which number i * size + j goes from i to j. `granule`: chunks begin at multiples of it (the
// codec's block), counted from the begin of the part where the chunks are the ranks' equal parts.
// `only_rank`: fills in that rank's steps alone and leaves the others' lists empty, which is all
// that an executor needs: a whole plan holds O(size^2) steps, one rank's O(size). The verifier and
// plan_error_terms want whole plans (-1). `topology`: borrowed by the plan too.
struct PlanRequest {
  Collective collective = Collective::kAllReduce;
  PlanKind kind = PlanKind::kTwoStep;
  int size = 1;
  size_t count = 0;
  size_t granule = 1;
  int root = 0;  // broadcast, gather, scatter
  int only_rank = -1;
  // Null: everybody reaches everybody, one rank per host.
  const Topology* topology = nullptr;
};

// Any size >= 1, any count >= 0. kAuto must have been resolved (choose_plan).
// kInvalidArgument: size < 1, root or only_rank out of range, granule 0, count not a multiple of
// the number of parts, a kind that does not serve the collective (docs/plans.md), a topology of
// another size, or one that lacks a link: the message names it and the kinds that would fit.
Result<Plan> make_plan(const PlanRequest& request);

// kAuto's choice, of what loses nothing but for choose_lossless_plan. Where everybody reaches
// everybody: one_shot for a small all_reduce in a small group, else two_step (the crossover is
// derived in choose_plan.cc). On other topologies: of the plans that fit, the one whose busiest
// link carries least, but tree for small arrays; where none fits, two_step, which make_plan then
// refuses. `wire_bytes`: the whole array, encoded. The same on all ranks: depends only on what all
// ranks agree on.
PlanKind choose_plan(Collective collective, int size, size_t wire_bytes,
                     const Topology* topology = nullptr);

// Of a call that loses nothing on any plan, in a group whose ranks all live on one host, where they
// may run on `cpus` CPUs (0: that is unknown, or there are several hosts). The same, but tree for
// an all_reduce of up to 1 MiB by more than two ranks a CPU, in which each message takes time
// from all.
PlanKind choose_lossless_plan(Collective collective, int size, size_t wire_bytes,
                              const Topology* topology, int cpus);

// Proves the invariants above, that every rank that must end with a chunk does and no other
// (all_reduce, all_gather, broadcast: all; reduce_scatter, scatter: rank r with part r; gather: the
// root; all_to_all: rank j with part i * size + j), that every send has exactly one receive of the
// same phase, and that the chunks cover [0, count) as requested. kInternal with the rank, step and
// chunk of the first breach.
Status verify_plan(const Plan& plan);

// How often a contribution is quantized on its way into the result, and how large the bound of a
// result is: the error of one element is at most
//   contribution_terms * block_error_bound(absmax)
// + partial_terms    * block_error_bound(size * absmax + errors so far)
// + final_terms      * block_error_bound(sum_absmax + errors so far).
struct PlanErrorTerms {
  uint32_t contributions =
      0;                  // single contributions quantized (two_step: size - 1; one_shot: size)
  uint32_t partials = 0;  // partial sums quantized (ring: size - 2)
  uint32_t finals = 0;    // 1 where the sum is gathered out encoded
};
PlanErrorTerms plan_error_terms(const Plan& plan);

}  // namespace tersum
