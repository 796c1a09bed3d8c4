// Who takes part in a collective: XLA's four encodings of replica groups, and the three meanings of
// the numbers in them, turned into global device ids.
//
// Thread safety: pure functions. Invariants of a HloGroups that is returned: every device of the
// device assignment is in exactly one group, all groups have the same size, and the order inside a
// group is the order of ranks (and of a reduce-scatter's shards). Memory is bounded by the size of
// the device assignment whatever the encoding claims.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tersum/status.h"
#include "xla/hlo_proto.h"

namespace tersum {

struct HloGroups {
  std::vector<int64_t> devices;  // all groups, one after the other
  int64_t group_size = 0;
  // False where the order inside a group is not the same in all XLA versions (mesh axes that are
  // not listed from major to minor): a sum does not care, a reduce-scatter does.
  bool order_is_certain = true;

  [[nodiscard]] size_t group_count() const {
    return group_size == 0 ? 0 : devices.size() / static_cast<size_t>(group_size);
  }
};

// The groups of `collective`. kUnsupported: a sentence that says why they cannot be used.
Result<HloGroups> resolve_hlo_groups(const HloCollective& collective,
                                     const HloDeviceAssignment& assignment);

}  // namespace tersum
