#include "runtime/start_call.h"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "codec/shared_sums.h"
#include "plan/collective_rules.h"
#include "plan/plan.h"
#include "plan/plan_fit.h"
#include "runtime/call_counters.h"
#include "runtime/deadline.h"
#include "runtime/group_id.h"
#include "runtime/plan_needed.h"
#include "runtime/progress.h"

namespace tersum {
namespace {

Status check_arguments(const Member& member, const CallArguments& arguments,
                       const CallOptions& options) {
  const auto size = static_cast<size_t>(member.size());
  const bool root = arguments.root == member.rank;
  const bool moves = arguments.collective != Collective::kBarrier && arguments.count > 0;
  const bool reads = moves && (arguments.collective != Collective::kScatter || root);
  const bool writes =
      moves && !arguments.keeps_data && (arguments.collective != Collective::kGather || root);
  if ((reads && arguments.input == nullptr) || (writes && arguments.output == nullptr)) {
    return invalid_argument(std::string(collective_name(arguments.collective)) + " of " +
                            std::to_string(arguments.count) +
                            " elements got a null buffer; pass memory for input and output");
  }
  if (arguments.count > std::numeric_limits<size_t>::max() / 16 / size) {
    return invalid_argument("a length of " + std::to_string(arguments.count) +
                            " elements does not fit into memory; pass the number of elements");
  }
  if (arguments.root < 0 || arguments.root >= member.size()) {
    return invalid_argument("root " + std::to_string(arguments.root) +
                            " is no rank of this group; pass 0.." +
                            std::to_string(member.size() - 1));
  }
  if (options.timeout_ms < 0) {
    return invalid_argument("timeout_ms is " + std::to_string(options.timeout_ms) +
                            "; pass a positive number, or 0 for the communicator's");
  }
  if (options.plan != PlanKind::kAuto && !serves(options.plan, arguments.collective)) {
    return unsupported(unserved_text(options.plan, arguments.collective));
  }
  if (options.channels > 0 && arguments.count % options.channels != 0) {
    return invalid_argument("channels is " + std::to_string(options.channels) +
                            ", which does not divide the length " +
                            std::to_string(arguments.count) + "; pass the last dimension, or 0");
  }
  return {};
}

bool overlap(const void* a, size_t a_bytes, const void* b, size_t b_bytes) {
  const auto first = reinterpret_cast<uintptr_t>(a);
  const auto second = reinterpret_cast<uintptr_t>(b);
  return first < second + b_bytes && second < first + a_bytes;
}

// Of the residual and the bias.
Status check_added(const CallArguments& arguments, const CallOptions& options) {
  if (options.residual == nullptr && options.bias == nullptr && options.bias_count == 0) return {};
  if (arguments.collective != Collective::kAllReduce || arguments.tensors != 0) {
    return invalid_argument("a residual or a bias is added in all_reduce of one array, not in " +
                            std::string(arguments.tensors != 0
                                            ? "all_reduce_coalesced"
                                            : collective_name(arguments.collective)) +
                            "; leave them out");
  }
  const size_t value_bytes = element_bytes(arguments.type);
  const size_t bytes = arguments.count * value_bytes;
  if (arguments.count > 0 && (options.bias == nullptr) != (options.bias_count == 0)) {
    return invalid_argument("bias has " + std::to_string(options.bias_count) + " elements and is " +
                            (options.bias == nullptr ? "null" : "not null") +
                            "; pass an array and its length, or neither");
  }
  if (options.bias_count > 0 && arguments.count % options.bias_count != 0) {
    return invalid_argument("bias has " + std::to_string(options.bias_count) +
                            " elements, which does not divide the length " +
                            std::to_string(arguments.count) + "; pass one for the last dimension");
  }
  const bool residual_in_the_way = options.residual != nullptr &&
                                   options.residual != arguments.output &&
                                   overlap(options.residual, bytes, arguments.output, bytes);
  const bool bias_in_the_way =
      options.bias != nullptr &&
      overlap(options.bias, options.bias_count * value_bytes, arguments.output, bytes);
  if (residual_in_the_way || bias_in_the_way) {
    return invalid_argument(std::string(bias_in_the_way ? "bias" : "residual") +
                            " overlaps the output, which would overwrite it before it is read; "
                            "pass memory of its own" +
                            (bias_in_the_way ? "" : ", or the very output"));
  }
  return {};
}

Status check_ranks(const Member& member, const CallArguments& arguments, const Codec& codec) {
  if (!reduces(arguments.collective)) return {};
  return check_sum_ranks(codec, static_cast<uint32_t>(member.size()));
}

Status check_side_by_side(const Member& member, const CallArguments& arguments,
                          const CallOptions& options, const Codec& codec) {
  const PlanKind plan = options.plan;
  const SharedSums* const sums = ordered_sums(codec, arguments.collective, member.size());
  if (sums == nullptr || plan == PlanKind::kAuto ||
      may_take_plan(codec, arguments.collective, member.size(), plan)) {
    return {};
  }
  const std::string refused = "codec " + codec.spec().to_string() + " is refused on plan " +
                              std::string(plan_kind_name(plan));
  if (plan == PlanKind::kOneShot) {
    return unsupported(refused +
                       ", in which every rank adds up all: it adds by random numbers of the rank "
                       "that does it, so that no two would have the same; use plan two_step");
  }
  if (sums->takes_pairs()) {
    std::vector<PlanKind> kinds = {PlanKind::kTwoStep, PlanKind::kOneShot,
                                   PlanKind::kHalvingDoubling, PlanKind::kTree};
    std::erase_if(kinds, [&](PlanKind kind) { return !serves(kind, arguments.collective); });
    return unsupported(refused +
                       ", which adds rank after rank to what passes through: it adds ranks two by "
                       "two; use plan " +
                       join_kinds(kinds));
  }
  return unsupported(refused +
                     ", which adds to what passes through: it adds up the contributions of all "
                     "ranks where they lie side by side; use plan two_step");
}

// Also of a plan that only the topology leaves.
Status check_hops(const Member& member, const CallArguments& arguments, const CallOptions& options,
                  const Codec& codec) {
  if (codec.takes_hops() || !reduces(arguments.collective)) return {};
  const PlanKind kind = options.plan != PlanKind::kAuto
                            ? options.plan
                            : choose_plan(arguments.collective, member.size(),
                                          codec.wire_bytes(arguments.count), member.topology.get());
  if (may_take_plan(codec, arguments.collective, member.size(), kind)) return {};
  return unsupported(
      "codec " + codec.spec().to_string() + " is refused on plan " +
      std::string(plan_kind_name(kind)) +
      ": its scales are powers of two, so partial sums that are coded again at every "
      "hop round to what they were; use plan two_step or tree, another codec, or " +
      codec.spec().to_string() + "+hops to do it all the same");
}

// Of a plan that the call, or its codec, names.
Status check_links(Member& member, const CallRequest& request) {
  PlanRequest plan;
  plan.collective = request.collective;
  plan.kind = request.plan;
  plan.size = member.size();
  plan.root = request.root;
  plan.count = request.count * part_count(request.collective, plan.size);
  plan.topology = member.topology.get();
  return member.plan_fits.check(*request.codec, plan);
}

bool has_channels(const CallArguments& arguments, const CallOptions& options, const Codec& codec) {
  return (codec.flattens() || arguments.teaches) && shows_channels(arguments, options);
}

// Sums whose codec gives back what it loses belong to a site, named by the caller: what one tensor
// has lost must not be given to another that happens to be as long.
bool feeds_back(const CallArguments& arguments, const Codec& codec) {
  return codec.feeds_back() && reduces(arguments.collective);
}

// Every rank must have the whole sum, and so all reports.
bool learns_clip(const Member& member, const CallArguments& arguments, const Codec& codec) {
  return codec.held() != nullptr && arguments.collective == Collective::kAllReduce &&
         arguments.count > 0 && member.size() > 1;
}

// Sums of one rank teach nobody, and of what is only copied nobody learns.
bool has_lesson(const Member& member, const CallArguments& arguments, const Codec& codec) {
  return codec.lesson() != nullptr && reduces(arguments.collective) && arguments.count > 0 &&
         member.size() > 1;
}

uint64_t of_bucket(uint64_t kind, const CallArguments& arguments) {
  if (arguments.bucket != 0) kind = mix_digests(kind, arguments.bucket);
  return kind == 0 ? 1 : kind;
}

// What calls have in common that learn one clip: all but the values, and the site.
uint64_t clip_kind(const CallArguments& arguments, const Codec& codec) {
  uint64_t kind = mix_digests(text_digest(codec.spec().to_string()), arguments.count);
  kind = mix_digests(kind, arguments.tensors);
  kind = mix_digests(kind, static_cast<uint64_t>(arguments.type));
  kind = mix_digests(kind, static_cast<uint64_t>(arguments.op));
  return of_bucket(kind, arguments);
}

// And what those have in common that learn the same levels.
uint64_t levels_kind(const CallArguments& arguments, const Codec& codec) {
  return of_bucket(text_digest(codec.spec().to_string()), arguments);
}

// Of a bucket, its part of the list's.
uint64_t own_site(const CallArguments& arguments) {
  if (arguments.site == 0 || arguments.bucket == 0) return arguments.site;
  return mix_digests(arguments.site, arguments.bucket - 1);
}

uint64_t site_of(const CallArguments& arguments, const CallOptions& options) {
  if (arguments.site != 0 || options.site.empty()) return own_site(arguments);
  return text_digest(options.site);
}

Status check_feedback(const CallArguments& arguments, const CallOptions& options,
                      const Codec& codec) {
  if (!feeds_back(arguments, codec) || site_of(arguments, options) != 0) return {};
  return invalid_argument("codec " + codec.spec().to_string() +
                          " keeps what a site's calls lose, and this call names none; pass a site, "
                          "such as the tensor's name");
}

// What has a state from call to call, and where.
void name_sites(const Member& member, const CallArguments& arguments, const CallOptions& options,
                CallRequest& request) {
  const Codec& codec = *request.codec;
  if (has_channels(arguments, options, codec)) request.channels = options.channels;
  if (learns_clip(member, arguments, codec)) request.clip = clip_kind(arguments, codec);
  if (has_lesson(member, arguments, codec)) request.levels = levels_kind(arguments, codec);
  if (request.channels != 0 || request.clip != 0 || request.levels != 0) {
    request.site = arguments.site != 0 ? arguments.site : text_digest(options.site);
  }
  if (feeds_back(arguments, codec)) {
    // Tensors of several types may be summed under one name.
    request.feedback =
        mix_digests(site_of(arguments, options), static_cast<uint64_t>(arguments.type));
  }
}

// A pooled operation that nobody refers to any more, or a new one. Requires member.mutex.
std::shared_ptr<Operation> take_operation(Member& member) {
  for (const auto& operation : member.pool) {
    if (operation.use_count() != 1) continue;
    // use_count() orders nothing. Giving up a reference does: it acquires what the last user's
    // giving up has released, so that one's accesses come before the reuse.
    std::shared_ptr<Operation>(operation).reset();
    return operation;
  }
  member.pool.push_back(std::make_shared<Operation>());
  return member.pool.back();
}

}  // namespace

bool shows_channels(const CallArguments& arguments, const CallOptions& options) {
  return arguments.collective == Collective::kAllReduce && arguments.tensors == 0 &&
         arguments.count > 0 && options.channels >= 2 &&
         options.channels <= ChannelState::kChannelsMax;
}

Status check_call(const Member& member, const CallArguments& arguments,
                  const CallOptions& options) {
  TERSUM_RETURN_IF_ERROR(check_arguments(member, arguments, options));
  return check_added(arguments, options);
}

Result<std::shared_ptr<Operation>> start_call(const std::shared_ptr<Member>& member,
                                              const CallArguments& arguments,
                                              const CallOptions& options,
                                              int64_t default_timeout_ms, uint64_t key, bool async,
                                              OnDone on_done, void* context) {
  TERSUM_RETURN_IF_ERROR(check_call(*member, arguments, options));
  Result<const Codec*> codec = find_codec(options.codec, arguments.type, arguments.op);
  if (!codec.ok()) return codec.status();
  if ((options.residual != nullptr || options.bias != nullptr) && codec.value()->feeds_back()) {
    return unsupported("codec " + codec.value()->spec().to_string() +
                       " keeps what its calls lose and takes no residual or bias; add them before");
  }
  TERSUM_RETURN_IF_ERROR(check_ranks(*member, arguments, *codec.value()));
  TERSUM_RETURN_IF_ERROR(check_side_by_side(*member, arguments, options, *codec.value()));
  TERSUM_RETURN_IF_ERROR(check_hops(*member, arguments, options, *codec.value()));
  TERSUM_RETURN_IF_ERROR(check_feedback(arguments, options, *codec.value()));
  CallRequest request;
  request.collective = arguments.collective;
  request.input = arguments.input;
  request.output = arguments.output;
  request.count = arguments.count;
  request.type = arguments.type;
  request.op = arguments.op;
  request.codec = codec.value();
  request.plan = options.plan != PlanKind::kAuto
                     ? options.plan
                     : plan_needed(*codec.value(), arguments.collective, member->size());
  request.root = arguments.root;
  TERSUM_RETURN_IF_ERROR(check_links(*member, request));
  request.tensors = arguments.tensors;
  request.parts = arguments.parts;
  name_sites(*member, arguments, options, request);
  if (options.residual != nullptr || options.bias != nullptr) {
    request.added = {options.residual, options.bias, std::max<size_t>(options.bias_count, 1)};
  }
  request.timeout_ms = options.timeout_ms > 0 ? options.timeout_ms : default_timeout_ms;
  Progress& progress = *member->progress;
  request.start_ns = progress.clock().now_ns();
  const std::lock_guard lock(member->mutex);
  if (member->closed) return member->refusal;
  request.call = member->keyed ? key : member->next_call++;
  if (request.codec->is_random()) {
    const uint64_t site = own_site(arguments);
    const uint64_t number =
        site != 0 ? member->rounding_calls.next(site, request.call) : request.call;
    const int rank = member->shown_rank(member->rank);
    request.rounding = rounding_key(member->rounding_seed, rank, number);
  }
  std::shared_ptr<Operation> operation = take_operation(*member);
  operation->prepare(member, request, on_done, context);
  CallCounters::process().count_started();
  if (async) {
    progress.submit_async(operation);
  } else {
    progress.submit(operation);
  }
  return operation;
}

Status Operation::wait(int64_t timeout_ms) {
  constexpr int64_t kNsPerMs = 1'000'000;
  // Bytes that the carrier has not taken yet leave while this caller still drives; the peers wait
  // for them. Bounded, because a peer may have stopped reading.
  constexpr int64_t kDrainNs = 1'000 * kNsPerMs;
  if (!done()) {
    // The operation ends itself at its deadline, so an unbounded wait is bounded.
    const int64_t timeout_ns = timeout_ms < 0 ? INT64_MAX : deadline_after_ms(0, timeout_ms);
    const std::shared_ptr<Progress> progress = member_->progress;
    if (!progress->wait_done(*this, timeout_ns)) {
      return {StatusCode::kTimeout, "the call is still in flight after waiting " +
                                        std::to_string(timeout_ms) +
                                        " ms; its buffers stay in use until it ends"};
    }
    progress->drain(kDrainNs);
  }
  return status_;
}

}  // namespace tersum
