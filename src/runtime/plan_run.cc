#include "runtime/plan_run.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "codec/decode_past_cache.h"

namespace tersum {

void PlanRun::clear() {
  plan.reset();
  in.clear();
  out.clear();
  roles.clear();
  open_roles_ = 0;
}

void PlanRun::restart() {
  in.assign(plan->in_flows.size(), {});
  out.assign(plan->out_flows.size(), {});
  for (OutState& state : out) state.granted = plan->window;
  roles.assign(plan->roles.size(), {});
  open_roles_ = static_cast<uint32_t>(roles.size());
  for (uint32_t i = 0; i < roles.size(); ++i) refresh_role(i);
  const size_t inbox_count = plan->in_flows.size() * plan->window;
  if (inbox_.size() < inbox_count) inbox_.resize(inbox_count);
  places_used_ = std::max(places_used_, inbox_count);
  if (plan->replicated) {
    if (own_wires_.size() < plan->window) own_wires_.resize(plan->window);
    own_wires_used_ = std::max<size_t>(own_wires_used_, plan->window);
  }
  leaf_cursor = first_leaf();
}

// Behind the own chunk: if all ranks began with the same owner's, all their first slices would meet
// on its link while the others' idle.
uint32_t PlanRun::first_leaf() const {
  const auto own = std::find_if(plan->roles.begin(), plan->roles.end(),
                                [](const ChunkRole& role) { return role.finishes; });
  return own == plan->roles.end() ? 0 : static_cast<uint32_t>(own - plan->roles.begin()) + 1;
}

// The places of this call alone: those of longer calls before it were given back at their end, and
// to go through them took a quarter of the time of 1 KiB in shared memory.
void PlanRun::release() {
  const std::span<InMessage> inbox = inbox_;
  for (InMessage& message : inbox.first(std::exchange(places_used_, 0))) message = {};
  const std::span<SlotRef> own_wires = own_wires_;
  for (SlotRef& slot : own_wires.first(std::exchange(own_wires_used_, 0))) slot = {};
}

void PlanRun::refresh_role(uint32_t role_index) {
  const ChunkRole& role = plan->roles[role_index];
  RoleState& state = roles[role_index];
  const bool produced = !role.produces || state.produced == role.slices;
  const bool stored = role.store.count == 0 || state.stored == role.slices;
  if (state.complete || !produced || !stored) return;
  state.complete = true;
  --open_roles_;
}

bool PlanRun::holds(size_t begin, size_t end) const {
  if (complete()) return true;
  for (size_t i = 0; i < roles.size(); ++i) {
    const ChunkRole& role = plan->roles[i];
    if (role.range.end <= begin || end <= role.range.begin) continue;
    const bool owns = role.finishes || plan->replicated;
    const uint32_t slices = owns ? roles[i].produced : roles[i].stored;
    const size_t known = role.range.begin + slices * plan->slice_values;
    if (known < std::min(end, role.range.end)) return false;
  }
  return true;
}

void PlanRun::list_parts(const ChunkRole& role, uint32_t slice,
                         std::vector<SlicePart>& pieces) const {
  const size_t count = plan->slice_count(role, slice);
  const size_t value_bytes = element_bytes(arrays.type);
  const size_t behind = slice * plan->slice_values;
  pieces.clear();
  if (arrays.parts.empty()) {
    SlicePart& all = pieces.emplace_back(SlicePart{nullptr, nullptr, 0, count});
    if (role.produces && arrays.input != nullptr) {
      const auto* const input = static_cast<const std::byte*>(arrays.input);
      all.input = input + (role.input_begin + behind) * value_bytes;
    }
    if (role.keeps && arrays.output != nullptr) {
      auto* const output = static_cast<std::byte*>(arrays.output);
      all.output = output + (role.output_begin + behind) * value_bytes;
    }
    return;
  }
  // Only sums of whole arrays come in parts: input and output are numbered alike.
  TERSUM_CHECK(role.input_begin == role.output_begin);
  const size_t begin = role.input_begin + behind;
  const auto after = std::ranges::upper_bound(arrays.parts, begin, {}, &ArrayPart::begin);
  TERSUM_CHECK(after != arrays.parts.begin());
  const ArrayPart* part = &*(after - 1);
  for (size_t first = 0; first < count; ++part) {
    const size_t skipped = begin + first - part->begin;
    const size_t here = std::min(count - first, part->end - begin - first);
    std::byte* const output = role.keeps ? part->output + skipped * value_bytes : nullptr;
    pieces.push_back({part->input + skipped * value_bytes, output, first, here});
    first += here;
  }
}

bool PlanRun::have_slice(const FlowRange& range, uint32_t slice) const {
  for (uint32_t i = 0; i < range.count; ++i) {
    const InMessage& message = inbox(range.first + i, slice);
    if (message.payload.data() == nullptr || message.header.slice != slice) return false;
  }
  return true;
}

bool PlanRun::past_cache() const {
  const bool in_place = arrays.input == arrays.output;
  const size_t bytes = (in_place ? 1 : 2) * arrays.count * element_bytes(arrays.type);
  // The arrays of all ranks of a host take its caches' room; more than eight were not measured, and
  // do not share one. Where values are also coded, which takes as long as the stores, more than two
  // gain nothing by it.
  const size_t exact_sharers = std::clamp<size_t>(ranks_of_host, 2, 8);
  const size_t sharers = plan->codec->wire_is_values() ? exact_sharers : 2;
  if (bytes * sharers < 2 * kPastCacheBytesMin) return false;
  // In place the next call reads what this one wrote. Where two cores share 260 MiB, ordinary
  // stores of 64 to 128 MiB in all take 0.78 to 0.98 of the time, of 256 MiB and more 0.98 to 1.22
  // (docs/performance-history.md, "Results that stay in a large cache").
  return !in_place || bytes * std::max<size_t>(ranks_of_host, 2) >= cache_bytes / 2;
}

bool PlanRun::needs(int rank) const {
  for (size_t i = 0; i < in.size(); ++i) {
    const InFlow& flow = plan->in_flows[i];
    if (flow.peer == rank && in[i].arrived < plan->roles[flow.role].slices) return true;
  }
  for (size_t i = 0; i < out.size(); ++i) {
    const OutFlow& flow = plan->out_flows[i];
    if (flow.peer == rank && out[i].sent < plan->roles[flow.role].slices) return true;
  }
  return false;
}

}  // namespace tersum
