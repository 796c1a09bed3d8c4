#include "runtime/compiled_plan.h"

#include <algorithm>

#include "base/check.h"
#include "codec/shared_sums.h"
#include "plan/collective_rules.h"
#include "plan/flow_window.h"
#include "plan/plan_trees.h"
#include "plan/rank_blocks.h"
#include "runtime/plan_needed.h"

namespace tersum {
namespace {

// A chunk is cut into at least this many slices, where that leaves messages of a useful size, so
// that encoding, sending and decoding overlap: the part that cannot overlap is one slice at either
// end.
constexpr size_t kSlicesPerChunk = 16;
constexpr uint32_t kWindowMax = 64;

// The slice in values. Wire bytes decide, because the best message size is one in bytes; the memory
// in flight, `window` slices of every flow that comes in, decides when there are many ranks.
void set_geometry(const SliceLimits& limits, size_t chunk_values, size_t flows,
                  CompiledPlan& plan) {
  const auto bytes_of = [&](size_t values) {
    return std::max(plan.codec->wire_bytes(values), plan.gathered->wire_bytes(values));
  };
  const size_t block = plan.codec->block();
  const size_t block_bytes = std::max<size_t>(bytes_of(2 * block) - bytes_of(block), 1);
  // What some formats have once a slice; it counts, so that a slice of 64 KiB may travel unasked.
  const size_t once_bytes = bytes_of(block) - std::min(bytes_of(block), block_bytes);
  const size_t chunk_bytes = bytes_of(chunk_values);
  size_t target = std::min(limits.slice_bytes, limits.window_bytes / (2 * flows));
  target = std::min(target, std::max(chunk_bytes / kSlicesPerChunk, limits.least_slice_bytes));
  if (limits.segment_bytes > 0 && target > limits.segment_bytes) {
    target -= target % limits.segment_bytes;
  }
  // Where blocks are a few bytes, whole cache lines of values keep the kernels' pointers aligned.
  const size_t granule = block * std::max<size_t>(1, 64 / block);
  const size_t granule_bytes = block_bytes * (granule / block);
  const size_t left = target - std::min(target, once_bytes);
  const size_t granules = std::min(left / granule_bytes, limits.slice_values / granule);
  plan.slice_values = std::max<size_t>(granules, 1) * granule;
  const size_t slice_bytes = bytes_of(plan.slice_values);
  // No more than there are of a chunk: each has a place of its own in every call.
  const size_t slices = (chunk_values + plan.slice_values - 1) / plan.slice_values;
  const size_t in_flight =
      std::clamp<size_t>(limits.window_bytes / (flows * slice_bytes), 2, kWindowMax);
  plan.window = static_cast<uint32_t>(std::clamp<size_t>(slices, 1, in_flight));
}

SliceLimits for_values(const SliceLimits& limits, const PlanRequest& request, const Codec& codec) {
  const bool is_direct_sum =
      request.collective == Collective::kAllReduce && request.kind == PlanKind::kTwoStep;
  if (limits.plain_slice_bytes == 0 || !is_direct_sum || !codec.wire_is_values()) return limits;
  SliceLimits own = limits;
  own.slice_bytes = limits.plain_slice_bytes;
  own.window_bytes = limits.plain_window_bytes;
  return own;
}

// Where flows share ports, less than the memory of a call is enough, and quicker.
SliceLimits within_ports(const SliceLimits& limits, const PlanRequest& request, size_t flows) {
  const size_t of_flow = flow_bytes_max(request.topology, request.collective, request.kind);
  if (of_flow >= limits.window_bytes / flows) return limits;
  SliceLimits own = limits;
  own.window_bytes = flows * of_flow;
  return own;
}

uint64_t flow_key(uint32_t chunk, FlowPhase phase, int peer) {
  return (static_cast<uint64_t>(chunk) << 17) | (static_cast<uint64_t>(phase) << 16) |
         static_cast<uint64_t>(peer);
}

template <typename Flow>
std::vector<std::pair<uint64_t, uint32_t>> make_lookup(const CompiledPlan& plan,
                                                       const std::vector<Flow>& flows) {
  std::vector<std::pair<uint64_t, uint32_t>> lookup;
  lookup.reserve(flows.size());
  for (uint32_t i = 0; i < flows.size(); ++i) {
    lookup.emplace_back(flow_key(plan.roles[flows[i].role].chunk, flows[i].phase, flows[i].peer),
                        i);
  }
  std::sort(lookup.begin(), lookup.end());
  return lookup;
}

class RoleBuilder {
 public:
  RoleBuilder(CompiledPlan& plan, const Plan& source, int rank)
      : plan_(plan),
        source_(source),
        rank_(rank),
        part_values_(source.count / part_count(source.collective, source.size)) {}

  void build(uint32_t chunk, const std::vector<Step>& steps) {
    role_ = {};
    role_.chunk = chunk;
    role_.range = source_.chunks[chunk];
    place_in_arrays();
    const size_t values = role_.range.end - role_.range.begin;
    role_.slices = static_cast<uint32_t>((values + plan_.slice_values - 1) / plan_.slice_values);
    index_ = static_cast<uint32_t>(plan_.roles.size());
    take(steps, StepKind::kReceiveAdd, FlowPhase::kReduce, role_.adds);
    for (uint32_t i = 0; i < role_.adds.count; ++i) {
      if (plan_.in_flows[role_.adds.first + i].peer < rank_) ++role_.own_index;
    }
    take(steps, StepKind::kSendPartial, FlowPhase::kReduce, role_.partials);
    take(steps, StepKind::kSendFinal, FlowPhase::kGather, role_.finals);
    take(steps, StepKind::kReceiveStore, FlowPhase::kGather, role_.store);
    take(steps, StepKind::kForward, FlowPhase::kGather, role_.forwards);
    for (const Step& step : steps) {
      if (step.chunk == chunk && step.kind == StepKind::kFinish) role_.finishes = true;
    }
    role_.produces = role_.finishes || role_.partials.count > 0;
    plan_.roles.push_back(role_);
  }

 private:
  // Where the chunk lies in this rank's input and output, which hold some parts of the whole array.
  void place_in_arrays() {
    const uint32_t part =
        part_count(source_.collective, source_.size) > 1 ? role_.chunk / source_.splits : 0;
    const PartRule rule = part_rule(source_.collective, source_.size, source_.root, part);
    const size_t within_part = role_.range.begin - part * part_values_;
    const size_t input = input_begin(source_.collective, source_.size, rank_, part_values_);
    role_.input_begin = role_.range.begin - std::min(input, role_.range.begin);
    role_.output_begin =
        part_begin_in_output(source_.collective, source_.size, part, part_values_) + within_part;
    role_.keeps = rule.ends_with(rank_);
  }

  void take(const std::vector<Step>& steps, StepKind kind, FlowPhase phase, FlowRange& range) {
    const bool incoming = kind == StepKind::kReceiveAdd || kind == StepKind::kReceiveStore;
    range.first = static_cast<uint32_t>(incoming ? plan_.in_flows.size() : plan_.out_flows.size());
    for (const Step& step : steps) {
      if (step.chunk != role_.chunk || step.kind != kind) continue;
      const auto peer = static_cast<uint16_t>(step.peer);
      if (incoming) {
        plan_.in_flows.push_back({peer, phase, index_});
      } else {
        plan_.out_flows.push_back({peer, phase, index_});
      }
      ++range.count;
    }
    if (kind == StepKind::kReceiveAdd) {
      // Contributions are summed in rank order whatever order the plan lists them in.
      std::sort(plan_.in_flows.begin() + range.first, plan_.in_flows.end(),
                [](const InFlow& a, const InFlow& b) { return a.peer < b.peer; });
    }
  }

  CompiledPlan& plan_;
  const Plan& source_;
  int rank_;
  size_t part_values_;
  ChunkRole role_;
  uint32_t index_ = 0;
};

// How many contributions each message towards a sum brings, where ranks add some of them up on the
// way.
void count_contributions(const PlanRequest& request, CompiledPlan& plan) {
  Result<PlanTrees> trees = make_trees(request);
  TERSUM_CHECK(trees.ok());
  plan.held.assign(plan.in_flows.size(), 1);
  ChunkTree tree;
  RankBlocks blocks;
  for (const ChunkRole& role : plan.roles) {
    trees->fill(role.chunk, tree);
    blocks.measure(tree);
    TERSUM_CHECK(blocks.pair_up());
    for (uint32_t i = role.adds.first; i < role.adds.first + role.adds.count; ++i) {
      plan.held[i] = static_cast<uint16_t>(blocks.held(plan.in_flows[i].peer));
    }
  }
}

bool passes_through(const CompiledPlan& plan) {
  return std::any_of(plan.roles.begin(), plan.roles.end(), [](const ChunkRole& role) {
    return role.forwards.count > 0 || (role.adds.count > 0 && role.partials.count > 0);
  });
}

// All ranks decide alike where it matters: a rank without an inner role has ends of chains only,
// whose order is the same either way.
void order_jobs(const std::vector<Step>& steps, CompiledPlan& plan) {
  if (plan.replicated || !passes_through(plan)) return;
  uint32_t chunks = 0;
  for (const ChunkRole& role : plan.roles) chunks = std::max(chunks, role.chunk + 1);
  std::vector<uint32_t> role_of(chunks, 0);
  for (uint32_t i = 0; i < plan.roles.size(); ++i) role_of[plan.roles[i].chunk] = i;
  std::vector<bool> produced(plan.roles.size(), false);
  for (const Step& step : steps) {
    const uint32_t role = role_of[step.chunk];
    if (step.kind == StepKind::kReceiveStore) {
      plan.jobs.push_back({role, true});
    } else if (step.kind == StepKind::kSendPartial || step.kind == StepKind::kFinish) {
      if (!produced[role]) plan.jobs.push_back({role, false});
      produced[role] = true;
    }
  }
}

// The same spec for float32, of a codec with +flatten for 16 bits; else null.
const Codec* wide_codec(const Codec& codec) {
  if (!codec.flattens() || codec.value_type() == DataType::kFloat32) return nullptr;
  const Result<const Codec*> wide =
      find_codec(codec.spec().to_string(), DataType::kFloat32, ReduceOp::kSum);
  TERSUM_CHECK(wide.ok());
  // Under a clip that is held slices are others.
  return codec.held() == &codec ? wide.value()->held() : wide.value();
}

}  // namespace

int find_flow(const std::vector<std::pair<uint64_t, uint32_t>>& lookup, uint32_t chunk,
              FlowPhase phase, int peer) {
  const std::pair<uint64_t, uint32_t> wanted{flow_key(chunk, phase, peer), 0};
  const auto found = std::lower_bound(lookup.begin(), lookup.end(), wanted);
  if (found == lookup.end() || found->first != wanted.first) return -1;
  return static_cast<int>(found->second);
}

Result<std::shared_ptr<const CompiledPlan>> compile_plan(const PlanRequest& request,
                                                         const Codec& codec, int rank,
                                                         const SliceLimits& limits) {
  TERSUM_CHECK(rank >= 0 && rank < request.size);
  PlanRequest own_request = request;
  own_request.only_rank = rank;
  Result<Plan> made = make_plan(own_request);
  if (!made.ok()) return made.status();
  const Plan& source = made.value();
  auto plan = std::make_shared<CompiledPlan>();
  plan->request = request;
  plan->asked = &codec;
  plan->limits = limits;
  plan->replicated = source.replicated;
  if (reduces(request.collective)) plan->gathered_ranks = static_cast<uint32_t>(request.size);
  // In those plans whoever adds up has every contribution as it was encoded.
  const bool is_direct = is_side_by_side(request.kind);
  plan->codec = summing_codec(codec, plan->gathered_ranks, !is_direct);
  plan->gathered = &plan->codec->gathered(plan->gathered_ranks);
  if (const Codec* const wide = wide_codec(codec)) {
    plan->wide = summing_codec(*wide, plan->gathered_ranks, !is_direct);
    plan->wide_gathered = &plan->wide->gathered(plan->gathered_ranks);
  }
  size_t chunk_values = 0;
  for (const ChunkRange& range : source.chunks) {
    chunk_values = std::max(chunk_values, range.end - range.begin);
  }
  const size_t flows = std::max<size_t>(source.incoming_flows_max, 1);
  const SliceLimits own = for_values(limits, request, *plan->codec);
  set_geometry(within_ports(own, request, flows), chunk_values, flows, *plan);
  const std::vector<Step>& steps = source.steps[static_cast<size_t>(rank)];
  // Steps grouped by chunk, in the order in which this rank first meets each chunk: the plan's way
  // of spreading load.
  std::vector<std::vector<Step>> per_chunk(source.chunks.size());
  std::vector<uint32_t> order;
  for (const Step& step : steps) {
    if (per_chunk[step.chunk].empty()) order.push_back(step.chunk);
    per_chunk[step.chunk].push_back(step);
  }
  RoleBuilder builder(*plan, source, rank);
  for (const uint32_t chunk : order) builder.build(chunk, per_chunk[chunk]);
  order_jobs(steps, *plan);
  if (!is_direct && ordered_sums(codec, request.collective, request.size) != nullptr) {
    count_contributions(request, *plan);
  }
  plan->in_lookup = make_lookup(*plan, plan->in_flows);
  plan->out_lookup = make_lookup(*plan, plan->out_flows);
  return std::shared_ptr<const CompiledPlan>(std::move(plan));
}

}  // namespace tersum
