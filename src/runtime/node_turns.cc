// The part of Node that decides whose turn it is among the calls in flight.
#include <algorithm>

#include "runtime/member.h"
#include "runtime/node.h"

namespace tersum {
namespace {

// Large calls over links without a wire, loopback that is, share nothing but caches. All at once
// their slices in flight do not fit L2: three exact sums of 16 MiB took 1.09 to 1.19 times as long
// as one of 48, five runs in turns, and 1.02 to 1.07 with one of them at a time. So one leads until
// it has sent this much; the others go on in steps in which it sends nothing, because it waits for
// its peers or has ended. Short calls, and all calls where there is a wire to share, never wait.
constexpr uint64_t kTurnBytes = 16 * 1024 * 1024;

// The member's leader keeps its turn or hands it to the next in the order of starts.
void pass_turn(Member& member) {
  const auto& active = member.active;
  const size_t count = active.size();
  const auto at = std::find_if(active.begin(), active.end(), [&](const auto& operation) {
    return operation.get() == member.leader;
  });
  size_t first = 0;
  if (at != active.end()) {
    if (member.leader->bytes_sent() - member.leader_begin_bytes < kTurnBytes) return;
    first = static_cast<size_t>(at - active.begin()) + 1;
  }
  member.leader = nullptr;
  for (size_t i = 0; i < count; ++i) {
    const Operation& next = *active[(first + i) % count];
    if (!next.takes_turns()) continue;
    member.leader = &next;
    member.leader_begin_bytes = next.bytes_sent();
    return;
  }
}

}  // namespace

bool Node::advance_operations() {
  bool moved = false;
  // Whoever comes first finds the room in the links' queues, so each comes first in turn.
  ++turn_;
  for (size_t m = 0; m < members_.size(); ++m) {
    Member& member = *members_[(m + turn_) % members_.size()];
    moved |= advance_member(member);
    if (!member.doom.ok()) {
      for (size_t i = 0; i < member.active.size(); ++i) member.active[i]->fail(*this, member.doom);
    }
    std::erase_if(member.active, [](const auto& operation) { return operation->done(); });
  }
  return moved;
}

bool Node::advance_member(Member& member) {
  pass_turn(member);
  const Operation* const leader = member.leader;
  const uint64_t sent = leader == nullptr ? 0 : leader->bytes_sent();
  const size_t count = member.active.size();
  bool moved = false;
  for (const bool waiting : {false, true}) {
    for (size_t i = 0; i < count; ++i) {
      Operation& operation = *member.active[(i + turn_) % count];
      const bool waits = leader != nullptr && &operation != leader && operation.takes_turns();
      if (waits != waiting) continue;
      moved |= operation.advance(*this, now_ns_);
      settle_lent();
    }
    if (leader == nullptr || leader->bytes_sent() != sent) break;
  }
  return moved;
}

}  // namespace tersum
