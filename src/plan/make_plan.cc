// Builds plans. One function per algorithm and rank: it appends that rank's steps, nothing else.
//
// In every plan of n chunks, chunk r is owned by rank r.
#include <algorithm>
#include <string>
#include <utility>

#include "base/check.h"
#include "plan/plan.h"

namespace tersum {
namespace {

using Steps = std::vector<Step>;

// Up to here a broadcast goes straight from the root to everybody: 1024 elements are at most 8 KiB,
// which is one eager message per peer, so the second latency of scatter-and-forward would cost more
// than the root's (n - 2) further sends of it.
constexpr size_t kStarCountMax = 1024;

int next_of(int rank, int hops, int size) { return (rank + hops) % size; }
int previous_of(int rank, int hops, int size) { return (rank + size - hops) % size; }
uint32_t chunk_of(int rank) { return static_cast<uint32_t>(rank); }

void add_finish(uint32_t chunk, Steps& steps) { steps.push_back({StepKind::kFinish, -1, chunk}); }

// Every rank sends each chunk's contribution straight to its owner, nearest successor first: at any
// moment the n senders then aim at n different owners.
void add_direct_reduce(int rank, int size, Steps& steps) {
  for (int hops = 1; hops < size; ++hops) {
    const int owner = next_of(rank, hops, size);
    steps.push_back({StepKind::kSendPartial, owner, chunk_of(owner)});
  }
  for (int peer = 0; peer < size; ++peer) {
    if (peer != rank) steps.push_back({StepKind::kReceiveAdd, peer, chunk_of(rank)});
  }
}

// Owners send their final chunk to everybody; receives are listed in the order in which the
// senders' rotation makes them arrive.
void add_direct_gather(int rank, int size, Steps& steps) {
  for (int hops = 1; hops < size; ++hops) {
    steps.push_back({StepKind::kSendFinal, next_of(rank, hops, size), chunk_of(rank)});
  }
  for (int hops = 1; hops < size; ++hops) {
    const int owner = previous_of(rank, hops, size);
    steps.push_back({StepKind::kReceiveStore, owner, chunk_of(owner)});
  }
}

// Chunk c starts at rank c + 1 and collects contributions on its way round to rank c.
void add_ring_reduce(int rank, int size, Steps& steps) {
  const int next = next_of(rank, 1, size);
  const int previous = previous_of(rank, 1, size);
  for (int hops = 1; hops < size; ++hops) {
    steps.push_back({StepKind::kSendPartial, next, chunk_of(previous_of(rank, hops, size))});
    steps.push_back(
        {StepKind::kReceiveAdd, previous, chunk_of(previous_of(rank, (hops + 1) % size, size))});
  }
}

// Chunk c goes from rank c round to rank c - 1.
void add_ring_gather(int rank, int size, Steps& steps) {
  const int next = next_of(rank, 1, size);
  const int previous = previous_of(rank, 1, size);
  for (int hops = 0; hops + 1 < size; ++hops) {
    const StepKind send = hops == 0 ? StepKind::kSendFinal : StepKind::kForward;
    steps.push_back({send, next, chunk_of(previous_of(rank, hops, size))});
    steps.push_back(
        {StepKind::kReceiveStore, previous, chunk_of(previous_of(rank, hops + 1, size))});
  }
}

void add_one_shot(int rank, int size, Steps& steps) {
  for (int hops = 1; hops < size; ++hops) {
    steps.push_back({StepKind::kSendPartial, next_of(rank, hops, size), 0});
  }
  for (int peer = 0; peer < size; ++peer) {
    if (peer != rank) steps.push_back({StepKind::kReceiveAdd, peer, 0});
  }
  add_finish(0, steps);
}

// The whole array from the root to every other rank.
void add_star_broadcast(int rank, int size, int root, Steps& steps) {
  if (rank != root) {
    steps.push_back({StepKind::kReceiveStore, root, 0});
    return;
  }
  add_finish(0, steps);
  for (int hops = 1; hops < size; ++hops) {
    steps.push_back({StepKind::kSendFinal, next_of(root, hops, size), 0});
  }
}

// The root deals n - 1 chunks out, one to each other rank, which forwards it to the n - 2 remaining
// ones. The root sends the array once instead of n - 1 times, nobody sends more than that.
void add_scatter_broadcast(int rank, int size, int root, Steps& steps) {
  const int relays = size - 1;
  const auto relay_rank = [&](int relay) { return next_of(root, 1 + relay, size); };
  if (rank == root) {
    for (int relay = 0; relay < relays; ++relay) {
      add_finish(chunk_of(relay), steps);
      steps.push_back({StepKind::kSendFinal, relay_rank(relay), chunk_of(relay)});
    }
    return;
  }
  const int self = previous_of(rank, 1 + root, size);
  steps.push_back({StepKind::kReceiveStore, root, chunk_of(self)});
  for (int hops = 1; hops < relays; ++hops) {
    steps.push_back({StepKind::kForward, relay_rank(next_of(self, hops, relays)), chunk_of(self)});
  }
  for (int hops = 1; hops < relays; ++hops) {
    const int relay = previous_of(self, hops, relays);
    steps.push_back({StepKind::kReceiveStore, relay_rank(relay), chunk_of(relay)});
  }
}

// A chain from the root; the executor's slices make it a pipeline.
void add_chain_broadcast(int rank, int size, int root, Steps& steps) {
  const bool is_last = next_of(rank, 1, size) == root;
  if (rank == root) {
    add_finish(0, steps);
  } else {
    steps.push_back({StepKind::kReceiveStore, previous_of(rank, 1, size), 0});
  }
  if (is_last) return;
  const StepKind send = rank == root ? StepKind::kSendFinal : StepKind::kForward;
  steps.push_back({send, next_of(rank, 1, size), 0});
}

bool scatters(const PlanRequest& request) {
  return request.collective == Collective::kBroadcast && request.kind == PlanKind::kTwoStep &&
         request.size > 2 && request.count > kStarCountMax;
}

void add_broadcast(int rank, const PlanRequest& request, Steps& steps) {
  if (request.kind == PlanKind::kRing) {
    add_chain_broadcast(rank, request.size, request.root, steps);
  } else if (scatters(request)) {
    add_scatter_broadcast(rank, request.size, request.root, steps);
  } else {
    add_star_broadcast(rank, request.size, request.root, steps);
  }
}

void add_reduce(int rank, const PlanRequest& request, Steps& steps) {
  if (request.kind == PlanKind::kRing) {
    add_ring_reduce(rank, request.size, steps);
  } else {
    add_direct_reduce(rank, request.size, steps);
  }
}

void add_gather(int rank, const PlanRequest& request, Steps& steps) {
  if (request.kind == PlanKind::kRing) {
    add_ring_gather(rank, request.size, steps);
  } else {
    add_direct_gather(rank, request.size, steps);
  }
}

// The most that any plan here gives a rank: two-step all_reduce has 2 (n - 1) steps per phase and
// one finish. Chunks of a broadcast are finished one by one at the root, which stays below that.
size_t steps_max(const PlanRequest& request) {
  const size_t peers = static_cast<size_t>(request.size) - 1;
  return request.collective == Collective::kAllReduce ? 4 * peers + 1 : 2 * peers + 1;
}

Steps make_steps(int rank, const PlanRequest& request) {
  Steps steps;
  if (request.collective == Collective::kBarrier) return steps;
  steps.reserve(steps_max(request));
  if (request.kind == PlanKind::kOneShot) {
    add_one_shot(rank, request.size, steps);
    return steps;
  }
  switch (request.collective) {
    case Collective::kAllReduce:
      add_reduce(rank, request, steps);
      add_finish(chunk_of(rank), steps);
      add_gather(rank, request, steps);
      break;
    case Collective::kReduceScatter:
      add_reduce(rank, request, steps);
      add_finish(chunk_of(rank), steps);
      break;
    case Collective::kAllGather:
      add_finish(chunk_of(rank), steps);
      add_gather(rank, request, steps);
      break;
    case Collective::kBroadcast:
      add_broadcast(rank, request, steps);
      break;
    case Collective::kBarrier:
      break;
  }
  TERSUM_CHECK(steps.size() <= steps_max(request));
  return steps;
}

// `parts` ranges that begin at multiples of `granule` and differ by at most one granule; the blocks
// that do not divide go to the first ranges.
std::vector<ChunkRange> balanced_chunks(size_t count, size_t granule, size_t parts) {
  const size_t blocks = count / granule + (count % granule != 0 ? 1 : 0);
  std::vector<ChunkRange> chunks(parts);
  size_t block = 0;
  for (size_t part = 0; part < parts; ++part) {
    chunks[part].begin = block < blocks ? block * granule : count;
    block += blocks / parts + (part < blocks % parts ? 1 : 0);
    chunks[part].end = block < blocks ? block * granule : count;
  }
  return chunks;
}

std::vector<ChunkRange> make_chunks(const PlanRequest& request) {
  const size_t size = static_cast<size_t>(request.size);
  if (request.collective == Collective::kBarrier) return {};
  if (request.kind == PlanKind::kOneShot) return {{0, request.count}};
  switch (request.collective) {
    case Collective::kReduceScatter:
    case Collective::kAllGather:
      return balanced_chunks(request.count, std::max<size_t>(1, request.count / size), size);
    case Collective::kBroadcast:
      return balanced_chunks(request.count, request.granule, scatters(request) ? size - 1 : 1);
    default:
      return balanced_chunks(request.count, request.granule, size);
  }
}

Status check_kind(const PlanRequest& request) {
  const std::string name(collective_name(request.collective));
  switch (request.kind) {
    case PlanKind::kTwoStep:
    case PlanKind::kRing:
      return ok_status();
    case PlanKind::kOneShot:
      if (request.collective == Collective::kAllReduce ||
          request.collective == Collective::kBarrier) {
        return ok_status();
      }
      return invalid_argument("plan one_shot serves all_reduce only, not " + name +
                              "; use two_step, ring or auto");
    case PlanKind::kAuto:
      break;
  }
  return invalid_argument(
      "no plan for " + name +
      ": the kind must be two_step, ring or one_shot (choose_plan resolves auto)");
}

Status check_request(const PlanRequest& request) {
  const std::string name(collective_name(request.collective));
  const std::string size = std::to_string(request.size);
  if (request.size < 1) {
    return invalid_argument(name + ": a group of " + size + " ranks; pass a size of at least 1");
  }
  if (request.only_rank < -1 || request.only_rank >= request.size) {
    return invalid_argument(name + ": no rank " + std::to_string(request.only_rank) +
                            " in a group of " + size);
  }
  TERSUM_RETURN_IF_ERROR(check_kind(request));
  if (request.granule == 0) return invalid_argument(name + ": the granule must be at least 1");
  if (request.collective == Collective::kBroadcast &&
      (request.root < 0 || request.root >= request.size)) {
    return invalid_argument("broadcast: root " + std::to_string(request.root) +
                            " is not a rank of this group; pass 0.." +
                            std::to_string(request.size - 1));
  }
  const bool in_parts = request.collective == Collective::kReduceScatter ||
                        request.collective == Collective::kAllGather;
  if (in_parts && request.count % static_cast<size_t>(request.size) != 0) {
    return invalid_argument(name + ": " + std::to_string(request.count) +
                            " elements cannot be shared equally by " + size +
                            " ranks; pass a multiple of " + size);
  }
  return ok_status();
}

}  // namespace

Result<Plan> make_plan(const PlanRequest& request) {
  TERSUM_RETURN_IF_ERROR(check_request(request));
  Plan plan;
  plan.collective = request.collective;
  plan.kind = request.kind;
  plan.size = request.size;
  plan.count = request.count;
  plan.granule = request.granule;
  plan.root = request.root;
  plan.replicated = request.kind == PlanKind::kOneShot && request.size > 1 &&
                    request.collective == Collective::kAllReduce;
  plan.chunks = make_chunks(request);
  plan.steps.resize(static_cast<size_t>(request.size));
  for (int rank = 0; rank < request.size; ++rank) {
    if (request.only_rank >= 0 && rank != request.only_rank) continue;
    plan.steps[static_cast<size_t>(rank)] = make_steps(rank, request);
  }
  return plan;
}

}  // namespace tersum
