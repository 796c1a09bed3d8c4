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
    {Collective::kAllReduce, PlanKind::kTwoStep},  {Collective::kAllReduce, PlanKind::kRing},
    {Collective::kAllReduce, PlanKind::kOneShot},  {Collective::kReduceScatter, PlanKind::kTwoStep},
    {Collective::kReduceScatter, PlanKind::kRing}, {Collective::kAllGather, PlanKind::kTwoStep},
    {Collective::kAllGather, PlanKind::kRing},     {Collective::kBroadcast, PlanKind::kTwoStep},
    {Collective::kBroadcast, PlanKind::kRing},     {Collective::kBarrier, PlanKind::kTwoStep},
    {Collective::kBarrier, PlanKind::kRing},
};

// `count` is rounded down to what the collective can share out.
inline PlanRequest request_of(const Algorithm& algorithm, int size, size_t count,
                              size_t granule = 1, int root = 0) {
  const bool in_parts = algorithm.collective == Collective::kReduceScatter ||
                        algorithm.collective == Collective::kAllGather;
  if (in_parts) count -= count % static_cast<size_t>(size);
  PlanRequest request;
  request.collective = algorithm.collective;
  request.kind = algorithm.kind;
  request.size = size;
  request.count = count;
  request.granule = granule;
  request.root = algorithm.collective == Collective::kBroadcast ? root : 0;
  return request;
}

}  // namespace tersum::testing
