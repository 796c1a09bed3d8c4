#include "plan/plan_fit.h"

#include <algorithm>
#include <string>

namespace tersum {
namespace {

constexpr PlanKind kAllKinds[] = {
    PlanKind::kTwoStep,         PlanKind::kRing,  PlanKind::kOneShot, PlanKind::kBidirectionalRing,
    PlanKind::kHalvingDoubling, PlanKind::kTorus, PlanKind::kTree,    PlanKind::kHierarchical,
};

Status missing_link(const PlanRequest& request, int a, int b) {
  return invalid_argument(std::string(plan_kind_name(request.kind)) +
                          " needs a link between rank " + std::to_string(std::min(a, b)) +
                          " and rank " + std::to_string(std::max(a, b)) + "; topology " +
                          request.topology->name + " has none");
}

Status check_edges(const PlanRequest& request, const std::vector<int>& tree) {
  for (int rank = 0; rank < request.size; ++rank) {
    const int other = tree[static_cast<size_t>(rank)];
    if (other >= 0 && !request.topology->adjacent(rank, other)) {
      return missing_link(request, rank, other);
    }
  }
  return ok_status();
}

Status check_all_pairs(const PlanRequest& request) {
  for (int a = 0; a < request.size; ++a) {
    for (int b = a + 1; b < request.size; ++b) {
      if (!request.topology->adjacent(a, b)) return missing_link(request, a, b);
    }
  }
  return ok_status();
}

}  // namespace

bool serves(PlanKind kind, Collective collective) {
  if (kind == PlanKind::kAuto) return false;
  if (collective == Collective::kBarrier || kind == PlanKind::kTwoStep) return true;
  switch (collective) {
    case Collective::kAllReduce:
      return true;
    case Collective::kReduceScatter:
    case Collective::kAllGather:
      return kind != PlanKind::kOneShot;
    case Collective::kBroadcast:
      return kind == PlanKind::kRing || kind == PlanKind::kBidirectionalRing ||
             kind == PlanKind::kTree;
    case Collective::kAllToAll:
    case Collective::kGather:
    case Collective::kScatter:
      return kind == PlanKind::kTree;
    default:
      return false;
  }
}

std::string unserved_text(PlanKind kind, Collective collective) {
  std::vector<PlanKind> others;
  for (const PlanKind other : kAllKinds) {
    if (serves(other, collective)) others.push_back(other);
  }
  return "plan " + std::string(plan_kind_name(kind)) + " does not serve " +
         std::string(collective_name(collective)) + "; use " + join_kinds(others);
}

bool reaches_all(const Topology* topology) { return topology == nullptr || topology->all_adjacent; }

Status check_fit(const PlanRequest& request) {
  if (request.collective == Collective::kBarrier) return ok_status();
  if (request.kind == PlanKind::kOneShot) {
    return reaches_all(request.topology) ? ok_status() : check_all_pairs(request);
  }
  Result<PlanTrees> trees = make_trees(request);
  if (!trees.ok()) return trees.status();
  if (reaches_all(request.topology)) return ok_status();
  ChunkTree tree;
  for (uint32_t chunk = 0; chunk < trees->weights.size(); ++chunk) {
    trees->fill(chunk, tree);
    TERSUM_RETURN_IF_ERROR(check_edges(request, tree.parent));
    TERSUM_RETURN_IF_ERROR(check_edges(request, tree.source));
  }
  return ok_status();
}

std::vector<PlanKind> fitting_kinds(const PlanRequest& request) {
  std::vector<PlanKind> kinds;
  PlanRequest other = request;
  for (const PlanKind kind : kAllKinds) {
    other.kind = kind;
    if (serves(kind, request.collective) && check_fit(other).ok()) kinds.push_back(kind);
  }
  return kinds;
}

std::string join_kinds(const std::vector<PlanKind>& kinds) {
  std::string text;
  for (size_t i = 0; i < kinds.size(); ++i) {
    if (i > 0) text += i + 1 == kinds.size() ? " or " : ", ";
    text += plan_kind_name(kinds[i]);
  }
  return text;
}

}  // namespace tersum
