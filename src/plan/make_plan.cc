// Builds plans: checks the request, cuts the array into chunks, and turns the algorithm's trees
// (plan_trees.h) into steps (plan_steps.h). Only one_shot, which has no trees, is written out here.
#include <algorithm>
#include <string>
#include <utility>

#include "base/check.h"
#include "plan/collective_rules.h"
#include "plan/plan.h"
#include "plan/plan_fit.h"
#include "plan/plan_steps.h"
#include "plan/plan_trees.h"

namespace tersum {
namespace {

using Steps = std::vector<Step>;

// Everybody sends its contribution to everybody, nearest successor first, and adds up all of them.
Steps one_shot_steps(int rank, int size) {
  Steps steps;
  for (int hops = 1; hops < size; ++hops) {
    steps.push_back({StepKind::kSendPartial, (rank + hops) % size, 0});
  }
  for (int peer = 0; peer < size; ++peer) {
    if (peer != rank) steps.push_back({StepKind::kReceiveAdd, peer, 0});
  }
  steps.push_back({StepKind::kFinish, -1, 0});
  return steps;
}

void fill_one_shot(const PlanRequest& request, Plan& plan) {
  plan.chunks = {{0, request.count}};
  plan.replicated = request.size > 1;
  plan.incoming_flows_max = static_cast<size_t>(request.size) - 1;
  for (int rank = 0; rank < request.size; ++rank) {
    if (request.only_rank >= 0 && rank != request.only_rank) continue;
    plan.steps[static_cast<size_t>(rank)] = one_shot_steps(rank, request.size);
  }
}

// Cuts [begin, begin + count) into ranges of these relative sizes, which begin at multiples of the
// granule counted from `begin`; with equal weights they differ by at most one granule.
void add_chunks(size_t begin, size_t count, size_t granule, std::span<const uint32_t> weights,
                std::vector<ChunkRange>& chunks) {
  const size_t blocks = count / granule + (count % granule != 0 ? 1 : 0);
  uint64_t total = 0;
  for (const uint32_t weight : weights) total += weight;
  TERSUM_CHECK(total > 0);
  uint64_t before = 0;
  size_t at = begin;
  for (const uint32_t weight : weights) {
    before += weight;
    // 128 bits: a product of two counts.
    const auto block = static_cast<size_t>(static_cast<unsigned __int128>(blocks) * before / total);
    const size_t end = begin + (block < blocks ? block * granule : count);
    chunks.push_back({at, end});
    at = end;
  }
}

std::vector<ChunkRange> make_chunks(const PlanRequest& request, const PlanTrees& trees) {
  const size_t parts = part_count(request.collective, request.size);
  const size_t part = request.count / parts;
  const size_t per_part = trees.weights.size() / parts;
  const std::span<const uint32_t> weights(trees.weights);
  std::vector<ChunkRange> chunks;
  chunks.reserve(trees.weights.size());
  for (size_t i = 0; i < parts; ++i) {
    add_chunks(i * part, part, request.granule, weights.subspan(i * per_part, per_part), chunks);
  }
  return chunks;
}

Status fill_from_trees(const PlanRequest& request, Plan& plan) {
  Result<PlanTrees> trees = make_trees(request);
  if (!trees.ok()) return trees.status();
  plan.splits = trees->splits;
  plan.chunks = make_chunks(request, *trees);
  StepBuilder builder(request.collective, request.size, plan.chunks.size(), request.only_rank);
  ChunkTree tree;
  for (uint32_t chunk = 0; chunk < plan.chunks.size(); ++chunk) {
    trees->fill(chunk, tree);
    builder.add(chunk, tree);
  }
  plan.steps = builder.take();
  plan.incoming_flows_max = builder.incoming_flows_max();
  return ok_status();
}

Status check_kind(const PlanRequest& request) {
  const std::string collective(collective_name(request.collective));
  if (serves(request.kind, request.collective)) return ok_status();
  if (request.kind == PlanKind::kAuto) {
    return invalid_argument("no plan for " + collective +
                            ": the kind must be two_step or another name (choose_plan resolves "
                            "auto)");
  }
  return invalid_argument(unserved_text(request.kind, request.collective));
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
  if (has_root(request.collective) && (request.root < 0 || request.root >= request.size)) {
    return invalid_argument(name + ": root " + std::to_string(request.root) +
                            " is not a rank of this group; pass 0.." +
                            std::to_string(request.size - 1));
  }
  const size_t parts = part_count(request.collective, request.size);
  if (request.count % parts != 0) {
    return invalid_argument(name + ": " + std::to_string(request.count) +
                            " elements cannot be shared equally by " + size +
                            " ranks; pass a multiple of " + std::to_string(parts));
  }
  if (request.topology != nullptr && request.topology->ranks() != request.size) {
    return invalid_argument(name + ": topology " + request.topology->name + " has " +
                            std::to_string(request.topology->ranks()) + " ranks, the group has " +
                            size);
  }
  return ok_status();
}

Status check_topology(const PlanRequest& request) {
  Status fit = check_fit(request);
  if (fit.ok()) return fit;
  const std::vector<PlanKind> others = fitting_kinds(request);
  const std::string remedy =
      others.empty() ? "no plan of " + std::string(collective_name(request.collective)) + " fits it"
                     : "use " + join_kinds(others);
  return invalid_argument(std::string(fit.message()) + "; " + remedy);
}

}  // namespace

Result<Plan> make_plan(const PlanRequest& request) {
  TERSUM_RETURN_IF_ERROR(check_request(request));
  TERSUM_RETURN_IF_ERROR(check_topology(request));
  Plan plan;
  plan.collective = request.collective;
  plan.kind = request.kind;
  plan.size = request.size;
  plan.count = request.count;
  plan.granule = request.granule;
  plan.root = request.root;
  plan.topology = request.topology;
  plan.steps.resize(static_cast<size_t>(request.size));
  if (request.collective == Collective::kBarrier) return plan;
  if (request.kind == PlanKind::kOneShot) {
    fill_one_shot(request, plan);
  } else {
    TERSUM_RETURN_IF_ERROR(fill_from_trees(request, plan));
  }
  return plan;
}

}  // namespace tersum
