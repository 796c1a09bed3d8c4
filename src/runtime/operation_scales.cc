// The part of Operation in which ranks agree on the scales of a sum.
#include <algorithm>

#include "base/check.h"
#include "codec/shared_sums.h"
#include "plan/collective_rules.h"
#include "runtime/member.h"
#include "runtime/operation.h"
#include "runtime/usual_plan.h"

namespace tersum {
namespace {

// Measured in one go, whole blocks, and up to twice as many where parts end: some 20 us, and as
// much again where blocks are transformed.
constexpr size_t kValuesPerMeasure = 64 * 1024;
// Values whose scales travel together. The wire rests until the first of them have been measured,
// sent, and come back: some 30 us of measuring, for 512 bytes of scales of 256 values.
constexpr size_t kValuesPerSlice = 64 * 1024;

}  // namespace

// Sums only, of something, by more than one rank.
Status Operation::begin_scales() {
  const SharedSums* const sums = request_.codec->shared_sums();
  if (sums == nullptr || !reduces(request_.collective) || request_.count == 0 ||
      member_->size() < 2) {
    return {};
  }
  const size_t parts = part_count(request_.collective, member_->size());
  const size_t count =
      sums->scale_block() == 0 ? 1 : parts * shared_scale_count(*sums, request_.count);
  PlanRequest wanted;
  wanted.size = member_->size();
  wanted.count = count;
  wanted.topology = member_->topology.get();
  const Result<const Codec*> maxima = find_codec("exact", DataType::kBFloat16, ReduceOp::kMax);
  if (!maxima.ok()) return maxima.status();
  wanted.granule = maxima.value()->block();
  wanted.kind = usual_plan(member_->ground(), wanted.collective, DataType::kBFloat16,
                           ReduceOp::kMax, *maxima.value(), count);
  sums_ = sums;
  TERSUM_RETURN_IF_ERROR(resolve_plan(wanted, *maxima.value(), scale_limits(), agreement_.plan));
  measured_ = 0;
  scales_.assign(count, 0);
  agreement_.arrays = {scales_.data(), scales_.data(), count, DataType::kBFloat16, ReduceOp::kMax};
  agreement_.restart();
  return {};
}

SliceLimits Operation::scale_limits() const {
  SliceLimits limits = member_->limits;
  const size_t wanted = kValuesPerSlice / values_per_scale(*sums_) * sizeof(uint16_t);
  limits.slice_bytes = std::min(limits.slice_bytes, wanted);
  limits.least_slice_bytes = limits.slice_bytes;
  limits.plain_slice_bytes = 0;
  limits.plain_window_bytes = 0;
  return limits;
}

// Where all values share one scale, nobody can hand it in before it has seen all of them. A bounded
// piece of that; true once nothing is left to do here.
bool Operation::measure_whole() {
  if (sums_ == nullptr || sums_->scale_block() != 0) return true;
  const size_t total = part_count(request_.collective, member_->size()) * request_.count;
  size_t here = 0;
  for (size_t done = 0; done < kValuesPerMeasure && measured_ < total; done += here) {
    // Blocks are counted from the begin of a part, where what is measured depends on them.
    const size_t part_left = request_.count - measured_ % request_.count;
    here = std::min(kValuesPerMeasure, part_left);
    measure_values(measured_, here);
    measured_ += here;
  }
  return measured_ == total;
}

// The scales of a slice that this rank is about to hand in.
void Operation::measure_own(const PlanRun& run, const ChunkRole& role, uint32_t slice) {
  if (!run.of_scales || sums_->scale_block() == 0) return;
  const size_t row = sums_->scale_row();
  const size_t per_part = shared_scale_count(*sums_, request_.count);
  size_t scale = run.plan->slice_begin(role, slice);
  const size_t end = scale + run.plan->slice_count(role, slice);
  while (scale < end) {
    const size_t within = scale % per_part;
    size_t here = std::min(end - scale, per_part - within);
    // The rest of a row before whole ones.
    if (row > 0 && within % scales_in_row(*sums_) > 0) {
      here = std::min(here, scales_in_row(*sums_) - within % scales_in_row(*sums_));
    }
    const size_t first = first_under_scale(*sums_, within);
    // A part's last block may be short.
    const size_t last = std::min(first_under_scale(*sums_, within + here), request_.count);
    measure_values(scale / per_part * request_.count + first, last - first);
    scale += here;
  }
}

// Values first.. of the input, from the begin of a block.
void Operation::measure_values(size_t first, size_t count) {
  SlicePlace place;
  place.first = first;
  place.added = request_.added;
  const auto* const input = static_cast<const std::byte*>(request_.input);
  sums_->measure(input + first * element_bytes(request_.type), count, ranks(), place,
                 scales_.data() + scale_index(first));
}

// Of the block that begins at value `first` of the array, or holds it.
size_t Operation::scale_index(size_t first) const {
  if (sums_->scale_block() == 0) return 0;
  return first / request_.count * shared_scale_count(*sums_, request_.count) +
         shared_scale_at(*sums_, first % request_.count);
}

// A slice can be coded, added to or decoded: every rank has put its scales into those it needs.
bool Operation::has_scales(const PlanRun& run, const ChunkRole& role, uint32_t slice) const {
  if (run.of_scales || agreement_.complete()) return true;
  const size_t first = run.plan->slice_begin(role, slice);
  const size_t last = first + run.plan->slice_count(role, slice) - 1;
  return agreement_.holds(scale_index(first), scale_index(last) + 1);
}

// What a message of that phase is for; null if the call has no such messages.
PlanRun* Operation::find_run(FlowPhase phase) {
  PlanRun& run = plan_phase(phase) == phase ? call_ : agreement_;
  return run.plan == nullptr ? nullptr : &run;
}

}  // namespace tersum
