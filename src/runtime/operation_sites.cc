// The part of Operation that knows of call sites: what earlier calls there have learned or lost,
// and what this one leaves.
#include <algorithm>
#include <utility>
#include <vector>

#include "base/check.h"
#include "plan/collective_rules.h"
#include "runtime/group_id.h"
#include "runtime/member.h"
#include "runtime/node.h"
#include "runtime/operation.h"

namespace tersum {

void Operation::enter_site() {
  resting_ = true;
  if (request_.channels != 0) {
    site_ = member_->flatten.find_or_make(request_.site, request_.channels);
    if (site_ != nullptr) site_->enter(this);
  }
  Member& keeper = member_->parent ? *member_->parent : *member_;
  if (request_.clip != 0) {
    clip_ = keeper.flatten.find_or_make_clip(request_.site, request_.clip);
    if (clip_ != nullptr) clip_->enter(this);
  }
  if (request_.levels != 0) {
    levels_ = keeper.flatten.find_or_make_levels(request_.site, request_.levels);
    if (levels_ != nullptr) levels_->enter(this);
  }
  if (request_.feedback != 0) {
    feedback_ = keeper.feedback.find_or_make(request_.feedback);
    if (feedback_ != nullptr) feedback_->enter(this);
  }
}

// Goes on once the site is this call's: only now is it known what the call is coded with.
bool Operation::take_site(Node& node) {
  if (site_ != nullptr && !site_->holds(this)) return false;
  if (clip_ != nullptr && !clip_->holds(this)) return false;
  if (levels_ != nullptr && !levels_->holds(this)) return false;
  if (feedback_ != nullptr && !feedback_->holds(this)) return false;
  resting_ = false;
  if (feedback_ != nullptr) {
    const size_t values = request_.count * part_count(request_.collective, member_->size());
    owed_ = feedback_->take(values, request_.tensors);
  }
  if (site_ != nullptr) {
    descriptor_.flatten = mix_digests(request_.site, site_->state.digest());
    outliers_.reset(request_.count);
    rows_.clear();
    if (call_.plan->wide != nullptr && member_->size() > 1 &&
        site_->state.looks(member_->flatten.every())) {
      rows_.reset(request_.count, request_.channels);
    }
  }
  Status taken = clip_ == nullptr ? Status() : take_clip();
  if (taken.ok() && levels_ != nullptr) taken = take_levels();
  if (!taken.ok()) {
    fail(node, taken);
    return true;
  }
  send_ready(node);
  if (early_.empty()) return true;  // as in every call that did not rest
  std::vector<InMessage> waiting;
  waiting.swap(early_);
  for (InMessage& message : waiting) on_message(node, std::move(message));
  return true;
}

void Operation::leave_site(bool ended_well) {
  if (feedback_ != nullptr) {
    // Which slices were coded is chance.
    if (!ended_well && owed_ != nullptr) feedback_->forget();
    feedback_->leave(this);
    feedback_ = nullptr;
    owed_ = nullptr;
  }
  if (clip_ != nullptr) {
    if (ended_well) clip_->state.learn(reports_);
    clip_->leave(this);
    clip_ = nullptr;
  }
  if (levels_ != nullptr) {
    // Every rank must have the whole sum.
    if (ended_well && request_.collective == Collective::kAllReduce) {
      levels_->state.learn(*request_.codec->lesson(), request_.output, request_.count,
                           request_.type, outliers_);
    }
    levels_->leave(this);
    levels_ = nullptr;
  }
  if (site_ == nullptr) return;
  if (ended_well && !rows_.is_empty()) {
    site_->state.observe(rows_, outliers_);
  } else if (ended_well) {
    site_->state.observe(request_.output, request_.count, request_.type, member_->flatten.every(),
                         outliers_);
  }
  rows_.clear();
  site_->leave(this);
  site_ = nullptr;
}

// Under a clip that is trusted the plan is cut anew; its kind stays, by which the clip is judged.
Status Operation::take_clip() {
  const LearnedClip& state = clip_->state;
  reports_ = {};
  clips_ = state.factors(ranks());
  const uint64_t known = mix_digests(mix_digests(request_.site, request_.clip), state.digest());
  descriptor_.flatten = mix_digests(descriptor_.flatten, known);
  if (!state.holds(!call_.plan->replicated)) return {};
  return change_codec(*request_.codec->held(), PlanRequest(call_.plan->request));
}

// Levels that are known stay as they are, so the calls behind this one need not wait for it. Those
// of lists do: which list's next bucket comes first must be the same on all ranks.
Status Operation::take_levels() {
  LearnedLevels& state = levels_->state;
  // A process that has no room for the table goes on as before; ranks that have it disagree.
  const uint16_t table = state.table();
  const uint64_t digest = table == 0 ? 0 : state.digest();
  const uint64_t known = mix_digests(mix_digests(request_.site, request_.levels), digest);
  descriptor_.flatten = mix_digests(descriptor_.flatten, known);
  if (table == 0) {
    outliers_.reset(request_.count);
    return {};
  }
  if (request_.tensors == 0) {
    levels_->leave(this);
    levels_ = nullptr;
  }
  const Codec& taught = request_.codec->taught(table);
  return change_codec(taught, wanted_plan(taught));
}

// Slices have another length then.
Status Operation::change_codec(const Codec& codec, const PlanRequest& wanted) {
  TERSUM_RETURN_IF_ERROR(resolve_plan(wanted, codec, member_->limits, call_.plan));
  call_.restart();
  return {};
}

// Of a finished sum.
void Operation::read_gathered(const PlanRun& run, const std::byte* wire, size_t count,
                              const SlicePlace& place) {
  read_payload(run.plan->codec_of(FlowPhase::kGather), wire, place.first, count);
  if (rows_.is_empty()) return;
  const Codec& codec = *run.plan->wide_gathered;
  const size_t block = codec.block();
  rows_.read_stretches(place.first, count, [&](size_t begin, size_t part, float* to) {
    const size_t offset = begin - place.first;
    const size_t from = offset / block * block;
    const size_t whole = (offset + part - from + block - 1) / block * block;
    const size_t decoded = std::min(whole, count - from);
    wide_.resize(std::max(wide_.size(), decoded));
    codec.decode_part(wire, {count, from, decoded}, wide_.data(), place);
    std::copy_n(wide_.data() + (offset - from), part, to);
  });
}

// Of contributions that every rank adds up, in wires_.
void Operation::read_replicated(const PlanRun& run, size_t count, const CombineFinish& finish,
                                const SlicePlace& place) {
  for (const std::byte* wire : wires_) read_payload(*run.plan->codec, wire, place.first, count);
  if (rows_.is_empty()) return;
  wide_.resize(std::max(wide_.size(), count));
  run.plan->wide->combine(wires_, nullptr, 0, count, finish, nullptr, wide_.data(), place);
  rows_.read_stretches(place.first, count, [&](size_t begin, size_t part, float* to) {
    std::copy_n(wide_.data() + (begin - place.first), part, to);
  });
}

// What travels with a finished sum; or, where all ranks add up the same, with each contribution.
// Every rank reads these payloads once, so all of them learn the same.
void Operation::read_payload(const Codec& codec, const std::byte* wire, size_t first,
                             size_t count) {
  if (site_ != nullptr || (levels_ != nullptr && !levels_->state.known())) {
    codec.gathered(1).mark_outliers(wire, count, first, outliers_);
  }
  if (clip_ == nullptr) return;
  const std::byte* const end = wire + codec.wire_bytes(count);
  const ClipReport report = read_clip_report(end - kClipReportBytes);
  reports_.contributions.add(report.contributions, false);
  reports_.sums.add(report.sums, false);
}

}  // namespace tersum
