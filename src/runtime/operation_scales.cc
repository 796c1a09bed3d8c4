// The part of Operation in which ranks agree on the scales of a sum.
#include <algorithm>

#include "base/check.h"
#include "codec/shared_sums.h"
#include "plan/collective_rules.h"
#include "runtime/member.h"
#include "runtime/operation.h"

namespace tersum {
namespace {

// Measured in one advance(): some 20 us.
constexpr size_t kValuesPerAdvance = 64 * 1024;

// Scales that a part of `values` has.
size_t scales_of(const SharedSums& sums, size_t values) {
  const size_t block = sums.scale_block();
  return block == 0 ? 1 : (values + block - 1) / block;
}

}  // namespace

// Sums only, of something, by more than one rank. Requires plan_ to be the call's; the scales'
// comes into its place.
Status Operation::begin_scales() {
  const SharedSums* const sums = request_.codec->shared_sums();
  if (sums == nullptr || !reduces(request_.collective) || request_.count == 0 ||
      member_->size() < 2) {
    return {};
  }
  const size_t parts = part_count(request_.collective, member_->size());
  const size_t count = sums->scale_block() == 0 ? 1 : parts * scales_of(*sums, request_.count);
  PlanRequest wanted;
  wanted.size = member_->size();
  wanted.count = count;
  wanted.topology = member_->topology.get();
  const Result<const Codec*> maxima = find_codec("exact", DataType::kBFloat16, ReduceOp::kMax);
  if (!maxima.ok()) return maxima.status();
  wanted.granule = maxima.value()->block();
  wanted.kind = choose_plan(wanted.collective, wanted.size, maxima.value()->wire_bytes(count),
                            wanted.topology);
  call_plan_ = plan_;
  TERSUM_RETURN_IF_ERROR(resolve_plan(wanted, *maxima.value(), plan_));
  sums_ = sums;
  agreeing_ = true;
  measured_ = 0;
  scales_.assign(count, 0);
  stage_ = {scales_.data(), scales_.data(), count, DataType::kBFloat16, ReduceOp::kMax};
  return {};
}

// A bounded piece of it; true once all is measured.
bool Operation::measure_scales() {
  const size_t parts = part_count(request_.collective, member_->size());
  const size_t total = parts * request_.count;
  if (measured_ == total) return true;
  // Whole blocks from the begin of a part, or its rest.
  const size_t within = measured_ % request_.count;
  const size_t here = std::min(kValuesPerAdvance, request_.count - within);
  SlicePlace place;
  place.first = measured_;
  place.added = request_.added;
  const auto* const input = static_cast<const std::byte*>(request_.input);
  sums_->measure(input + measured_ * element_bytes(request_.type), here, ranks(), place,
                 scales_.data() + scale_index(measured_));
  measured_ += here;
  return measured_ == total;
}

// Of the block that begins at value `first` of the array, or holds it.
size_t Operation::scale_index(size_t first) const {
  const size_t block = sums_->scale_block();
  if (block == 0) return 0;
  return first / request_.count * scales_of(*sums_, request_.count) +
         first % request_.count / block;
}

const uint16_t* Operation::scales_at(size_t first) const {
  return sums_ == nullptr || agreeing_ ? nullptr : scales_.data() + scale_index(first);
}

// Whether a message of the call itself is one that a peer may send before this rank has all scales:
// of the first window of a flow. What is kept is bounded by that.
bool Operation::may_be_ahead(const InMessage& message) const {
  const MessageHeader& got = message.header;
  const CompiledPlan& plan = *call_plan_;
  const int flow = find_flow(plan.in_lookup, got.chunk, got.phase, got.from_rank);
  if (flow < 0 || ahead_.size() >= plan.in_flows.size() * plan.window) return false;
  const ChunkRole& role = plan.roles[plan.in_flows[static_cast<size_t>(flow)].role];
  return got.slice < std::min(plan.window, role.slices);
}

// Every rank has put its scales into these: the call itself can run.
void Operation::end_scales(Node& node) {
  agreeing_ = false;
  plan_ = std::move(call_plan_);
  stage_ = {request_.input, request_.output, request_.count, request_.type, request_.op};
  reset_states();
  // One that ends the call forgets the others.
  for (size_t i = 0; i < ahead_.size(); ++i) on_message(node, std::move(ahead_[i]));
  ahead_.clear();
}

bool Operation::has_scales_phase(const MessageHeader& got) {
  return plan_phase(got.phase) != got.phase;
}

}  // namespace tersum
