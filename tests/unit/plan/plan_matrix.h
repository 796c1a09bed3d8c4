// All valid combinations of collective, kind, group size and count that the plan tests sweep.
#pragma once

#include <ostream>
#include <string>
#include <vector>

#include "plan/plan.h"

namespace tersum::testing {

inline std::string describe(const PlanRequest& request) {
  return std::string(collective_name(request.collective)) + " " +
         std::string(plan_kind_name(request.kind)) + " size " + std::to_string(request.size) +
         " count " + std::to_string(request.count) + " granule " + std::to_string(request.granule) +
         " root " + std::to_string(request.root);
}

struct Algorithm {
  Collective collective;
  PlanKind kind;
};

inline constexpr Algorithm kAlgorithms[] = {
    {Collective::kAllReduce, PlanKind::kTwoStep},
    {Collective::kAllReduce, PlanKind::kRing},
    {Collective::kAllReduce, PlanKind::kOneShot},
    {Collective::kReduceScatter, PlanKind::kTwoStep},
    {Collective::kReduceScatter, PlanKind::kRing},
    {Collective::kAllGather, PlanKind::kTwoStep},
    {Collective::kAllGather, PlanKind::kRing},
    {Collective::kBroadcast, PlanKind::kTwoStep},
    {Collective::kBroadcast, PlanKind::kRing},
    {Collective::kBarrier, PlanKind::kTwoStep},
    {Collective::kBarrier, PlanKind::kRing},
    {Collective::kAllReduce, PlanKind::kBidirectionalRing},
    {Collective::kReduceScatter, PlanKind::kBidirectionalRing},
    {Collective::kAllGather, PlanKind::kBidirectionalRing},
    {Collective::kBroadcast, PlanKind::kBidirectionalRing},
    {Collective::kAllReduce, PlanKind::kHalvingDoubling},
    {Collective::kReduceScatter, PlanKind::kHalvingDoubling},
    {Collective::kAllGather, PlanKind::kHalvingDoubling},
    {Collective::kAllReduce, PlanKind::kTorus},
    {Collective::kReduceScatter, PlanKind::kTorus},
    {Collective::kAllGather, PlanKind::kTorus},
    {Collective::kAllReduce, PlanKind::kTree},
    {Collective::kReduceScatter, PlanKind::kTree},
    {Collective::kAllGather, PlanKind::kTree},
    {Collective::kBroadcast, PlanKind::kTree},
    {Collective::kAllReduce, PlanKind::kHierarchical},
    {Collective::kReduceScatter, PlanKind::kHierarchical},
    {Collective::kAllGather, PlanKind::kHierarchical},
    {Collective::kAllToAll, PlanKind::kTwoStep},
    {Collective::kGather, PlanKind::kTwoStep},
    {Collective::kScatter, PlanKind::kTwoStep},
    {Collective::kAllToAll, PlanKind::kTree},
    {Collective::kGather, PlanKind::kTree},
    {Collective::kScatter, PlanKind::kTree},
};

// Into how many equal parts a collective's array falls.
inline size_t parts_of(Collective collective, int size) {
  const auto ranks = static_cast<size_t>(size);
  switch (collective) {
    case Collective::kReduceScatter:
    case Collective::kAllGather:
    case Collective::kGather:
    case Collective::kScatter:
      return ranks;
    case Collective::kAllToAll:
      return ranks * ranks;
    default:
      return 1;
  }
}

// `count` is rounded down to what the collective can share out.
inline PlanRequest request_of(const Algorithm& algorithm, int size, size_t count,
                              size_t granule = 1, int root = 0) {
  count -= count % parts_of(algorithm.collective, size);
  PlanRequest request;
  request.collective = algorithm.collective;
  request.kind = algorithm.kind;
  request.size = size;
  request.count = count;
  request.granule = granule;
  const bool rooted = algorithm.collective == Collective::kBroadcast ||
                      algorithm.collective == Collective::kGather ||
                      algorithm.collective == Collective::kScatter;
  request.root = rooted ? root : 0;
  return request;
}

}  // namespace tersum::testing
