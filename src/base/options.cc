#include "tersum/options.h"

#include "base/name_table.h"

namespace tersum {
namespace {

constexpr NamedValue<ReduceOp> kReduceOps[] = {
    {ReduceOp::kSum, "sum"},
    {ReduceOp::kAverage, "avg"},
    {ReduceOp::kMax, "max"},
    {ReduceOp::kMin, "min"},
};

constexpr NamedValue<PlanKind> kPlanKinds[] = {
    {PlanKind::kAuto, "auto"},
    {PlanKind::kTwoStep, "two_step"},
    {PlanKind::kRing, "ring"},
    {PlanKind::kOneShot, "one_shot"},
    {PlanKind::kBidirectionalRing, "bidirectional_ring"},
    {PlanKind::kHalvingDoubling, "halving_doubling"},
    {PlanKind::kTorus, "torus"},
    {PlanKind::kTree, "tree"},
    {PlanKind::kHierarchical, "hierarchical"},
};

constexpr NamedValue<Collective> kCollectives[] = {
    {Collective::kAllReduce, "all_reduce"}, {Collective::kReduceScatter, "reduce_scatter"},
    {Collective::kAllGather, "all_gather"}, {Collective::kBroadcast, "broadcast"},
    {Collective::kBarrier, "barrier"},      {Collective::kAllToAll, "all_to_all"},
    {Collective::kGather, "gather"},        {Collective::kScatter, "scatter"},
};

constexpr NamedValue<TransportKind> kTransportKinds[] = {
    {TransportKind::kAuto, "auto"},
    {TransportKind::kTcp, "tcp"},
    {TransportKind::kSharedMemory, "shm"},
};

}  // namespace

std::string_view reduce_op_name(ReduceOp op) { return name_of<ReduceOp>(kReduceOps, op); }

std::optional<ReduceOp> parse_reduce_op(std::string_view name) {
  return value_named<ReduceOp>(kReduceOps, name);
}

std::string_view plan_kind_name(PlanKind kind) { return name_of<PlanKind>(kPlanKinds, kind); }

std::optional<PlanKind> parse_plan_kind(std::string_view name) {
  return value_named<PlanKind>(kPlanKinds, name);
}

std::string_view collective_name(Collective collective) {
  return name_of<Collective>(kCollectives, collective);
}

std::optional<Collective> parse_collective(std::string_view name) {
  return value_named<Collective>(kCollectives, name);
}

std::string_view transport_kind_name(TransportKind kind) {
  return name_of<TransportKind>(kTransportKinds, kind);
}

std::optional<TransportKind> parse_transport_kind(std::string_view name) {
  return value_named<TransportKind>(kTransportKinds, name);
}

}  // namespace tersum
