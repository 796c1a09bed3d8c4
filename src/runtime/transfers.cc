// Sends and receives: broadcasts in the lane of two ranks, matched by keys.
#include <string>

#include "runtime/communicator_impl.h"
#include "runtime/tuning/auto_codecs.h"

namespace tersum {
namespace {

// Which way (1 bit), tag (31 bits) and number of the transfer (32 bits): the same on both ends.
uint64_t transfer_key(int sender_place, int tag, uint32_t number) {
  return static_cast<uint64_t>(sender_place) << 63 | static_cast<uint64_t>(tag) << 32 | number;
}

}  // namespace

Work CommunicatorImpl::start_transfer(void* data, size_t count, DataType type, bool sends, int peer,
                                      int tag, const CallOptions& call_options) {
  const auto refuse = [](Status status) {
    return Work(std::make_shared<FailedWork>(std::move(status)));
  };
  const std::string what = sends ? "send" : "recv";
  if (peer < 0 || peer >= member_->size() || peer == member_->rank) {
    return refuse(invalid_argument(
        what + " with rank " + std::to_string(peer) + " is not possible; pass another rank than " +
        std::to_string(member_->rank) + " of 0.." + std::to_string(member_->size() - 1)));
  }
  if (!member_->is_neighbour(peer)) {
    return refuse(unsupported(what + " with rank " + std::to_string(peer) +
                              " is not possible on this topology, which has no link between it and "
                              "rank " +
                              std::to_string(member_->rank) + "; pass it on by way of others"));
  }
  if (tag < 0) {
    return refuse(invalid_argument(what + " got tag " + std::to_string(tag) + "; pass 0 or more"));
  }
  const std::shared_ptr<Member> lane = lanes_.pair(peer);
  if (lane == nullptr) return refuse(left());
  const int sender_place = sends ? lane->rank : 1 - lane->rank;
  CallArguments arguments{Collective::kBroadcast, data,        sends ? nullptr : data, count, type,
                          ReduceOp::kSum,         sender_place};
  arguments.keeps_data = sends;
  CallOptions options = call_options;
  // What the two could choose between has been measured for the whole group, if at all.
  if (is_auto(options.codec)) {
    const auto codecs = find_auto_codecs(options.codec);
    if (!codecs.ok()) return refuse(codecs.status());
    options.codec = "exact";
  }
  // One lock over number and start: a call that was refused uses up no number.
  const std::lock_guard lock(transfers_mutex_);
  uint32_t& number = transfers_[{peer, tag, sends}];
  auto operation =
      start_call(lane, arguments, options, options_.timeout_ms,
                 transfer_key(sender_place, tag, number), !options.attended, nullptr, nullptr);
  if (!operation.ok()) return refuse(operation.status());
  ++number;
  return Work(std::move(operation).value());
}

Status Communicator::send(const void* data, size_t count, DataType type, int to, int tag,
                          const CallOptions& options) {
  CallOptions attended = options;
  attended.attended = true;
  return start_send(data, count, type, to, tag, attended).wait();
}

Work Communicator::start_send(const void* data, size_t count, DataType type, int to, int tag,
                              const CallOptions& options) {
  if (!impl_) return Work(std::make_shared<FailedWork>(no_communicator()));
  return impl_->start_transfer(const_cast<void*>(data), count, type, true, to, tag, options);
}

Status Communicator::recv(void* data, size_t count, DataType type, int from, int tag,
                          const CallOptions& options) {
  CallOptions attended = options;
  attended.attended = true;
  return start_recv(data, count, type, from, tag, attended).wait();
}

Work Communicator::start_recv(void* data, size_t count, DataType type, int from, int tag,
                              const CallOptions& options) {
  if (!impl_) return Work(std::make_shared<FailedWork>(no_communicator()));
  return impl_->start_transfer(data, count, type, false, from, tag, options);
}

}  // namespace tersum
