#include "runtime/sampled_calls.h"

#include <algorithm>
#include <utility>

#include "runtime/deadline.h"
#include "runtime/group_id.h"
#include "runtime/progress.h"
#include "runtime/tuning/auto_codecs.h"
#include "runtime/tuning/path_choice.h"

namespace tersum {
namespace {

constexpr std::string_view kExact = "exact";
// Makes of a call's key that of its sample.
constexpr uint64_t kSampleKey = 0x73616d706c65;

PathContext context_of(const Member& member) { return {member.ground(), nullptr, nullptr, {}}; }

}  // namespace

// A sum of samples under way.
struct SampledCalls::Sampling {
  std::shared_ptr<SampledCalls> self;
  uint64_t site = 0;
  Call call;
  size_t count = 0;  // values of the whole input
  PlanErrorTerms terms;
  std::vector<double> message;
  std::unique_ptr<const ChannelState> channels;
};

void SampledCalls::start(const CallArguments& arguments, const CallOptions& options,
                         int64_t default_timeout_ms, uint64_t key, OnDone on_done, void* context) {
  Call call{arguments, options, 0, key, on_done, context, false, false};
  const int64_t timeout_ms = options.timeout_ms > 0 ? options.timeout_ms : default_timeout_ms;
  call.deadline_ns = deadline_after_ms(member_->progress->clock().now_ns(), timeout_ms);
  const Result<const AutoCodecs*> codecs = find_auto_codecs(options.codec);
  if (!codecs.ok()) {
    on_done(context, codecs.status());
    return;
  }
  // The caller's text need not outlive this.
  call.options.codec = codecs.value()->spec;
  call.options.site = {};
  call.may_flatten = may_flatten(context_of(*member_), arguments, call.options);
  {
    const std::lock_guard lock(mutex_);
    sites_[arguments.site].waiting.push_back(call);
  }
  go_on(arguments.site);
}

std::map<uint64_t, SampledChoice> SampledCalls::choices() const {
  std::map<uint64_t, SampledChoice> found;
  const std::lock_guard lock(mutex_);
  for (const auto& [id, site] : sites_) {
    if (site.choice.calls > 0) found[id] = site.choice;
  }
  return found;
}

void SampledCalls::go_on(uint64_t site) {
  std::string_view codec;
  while (const std::optional<Call> call = take_next(site, codec)) {
    if (!codec.empty()) {
      run(*call, codec);
      settled(site);
      continue;
    }
    const Status sampled = sample(site, *call);
    if (sampled.ok()) return;
    give_up(site, *call, sampled);
  }
}

void SampledCalls::settled(uint64_t site) {
  const std::lock_guard lock(mutex_);
  sites_[site].is_settling = false;
}

void SampledCalls::give_up(uint64_t site, const Call& call, const Status& status) {
  end(call, status);
  settled(site);
}

void SampledCalls::end(const Call& call, const Status& status) {
  {
    // Whoever hears of the end may change what the site knows.
    const std::lock_guard lock(mutex_);
    sites_[call.arguments.site].is_learning = false;
  }
  call.on_done(call.context, status);
}

bool SampledCalls::begin_change() {
  const std::lock_guard lock(mutex_);
  for (const auto& [id, site] : sites_) {
    if (site.is_settling && site.is_learning) return false;
  }
  ++changes_;
  return true;
}

void SampledCalls::end_change(bool changed) {
  std::vector<uint64_t> sites;
  {
    const std::lock_guard lock(mutex_);
    --changes_;
    for (auto& [id, site] : sites_) {
      if (changed) site.samples.forget_channels();
      if (!site.waiting.empty()) sites.push_back(id);
    }
  }
  for (const uint64_t site : sites) go_on(site);
}

std::optional<SampledCalls::Call> SampledCalls::take_next(uint64_t site, std::string_view& codec) {
  const std::lock_guard lock(mutex_);
  Site& of = sites_[site];
  if (of.is_settling || of.waiting.empty()) return std::nullopt;
  if (changes_ > 0 && of.waiting.front().may_flatten) return std::nullopt;
  Call call = of.waiting.front();
  of.waiting.pop_front();
  of.is_settling = true;
  of.is_learning = call.may_flatten;
  const PathContext context = context_of(*member_);
  const size_t count = whole_count(context, call.arguments);
  if (!wants_samples(context, call.arguments, call.options)) {
    codec = kExact;
  } else if (of.samples.is_due(call.arguments, call.options, count, call.key)) {
    codec = {};
    call.teaches = call.may_flatten;
  } else {
    codec = choose(of, call);
    call.teaches =
        call.may_flatten && !of.samples.has_judged_channels(call.arguments, call.options);
  }
  return call;
}

Status SampledCalls::sample(uint64_t site, const Call& call) {
  TERSUM_RETURN_IF_ERROR(check_call(*member_, call.arguments, call.options));
  if (call.may_flatten) return sample_behind(site, call);
  return sum_samples(site, call, nullptr);
}

Status SampledCalls::sample_behind(uint64_t site, const Call& call) {
  // As in start_call(): what is posted under this lock comes before the member's end.
  const std::lock_guard lock(member_->mutex);
  if (member_->closed) return member_->refusal;
  member_->progress->post_async([self = shared_from_this(), site, call](Node& /*node*/) {
    auto channels =
        self->member_->flatten.copy_channels(call.arguments.site, call.options.channels);
    const Status sampled = self->sum_samples(site, call, std::move(channels));
    if (sampled.ok()) return;
    self->give_up(site, call, sampled);
    self->go_on(site);
  });
  return {};
}

Status SampledCalls::sum_samples(uint64_t site, const Call& call,
                                 std::unique_ptr<const ChannelState> channels) {
  auto sampling = std::make_unique<Sampling>();
  sampling->self = shared_from_this();
  sampling->site = site;
  sampling->call = call;
  sampling->count = whole_count(context_of(*member_), call.arguments);
  const Result<PlanErrorTerms> terms =
      error_terms(context_of(*member_), call.arguments, call.options);
  if (!terms.ok()) return terms.status();
  sampling->terms = terms.value();
  sampling->message = ErrorSamples::measure(call.arguments, call.options, sampling->count, call.key,
                                            channels.get());
  sampling->channels = std::move(channels);
  std::vector<double>& message = sampling->message;
  const CallArguments sum{Collective::kAllReduce, message.data(),     message.data(),
                          message.size(),         DataType::kFloat64, ReduceOp::kSum};
  CallOptions exactly;
  exactly.codec = kExact;
  exactly.timeout_ms = left_ms(call);
  // From here on on_sampled() has it, which may end before start_call() returns.
  Sampling* const handed_over = sampling.release();
  const auto started = start_call(member_, sum, exactly, exactly.timeout_ms,
                                  mix_digests(call.key, kSampleKey), true, on_sampled, handed_over);
  if (!started.ok()) sampling.reset(handed_over);
  return started.status();
}

void SampledCalls::on_sampled(void* context, const Status& status) {
  const std::unique_ptr<Sampling> sampling(static_cast<Sampling*>(context));
  SampledCalls& self = *sampling->self;
  const Call& call = sampling->call;
  std::string_view codec;
  {
    const std::lock_guard lock(self.mutex_);
    Site& site = self.sites_[sampling->site];
    if (status.ok()) {
      site.samples.learn(call.arguments, call.options, sampling->count, call.key, sampling->message,
                         sampling->terms, self.member_->size(), sampling->channels.get());
      codec = self.choose(site, call);
    }
  }
  if (status.ok()) {
    self.run(call, codec);
  } else {
    self.end(call, status);
  }
  self.settled(sampling->site);
  self.go_on(sampling->site);
}

std::string_view SampledCalls::choose(Site& site, const Call& call) const {
  const std::optional<SampledCodec> found =
      site.samples.cheapest(call.arguments, call.options, call.options.max_rel_error);
  site.choice.codec = found ? found->codec : kExact;
  site.choice.rel_error = found ? found->rel_error : 0;
  ++site.choice.calls;
  return site.choice.codec;
}

void SampledCalls::run(const Call& call, std::string_view codec) {
  CallOptions options = call.options;
  options.codec = codec;
  options.max_rel_error = 0;
  options.timeout_ms = left_ms(call);
  CallArguments arguments = call.arguments;
  arguments.teaches = call.teaches;
  const auto started = start_call(member_, arguments, options, options.timeout_ms, call.key, true,
                                  call.on_done, call.context);
  if (!started.ok()) end(call, started.status());
}

int64_t SampledCalls::left_ms(const Call& call) const {
  constexpr int64_t kNsPerMs = 1'000'000;
  const int64_t left_ns = call.deadline_ns - member_->progress->clock().now_ns();
  return std::max<int64_t>(left_ns / kNsPerMs, 1);
}

}  // namespace tersum
