// PlanFits: which plans the calls of a group may name, found out once for each.
//
// What a plan cannot do is so said before its call starts, and the group goes on.
//
// Thread safety: any thread.
#pragma once

#include <map>
#include <mutex>
#include <tuple>

#include "codec/codec.h"
#include "plan/plan.h"
#include "tersum/status.h"

namespace tersum {

class PlanFits {
 public:
  // Whether `plan`, of a kind that may_take_plan() the codec, uses links that are there, and adds
  // in the codec's order. Of `plan` granule and only_rank do not matter.
  // kInvalidArgument: a link that is missing. kUnsupported: the order is another.
  [[nodiscard]] Status check(const Codec& codec, const PlanRequest& plan);

 private:
  std::mutex mutex_;
  // Collective, kind and root, whether it is longer than what goes straight from a root, and
  // whether it must add in pairs.
  std::map<std::tuple<Collective, PlanKind, int, bool, bool>, Status> known_;
};

}  // namespace tersum
