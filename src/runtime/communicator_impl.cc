#include "runtime/communicator_impl.h"

#include <algorithm>
#include <tuple>

#include "plan/host_topology.h"
#include "runtime/group_id.h"
#include "runtime/rendezvous.h"
#include "runtime/tuning/list_sample.h"

namespace tersum {
namespace {

// A part of a group on a topology has no ranks outside it that hand messages on: all its own must
// be neighbours.
Status check_wires(const Member& member, const std::vector<std::tuple<int64_t, int>>& part) {
  if (member.topology == nullptr) return {};
  for (const auto& [key_a, a] : part) {
    for (const auto& [key_b, b] : part) {
      if (member.topology->adjacent(a, b)) continue;
      return unsupported("ranks " + std::to_string(a) + " and " + std::to_string(b) +
                         " would be in one part, but topology " + member.topology->name +
                         " has no link between them; split into parts of neighbours");
    }
  }
  return {};
}

// No call can start any more. What has started is in the node's inbox already: it begins, and ends,
// before whatever is posted from now on.
void refuse_calls(Member& member, const Status& reason) {
  const std::lock_guard lock(member.mutex);
  member.closed = true;
  member.refusal = member.poison.ok() ? reason : member.poison;
}

// Operations refer to their member; that circle ends here.
void empty_pool(Member& member) {
  const std::lock_guard lock(member.mutex);
  member.pool.clear();
}

}  // namespace

CommunicatorImpl::CommunicatorImpl(std::shared_ptr<Progress> progress,
                                   std::shared_ptr<Member> member, CommunicatorOptions options,
                                   bool admitted)
    : progress_(std::move(progress)),
      member_(std::move(member)),
      options_(std::move(options)),
      admitted_(admitted),
      lanes_(progress_, member_),
      scratch_(
          std::make_shared<ScratchPool>(CoalescedCall::kBucketBytes, CoalescedCall::kInFlight)) {}

CommunicatorImpl::~CommunicatorImpl() { close(); }

Status CommunicatorImpl::run(const CallArguments& arguments, const CallOptions& call_options) {
  Result<Settled> settled = settle(arguments, call_options);
  if (!settled.ok()) return settled.status();
  auto operation = start_settled(arguments, *settled, false);
  if (!operation.ok()) return operation.status();
  return operation.value()->wait(-1);
}

Result<std::shared_ptr<Operation>> CommunicatorImpl::start_settled(const CallArguments& arguments,
                                                                   Settled& settled, bool async) {
  CallArguments taught = arguments;
  taught.teaches = settled.teaches;
  auto operation =
      start_call(member_, taught, settled.options, options_.timeout_ms, 0, async, nullptr, nullptr);
  settled.settling.reset();  // from here on the call itself is in flight
  return operation;
}

Status CommunicatorImpl::run_settled(const CallArguments& arguments,
                                     const CallOptions& call_options) {
  auto operation =
      start_call(member_, arguments, call_options, options_.timeout_ms, 0, false, nullptr, nullptr);
  if (!operation.ok()) return operation.status();
  return operation.value()->wait(-1);
}

Work CommunicatorImpl::start(const CallArguments& arguments, const CallOptions& call_options) {
  Result<Settled> settled = settle(arguments, call_options);
  if (!settled.ok()) return Work(std::make_shared<FailedWork>(settled.status()));
  auto operation = start_settled(arguments, *settled, !call_options.attended);
  if (!operation.ok()) return Work(std::make_shared<FailedWork>(operation.status()));
  return Work(std::move(operation).value());
}

Work CommunicatorImpl::start_coalesced(std::span<const TensorRef> tensors, DataType type,
                                       ReduceOp op, const CallOptions& call_options) {
  // What is left open is settled for a bucket, which is what most of them will be.
  size_t count = 0;
  for (const TensorRef& tensor : tensors) {
    count = std::min(count + tensor.count, CoalescedCall::kBucketBytes / element_bytes(type));
  }
  CallArguments bucket{Collective::kAllReduce, nullptr, nullptr, count, type, op, 0};
  // Lists of other lengths are other sites.
  bucket.tensors = std::max<uint64_t>(list_values(tensors), 1);
  const Result<Settled> settled = settle(bucket, call_options, tensors);
  if (!settled.ok()) return Work(std::make_shared<FailedWork>(settled.status()));
  const std::shared_ptr<Member> lane = lanes_.everybody();
  if (lane == nullptr) return Work(std::make_shared<FailedWork>(left()));
  auto call = std::make_shared<CoalescedCall>(member_, lane, scratch_, tensors, type, op,
                                              settled.value().options);
  const Status started = call->start(options_.timeout_ms);
  if (!started.ok()) return Work(std::make_shared<FailedWork>(started));
  return Work(std::move(call));
}

Status CommunicatorImpl::left() const {
  const std::lock_guard lock(member_->mutex);
  return member_->closed ? member_->refusal : Status();
}

void CommunicatorImpl::abort(std::string_view reason) {
  const Status status(StatusCode::kAborted, "aborted: " + std::string(reason));
  // Held while the task is posted: close() runs what was posted before it lets the engine go. While
  // it is closing there is nothing left to abort.
  const std::unique_lock close_lock(close_mutex_, std::try_to_lock);
  if (!close_lock.owns_lock() || closed_) return;
  // The poison is in force when abort() returns; the notices leave with the next round.
  {
    const std::lock_guard lock(member_->mutex);
    if (member_->poison.ok()) member_->poison = status;
  }
  progress_->post_async([member = member_, lanes = lanes_.list(), status](Node& node) {
    for (const auto& lane : lanes) node.abort_member(*lane, status);
    node.abort_member(*member, status);
  });
}

void CommunicatorImpl::close() {
  const std::lock_guard close_lock(close_mutex_);
  if (closed_) return;
  closed_ = true;
  const Status reason(StatusCode::kClosed, "this communicator is closed; make a new one");
  // First of all: a call that started behind the last task below would be the engine's own, and
  // with it the engine would end on its own thread.
  refuse_calls(*member_, reason);
  const std::vector<std::shared_ptr<Member>> lanes = lanes_.shut();
  for (const auto& lane : lanes) refuse_calls(*lane, reason);
  progress_->drain_all();
  progress_->execute([&](Node& node) {
    for (const auto& lane : lanes) node.unregister_member(lane, reason);
    const uint64_t group = member_->group;
    node.unregister_member(member_, reason);
    if (admitted_ && !node.has_group(group)) node.transport().forget(group);
  });
  // What the ends of these calls have posted in turn refers to the engine: it runs before that
  // goes.
  if (!lanes.empty()) progress_->execute([](Node& /*node*/) {});
  for (const auto& lane : lanes) empty_pool(*lane);
  empty_pool(*member_);
}

CommunicatorStats CommunicatorImpl::stats() {
  CommunicatorStats sum;
  for (const auto& lane : lanes_.list()) add_stats(sum, *lane);
  add_stats(sum, *member_);
  return sum;
}

Result<Communicator> CommunicatorImpl::split(int color, int key) {
  struct Choice {
    int64_t color;
    int64_t key;
  };
  static_assert(sizeof(Choice) == 16);
  const auto size = static_cast<size_t>(member_->size());
  const Choice own{color, key};
  std::vector<Choice> choices(size);
  uint64_t split_number = 0;
  {
    const std::lock_guard lock(member_->mutex);
    split_number = splits_++;
  }
  CallOptions exact;
  exact.codec = "exact";
  CallArguments gather{Collective::kAllGather, &own, choices.data(), 2, DataType::kInt64,
                       ReduceOp::kSum,         0};
  TERSUM_RETURN_IF_ERROR(run(gather, exact));
  if (color < 0) return Communicator();
  std::vector<std::tuple<int64_t, int>> members;
  for (size_t i = 0; i < size; ++i) {
    if (choices[i].color == color) members.emplace_back(choices[i].key, static_cast<int>(i));
  }
  std::sort(members.begin(), members.end());
  TERSUM_RETURN_IF_ERROR(check_wires(*member_, members));
  std::vector<RankPlace> places;
  std::vector<int> old_ranks;
  std::vector<std::string> addresses;
  int new_rank = 0;
  for (const auto& [unused, old_rank] : members) {
    old_ranks.push_back(old_rank);
    if (!addresses_.empty()) addresses.push_back(addresses_[static_cast<size_t>(old_rank)]);
    if (old_rank == member_->rank) new_rank = static_cast<int>(places.size());
    RankPlace place;
    place.process = member_->places[static_cast<size_t>(old_rank)].process;
    place.local = member_->places[static_cast<size_t>(old_rank)].local;
    places.push_back(place);
  }
  const uint64_t group = derive_group_id(member_->group, split_number, color);
  std::vector<int> hosts = hosts_of_part(member_->host_of, old_ranks);
  std::vector<RankCarrier> carriers = carriers_of_part(member_->carriers, old_ranks);
  // As a group has them that met as one: the same messages, and a tuning that holds for both.
  const SliceLimits limits = slice_limits(options_, carriers);
  auto member = std::make_shared<Member>(progress_, group, new_rank, std::move(places), limits,
                                         false, topology_of_hosts(hosts));
  member->host_of = std::move(hosts);
  tell_carriers(*member, carriers);
  member->carriers = std::move(carriers);
  member->flatten.set_every(options_.flatten_every);
  member->rounding_seed = derive_group_id(member_->rounding_seed, split_number, color);
  progress_->execute([&](Node& node) { node.register_member(member); });
  // A part has no wires of its own to name: all its ranks are neighbours.
  CommunicatorOptions options = options_;
  options.topology.clear();
  auto impl = std::make_shared<CommunicatorImpl>(progress_, member, std::move(options), false);
  impl->set_tuning(std::move(addresses), rules_);
  return Communicator(std::move(impl));
}

}  // namespace tersum
