// The part of a communicator that settles what a call leaves open: codec and plan.
#include <algorithm>

#include "codec/codec.h"
#include "plan/plan.h"
#include "runtime/coalesced_call.h"
#include "runtime/communicator_impl.h"
#include "runtime/group_id.h"
#include "runtime/tuning/call_time.h"
#include "runtime/tuning/link_speed.h"
#include "runtime/tuning/list_sample.h"
#include "runtime/tuning/open_plans.h"
#include "runtime/tuning/path_choice.h"
#include "runtime/tuning/tuner.h"
#include "runtime/tuning/tuning_key.h"
#include "runtime/usual_plan.h"

namespace tersum {
namespace {

ChoiceKey choice_key(const CallArguments& arguments, const CallOptions& call_options,
                     const std::optional<uint32_t>& sampled) {
  ChoiceKey key;
  key.collective = arguments.collective;
  key.type = arguments.type;
  key.op = arguments.op;
  key.plan = call_options.plan;
  key.count = arguments.count;
  key.max_rel_error = call_options.max_rel_error;
  key.codec = call_options.codec;
  if (sampled) key.sampled = uint64_t{*sampled} << 1 | 1;
  return key;
}

// What ErrorSamples::measure() says of the array that the list is, `count` values long.
std::vector<double> measure_list(const CallArguments& arguments, std::span<const TensorRef> tensors,
                                 const CallOptions& call_options, size_t count, uint64_t call,
                                 std::span<const CodingSeconds> coding) {
  const std::vector<std::byte> runs = list_runs(
      tensors, arguments.type, ErrorSamples::run_starts(count, call), ErrorSamples::kRunValues);
  CallArguments sampled = arguments;
  sampled.input = runs.data();
  const size_t values = runs.size() / element_bytes(arguments.type);
  return ErrorSamples::measure(sampled, call_options, values, call, nullptr, coding);
}

}  // namespace

void CommunicatorImpl::set_tuning(std::vector<std::string> addresses,
                                  std::vector<TuningRule> rules) {
  tuning_key_ =
      addresses.empty() ? std::string() : make_tuning_key(addresses, options_, member_->host_cpus);
  addresses_ = std::move(addresses);
  rules_ = std::move(rules);
}

bool CommunicatorImpl::leaves_open(const CallOptions& call_options) const {
  return is_auto(call_options.codec) || call_options.max_rel_error != 0 ||
         (call_options.plan == PlanKind::kAuto &&
          (table_ != nullptr || !rules_.empty() || has_rates(member_->topology.get())));
}

Result<CommunicatorImpl::Settled> CommunicatorImpl::settle(const CallArguments& arguments,
                                                           const CallOptions& call_options,
                                                           std::span<const TensorRef> tensors) {
  TERSUM_RETURN_IF_ERROR(check_auto(call_options));
  PathContext context{member_->ground(), nullptr, &rules_, {}};
  if (auto settled = settle_at_once(context, arguments, call_options)) return {*std::move(settled)};
  Settled settled{call_options, nullptr, nullptr, false};
  {
    const std::lock_guard lock(choice_mutex_);
    context.table = table_.get();
  }
  if (needs_tuning(context, arguments, call_options)) TERSUM_RETURN_IF_ERROR(tune_once());
  if (wants_samples(context, arguments, call_options)) {
    if (may_flatten(context, arguments, call_options)) settled.settling = begin_settling();
    TERSUM_RETURN_IF_ERROR(sample_errors(context, arguments, tensors, settled));
  }
  Result<std::shared_ptr<const TakenPath>> path = remembered_path(arguments, call_options);
  if (!path.ok()) return path.status();
  settled.take(std::move(path).value());
  return {std::move(settled)};
}

// Of a training loop's calls nearly all. Where short calls of several ranks take turns on a core,
// each rank's way through settle() is in the time of all.
std::optional<CommunicatorImpl::Settled> CommunicatorImpl::settle_at_once(
    const PathContext& context, const CallArguments& arguments, const CallOptions& call_options) {
  const bool samples = wants_samples(context, arguments, call_options);
  std::unique_lock one_at_a_time(sampling_mutex_, std::defer_lock);
  uint64_t call = 0;
  if (samples) {
    if (arguments.tensors != 0 || shows_channels(arguments, call_options)) return std::nullopt;
    if (!one_at_a_time.try_lock()) return std::nullopt;
    const std::lock_guard lock(member_->mutex);
    call = member_->next_call;
  }
  Settled settled{call_options, nullptr, nullptr, false};
  const std::lock_guard lock(choice_mutex_);
  if (!leaves_open(call_options)) return settled;
  if (is_auto(call_options.codec) && table_ == nullptr) return std::nullopt;
  std::optional<uint32_t> sampled;
  if (samples) {
    const size_t count = whole_count(context, arguments);
    sampled = samples_.known_bits(arguments, call_options, count, call);
    if (!sampled) return std::nullopt;
  }
  auto known = choices_.find(choice_key(arguments, call_options, sampled));
  if (known == nullptr) return std::nullopt;
  settled.take(std::move(known));
  return settled;
}

CommunicatorImpl::Settling CommunicatorImpl::begin_settling() {
  const std::lock_guard lock(choice_mutex_);
  settling_.fetch_add(1);
  return Settling(this);
}

Status CommunicatorImpl::sample_errors(const PathContext& context, const CallArguments& arguments,
                                       std::span<const TensorRef> tensors, Settled& settled) {
  CallOptions& call_options = settled.options;
  const bool flattens = settled.settling != nullptr;
  const bool is_list = arguments.tensors != 0;
  TERSUM_RETURN_IF_ERROR(is_list ? CoalescedCall::check(tensors, call_options)
                                 : check_call(*member_, arguments, call_options));
  constexpr int64_t kNsPerMs = 1'000'000;
  int64_t start_ns = progress_->clock().now_ns();
  const int64_t all_ms =
      call_options.timeout_ms > 0 ? call_options.timeout_ms : options_.timeout_ms;
  const auto left_ms = [&] {
    return std::max<int64_t>(all_ms - (progress_->clock().now_ns() - start_ns) / kNsPerMs, 1);
  };
  const std::lock_guard one_at_a_time(sampling_mutex_);
  const size_t count = is_list ? list_values(tensors) : whole_count(context, arguments);
  uint64_t call = 0;
  {
    const std::lock_guard lock(member_->mutex);
    call = member_->next_call;
  }
  {
    const std::lock_guard lock(choice_mutex_);
    if (!samples_.is_due(arguments, call_options, count, call)) {
      settled.teaches = flattens && !samples_.has_judged_channels(arguments, call_options);
      return {};
    }
  }
  const Result<PlanErrorTerms> terms = error_terms(context, arguments, call_options);
  if (!terms.ok()) return terms.status();
  std::unique_ptr<const ChannelState> channels;
  if (flattens) {
    progress_->execute([&](Node& /*node*/) {
      channels =
          member_->flatten.copy_channels(text_digest(call_options.site), call_options.channels);
    });
  }
  const Result<const AutoCodecs*> codecs = find_auto_codecs(call_options.codec);
  if (!codecs.ok()) return codecs.status();
  // Once per process it takes 70 to 90 ms, which are no more the call's than tuning's are.
  const int64_t timing_ns = progress_->clock().now_ns();
  const std::vector<CodingSeconds> coding = coding_costs(*codecs.value(), coding_place());
  start_ns += progress_->clock().now_ns() - timing_ns;
  std::vector<double> message =
      is_list ? measure_list(arguments, tensors, call_options, count, call, coding)
              : ErrorSamples::measure(arguments, call_options, count, call, channels.get(), coding);
  CallOptions exactly;
  exactly.codec = "exact";
  exactly.timeout_ms = left_ms();
  const CallArguments sum{Collective::kAllReduce, message.data(),     message.data(),
                          message.size(),         DataType::kFloat64, ReduceOp::kSum};
  TERSUM_RETURN_IF_ERROR(run_settled(sum, exactly));
  call_options.timeout_ms = left_ms();
  const std::lock_guard lock(choice_mutex_);
  samples_.learn(arguments, call_options, count, call, message, terms.value(), context.ground.size,
                 channels.get());
  settled.teaches = flattens;
  return {};
}

Result<std::shared_ptr<const TakenPath>> CommunicatorImpl::remembered_path(
    const CallArguments& arguments, const CallOptions& call_options) {
  PathContext context;
  ChoiceKey key;
  std::shared_ptr<const TuningTable> table;
  {
    const std::lock_guard lock(choice_mutex_);
    context = unsampled_context();
    std::optional<uint32_t> sampled;
    if (wants_samples(context, arguments, call_options)) {
      sampled = samples_.within_bits(arguments, call_options, call_options.max_rel_error);
    }
    key = choice_key(arguments, call_options, sampled);
    if (auto known = choices_.find(key)) return known;
    context = choice_context(arguments, call_options);
    table = table_;  // what the context views, until the choice is made
  }
  Result<PathChoice> choice = choose_path(context, arguments, call_options);
  if (!choice.ok()) return choice.status();
  TakenPath path{std::move(choice->codec), choice->plan};
  const std::lock_guard lock(choice_mutex_);
  // What a table says that has been replaced meanwhile holds for this call alone.
  if (table != table_) return std::make_shared<const TakenPath>(std::move(path));
  return choices_.add(key, std::move(path));
}

PathContext CommunicatorImpl::unsampled_context() const {
  return {member_->ground(), table_.get(), &rules_, {}};
}

PathContext CommunicatorImpl::choice_context(const CallArguments& arguments,
                                             const CallOptions& call_options) const {
  PathContext context = unsampled_context();
  if (wants_samples(context, arguments, call_options)) {
    context.sampled = samples_.within(arguments, call_options, call_options.max_rel_error);
  }
  return context;
}

Result<PathChoice> CommunicatorImpl::choose(const CallArguments& arguments,
                                            const CallOptions& call_options) {
  TERSUM_RETURN_IF_ERROR(check_auto(call_options));
  PathContext context;
  std::shared_ptr<const TuningTable> table;
  {
    const std::lock_guard lock(choice_mutex_);
    context = choice_context(arguments, call_options);
    table = table_;  // what the context views
  }
  if (needs_tuning(context, arguments, call_options)) {
    return invalid_argument(
        "this group has not been tuned, so nothing is known to choose a codec by; call tune() on "
        "every rank first");
  }
  Result<PathChoice> choice = choose_path(context, arguments, call_options);
  if (!choice.ok()) return choice;
  expect_time(context.table, arguments, choice->plan, *choice);
  if (choice->plan != PlanKind::kAuto) return choice;
  const Result<const Codec*> codec = find_codec(choice->codec, arguments.type, arguments.op);
  if (!codec.ok()) return codec.status();
  choice->plan = usual_plan(context.ground, arguments.collective, arguments.type, arguments.op,
                            *codec.value(), arguments.count);
  expect_time(context.table, arguments, choice->plan, *choice);
  return choice;
}

CodingPlace CommunicatorImpl::coding_place() const {
  return {member_->size(), member_->most_crowded.ranks, member_->most_crowded.cpus};
}

void CommunicatorImpl::expect_time(const TuningTable* table, const CallArguments& arguments,
                                   PlanKind plan, PathChoice& choice) const {
  if (table == nullptr) return;
  const auto seconds = expected_seconds(*table, coding_place(), arguments, choice.codec, plan);
  if (seconds) choice.seconds = *seconds;
}

std::optional<LinkSpeed> CommunicatorImpl::link_speed() {
  const std::lock_guard lock(choice_mutex_);
  return table_ == nullptr ? std::nullopt : link_speed_of(*table_, member_->size());
}

RunCall CommunicatorImpl::blocking_calls() {
  return [this](const CallArguments& arguments, const CallOptions& call_options) {
    return run_settled(arguments, call_options);
  };
}

Status CommunicatorImpl::tune(bool fresh) { return tune_by(fresh, blocking_calls()); }

Status CommunicatorImpl::tune_by(bool fresh, const RunCall& run_call) {
  const std::lock_guard tuning_lock(tuning_mutex_);
  return tune_locked(fresh, run_call);
}

// Of calls that came while another one tuned: they must not ask again, for nobody else may.
Status CommunicatorImpl::tune_once() {
  const std::lock_guard tuning_lock(tuning_mutex_);
  {
    const std::lock_guard lock(choice_mutex_);
    if (table_ != nullptr) return {};
  }
  return tune_locked(false, blocking_calls());
}

Status CommunicatorImpl::tune_locked(bool fresh, const RunCall& run_call) {
  std::shared_ptr<const TuningTable> known;
  {
    const std::lock_guard lock(choice_mutex_);
    known = table_;
  }
  TuningRequest request;
  request.ground = member_->ground();
  // Input and output of each rank, in half of it: other guests of a host have some of its cache.
  request.cached_bytes = member_->host_cache_bytes / 4 / static_cast<size_t>(member_->size());
  request.reached_bytes = member_->reach_room() / 2;
  request.key = tuning_key_;
  request.known = known.get();
  request.fresh = fresh;
  Result<TuningTable> table = tune_group(request, progress_->clock(), run_call);
  if (!table.ok()) return table.status();
  const std::lock_guard lock(choice_mutex_);
  table_ = std::make_shared<const TuningTable>(std::move(table).value());
  choices_.clear();
  return {};
}

}  // namespace tersum
