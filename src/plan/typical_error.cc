#include "plan/typical_error.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "plan/collective_rules.h"
#include "plan/plan_fit.h"
#include "plan/plan_trees.h"
#include "plan/tree_order.h"

namespace tersum {

Result<double> typical_error(const PlanRequest& request) {
  if (!serves(request.kind, request.collective)) {
    return invalid_argument(unserved_text(request.kind, request.collective));
  }
  TERSUM_RETURN_IF_ERROR(check_fit(request));
  if (request.size < 2) return 0.0;
  if (!reduces(request.collective) || request.kind == PlanKind::kOneShot) return 1.0;
  Result<PlanTrees> trees = make_trees(request);
  if (!trees.ok()) return trees.status();
  const bool hands_out = request.collective == Collective::kAllReduce;
  const double size = request.size;
  ChunkTree tree;
  TreeOrder order;
  std::vector<double> ranks;  // in the partial sum that each rank passes on
  double worst = 0;
  for (uint32_t chunk = 0; chunk < trees->weights.size(); ++chunk) {
    trees->fill(chunk, tree);
    order.measure(tree.parent);
    ranks.assign(tree.parent.size(), 1);
    double energy = hands_out ? size : 0;
    for (size_t i = order.outwards().size(); i-- > 1;) {
      const auto rank = static_cast<size_t>(order.outwards()[i]);
      energy += ranks[rank];
      ranks[static_cast<size_t>(tree.parent[rank])] += ranks[rank];
    }
    worst = std::max(worst, energy);
  }
  return std::sqrt(worst / size);
}

}  // namespace tersum
