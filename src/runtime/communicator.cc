#include "tersum/communicator.h"

#include "plan/host_topology.h"
#include "platform/environment.h"
#include "runtime/communicator_impl.h"
#include "runtime/deadline.h"
#include "runtime/environment_options.h"
#include "runtime/process_node.h"
#include "runtime/rendezvous.h"

namespace tersum {
namespace {

Status check_membership(int rank, int size, const CommunicatorOptions& options) {
  if (size < 1 || size > 65'535) {
    return invalid_argument("a group of " + std::to_string(size) +
                            " ranks is not possible; pass a size of 1..65535");
  }
  if (rank < 0 || rank >= size) {
    return invalid_argument("rank " + std::to_string(rank) + " is not in 0.." +
                            std::to_string(size - 1));
  }
  return check_options(options);
}

// The wires that the options name, or null.
Result<std::shared_ptr<const Topology>> read_topology(const CommunicatorOptions& options,
                                                      int size) {
  if (options.topology.empty()) return std::shared_ptr<const Topology>();
  // A name says nothing of how fast the links are.
  Result<std::shared_ptr<const Topology>> topology =
      open_topology(options.topology, kUnknownBytesPerSecond, 0);
  if (topology.ok() && topology.value()->ranks() != size) {
    return invalid_argument("topology " + topology.value()->name + " has " +
                            std::to_string(topology.value()->ranks()) + " ranks, the group " +
                            std::to_string(size) + "; pass a topology of this group");
  }
  return topology;
}

}  // namespace

bool Work::done() const { return impl_ == nullptr || impl_->done(); }

Status Work::wait(int64_t timeout_ms) {
  if (impl_ == nullptr) {
    return invalid_argument("this Work belongs to no call; use one returned by start_…");
  }
  return impl_->wait(timeout_ms);
}

Result<Communicator> create_on(const std::shared_ptr<Progress>& progress, int rank, int size,
                               Store& store, const CommunicatorOptions& options,
                               std::string_view name) {
  TERSUM_RETURN_IF_ERROR(check_membership(rank, size, options));
  auto topology = read_topology(options, size);
  if (!topology.ok()) return topology.status();
  auto rules = parse_tuning_rules(options.tuning_rules);
  if (!rules.ok()) return rules.status();
  const int64_t deadline = deadline_after_ms(progress->clock().now_ns(), options.timeout_ms);
  MeetingRequest request;
  request.name = std::string(name);
  request.index = rank;
  request.count = size;
  request.topology = topology.value().get();
  auto met = meet(*progress, store, request, options, deadline);
  if (!met.ok()) return met.status();
  const Meeting& meeting = met.value();
  TERSUM_RETURN_IF_ERROR(link_up(*progress, meeting, request, options, deadline));
  std::vector<RankPlace> places(static_cast<size_t>(size));
  const ProcessId self = meeting.processes[static_cast<size_t>(rank)];
  for (size_t i = 0; i < places.size(); ++i) {
    places[i].process = meeting.processes[i];
    places[i].local = meeting.processes[i] == self;
  }
  std::vector<int> hosts = meeting.host_of;
  auto wires = named_or_found(std::move(topology).value(), hosts);
  const SliceLimits limits = slice_limits(options, meeting.carriers);
  auto member = std::make_shared<Member>(progress, meeting.group, rank, std::move(places), limits,
                                         false, std::move(wires));
  member->host_of = std::move(hosts);
  tell_carriers(*member, meeting.carriers);
  member->carriers = meeting.carriers;
  member->flatten.set_every(options.flatten_every);
  member->rounding_seed = options.rounding_seed;
  progress->execute([&](Node& node) { node.register_member(member); });
  auto impl = std::make_shared<CommunicatorImpl>(progress, member, options, true);
  impl->set_tuning(meeting.addresses, std::move(rules).value());
  return Communicator(std::move(impl));
}

Result<Communicator> Communicator::create(int rank, int size, const std::shared_ptr<Store>& store,
                                          const CommunicatorOptions& options,
                                          std::string_view name) {
  TERSUM_RETURN_IF_ERROR(check_membership(rank, size, options));
  if (store == nullptr) return invalid_argument("store is null; pass open_store(\"tcp://…\", …)");
  Result<CommunicatorOptions> from_environment = with_environment(options);
  if (!from_environment.ok()) return from_environment.status();
  CommunicatorOptions complete = std::move(from_environment).value();
  TERSUM_RETURN_IF_ERROR(check_membership(rank, size, complete));
  auto acquired = acquire_process_node(complete, rank, size);
  if (!acquired.ok()) return acquired.status();
  if (complete.tuning_rules.empty()) {
    complete.tuning_rules = environment_variable("TERSUM_TUNE").value_or("");
  }
  Result<Communicator> made = create_on(acquired.value(), rank, size, *store, complete, name);
  if (made.ok() && complete.tune_at_start) TERSUM_RETURN_IF_ERROR(made.value().tune());
  return made;
}

Status no_communicator() {
  return {StatusCode::kClosed, "this Communicator is empty (a negative color in split)"};
}

int Communicator::rank() const { return impl_ ? impl_->member().rank : -1; }
int Communicator::size() const { return impl_ ? impl_->member().size() : 0; }
std::vector<int> Communicator::hosts() const {
  return impl_ ? impl_->member().host_of : std::vector<int>();
}

#define TERSUM_RUN(arguments, options) \
  return impl_ ? impl_->run(arguments, options) : no_communicator()
#define TERSUM_START(arguments, options)          \
  return impl_ ? impl_->start(arguments, options) \
               : Work(std::make_shared<FailedWork>(no_communicator()))

Status Communicator::all_reduce(const void* input, void* output, size_t count, DataType type,
                                ReduceOp op, const CallOptions& options) {
  TERSUM_RUN((CallArguments{Collective::kAllReduce, input, output, count, type, op, 0}), options);
}

Work Communicator::start_all_reduce(const void* input, void* output, size_t count, DataType type,
                                    ReduceOp op, const CallOptions& options) {
  TERSUM_START((CallArguments{Collective::kAllReduce, input, output, count, type, op, 0}), options);
}

Status Communicator::all_reduce_coalesced(std::span<const TensorRef> tensors, DataType type,
                                          ReduceOp op, const CallOptions& options) {
  if (!impl_) return no_communicator();
  CallOptions attended = options;
  attended.attended = true;
  return impl_->start_coalesced(tensors, type, op, attended).wait();
}

Work Communicator::start_all_reduce_coalesced(std::span<const TensorRef> tensors, DataType type,
                                              ReduceOp op, const CallOptions& options) {
  return impl_ ? impl_->start_coalesced(tensors, type, op, options)
               : Work(std::make_shared<FailedWork>(no_communicator()));
}

Status Communicator::reduce_scatter(const void* input, void* output, size_t count, DataType type,
                                    ReduceOp op, const CallOptions& options) {
  TERSUM_RUN((CallArguments{Collective::kReduceScatter, input, output, count, type, op, 0}),
             options);
}

Work Communicator::start_reduce_scatter(const void* input, void* output, size_t count,
                                        DataType type, ReduceOp op, const CallOptions& options) {
  TERSUM_START((CallArguments{Collective::kReduceScatter, input, output, count, type, op, 0}),
               options);
}

Status Communicator::all_gather(const void* input, void* output, size_t count, DataType type,
                                const CallOptions& options) {
  TERSUM_RUN((CallArguments{Collective::kAllGather, input, output, count, type, ReduceOp::kSum, 0}),
             options);
}

Work Communicator::start_all_gather(const void* input, void* output, size_t count, DataType type,
                                    const CallOptions& options) {
  TERSUM_START(
      (CallArguments{Collective::kAllGather, input, output, count, type, ReduceOp::kSum, 0}),
      options);
}

Status Communicator::broadcast(void* data, size_t count, DataType type, int root,
                               const CallOptions& options) {
  TERSUM_RUN((CallArguments{Collective::kBroadcast, data, data, count, type, ReduceOp::kSum, root}),
             options);
}

Work Communicator::start_broadcast(void* data, size_t count, DataType type, int root,
                                   const CallOptions& options) {
  TERSUM_START(
      (CallArguments{Collective::kBroadcast, data, data, count, type, ReduceOp::kSum, root}),
      options);
}

Status Communicator::all_to_all(const void* input, void* output, size_t count, DataType type,
                                const CallOptions& options) {
  TERSUM_RUN((CallArguments{Collective::kAllToAll, input, output, count, type, ReduceOp::kSum, 0}),
             options);
}

Work Communicator::start_all_to_all(const void* input, void* output, size_t count, DataType type,
                                    const CallOptions& options) {
  TERSUM_START(
      (CallArguments{Collective::kAllToAll, input, output, count, type, ReduceOp::kSum, 0}),
      options);
}

Status Communicator::gather(const void* input, void* output, size_t count, DataType type, int root,
                            const CallOptions& options) {
  TERSUM_RUN((CallArguments{Collective::kGather, input, output, count, type, ReduceOp::kSum, root}),
             options);
}

Work Communicator::start_gather(const void* input, void* output, size_t count, DataType type,
                                int root, const CallOptions& options) {
  TERSUM_START(
      (CallArguments{Collective::kGather, input, output, count, type, ReduceOp::kSum, root}),
      options);
}

Status Communicator::scatter(const void* input, void* output, size_t count, DataType type, int root,
                             const CallOptions& options) {
  TERSUM_RUN(
      (CallArguments{Collective::kScatter, input, output, count, type, ReduceOp::kSum, root}),
      options);
}

Work Communicator::start_scatter(const void* input, void* output, size_t count, DataType type,
                                 int root, const CallOptions& options) {
  TERSUM_START(
      (CallArguments{Collective::kScatter, input, output, count, type, ReduceOp::kSum, root}),
      options);
}

Status Communicator::barrier(int64_t timeout_ms) {
  CallOptions options;
  options.codec = "exact";
  options.timeout_ms = timeout_ms;
  TERSUM_RUN((CallArguments{}), options);
}

Work Communicator::start_barrier(int64_t timeout_ms, bool attended) {
  CallOptions options;
  options.codec = "exact";
  options.timeout_ms = timeout_ms;
  options.attended = attended;
  TERSUM_START((CallArguments{}), options);
}

Result<Communicator> Communicator::split(int color, int key) {
  if (!impl_) return no_communicator();
  return impl_->split(color, key);
}

void Communicator::abort(std::string_view reason) {
  if (impl_) impl_->abort(reason);
}

void Communicator::close() {
  if (impl_) impl_->close();
}

Status Communicator::tune(bool fresh) { return impl_ ? impl_->tune(fresh) : no_communicator(); }

std::optional<LinkSpeed> Communicator::link_speed() const {
  return impl_ ? impl_->link_speed() : std::nullopt;
}

Result<PathChoice> Communicator::choose(Collective collective, size_t count, DataType type,
                                        ReduceOp op, const CallOptions& options) const {
  if (!impl_) return no_communicator();
  return impl_->choose({collective, nullptr, nullptr, count, type, op, 0}, options);
}

CommunicatorStats Communicator::stats() const {
  return impl_ ? impl_->stats() : CommunicatorStats{};
}

}  // namespace tersum
