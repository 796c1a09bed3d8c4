#include "runtime/coalesced_call.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <utility>

#include "base/bytes.h"
#include "base/check.h"
#include "base/copy_bytes.h"
#include "codec/codec.h"
#include "runtime/deadline.h"
#include "runtime/group_id.h"

namespace tersum {
namespace {

// Keys of the later buckets: the first one's number above, the bucket below.
constexpr int kBucketBits = 20;
constexpr int64_t kNsPerMs = 1'000'000;

}  // namespace

CoalescedCall::CoalescedCall(std::shared_ptr<Member> member, std::shared_ptr<Member> lane,
                             std::shared_ptr<ScratchPool> scratch,
                             std::span<const TensorRef> tensors, DataType type, ReduceOp op,
                             const CallOptions& options)
    : member_(std::move(member)),
      lane_(std::move(lane)),
      scratch_(std::move(scratch)),
      tensors_(tensors.begin(), tensors.end()),
      type_(type),
      op_(op),
      codec_(options.codec),
      site_(options.site.empty() ? 0 : text_digest(options.site)),
      options_(options) {
  options_.codec = codec_;
  options_.site = {};
}

Status CoalescedCall::check(std::span<const TensorRef> tensors, const CallOptions& options) {
  if (options.residual != nullptr || options.bias != nullptr || options.bias_count != 0) {
    return invalid_argument(
        "a residual or a bias is added in all_reduce of one array, not in all_reduce_coalesced; "
        "leave them out");
  }
  const size_t count_max = std::numeric_limits<size_t>::max() / 64;
  size_t total = 0;
  for (size_t i = 0; i < tensors.size(); ++i) {
    const TensorRef& tensor = tensors[i];
    if (tensor.count == 0) continue;
    if (tensor.input == nullptr || tensor.output == nullptr) {
      return invalid_argument("tensor " + std::to_string(i) + " of all_reduce_coalesced, of " +
                              std::to_string(tensor.count) +
                              " elements, got a null buffer; pass memory for input and output");
    }
    if (tensor.count > count_max - total) {
      return invalid_argument("tensor " + std::to_string(i) + " of all_reduce_coalesced has " +
                              std::to_string(tensor.count) +
                              " elements, which do not fit into memory; pass numbers of elements");
    }
    total += tensor.count;
  }
  if (tensors.size() > std::numeric_limits<uint32_t>::max()) {
    return invalid_argument("all_reduce_coalesced takes at most 2^32 - 1 tensors");
  }
  if (options.timeout_ms < 0) {
    return invalid_argument("timeout_ms is " + std::to_string(options.timeout_ms) +
                            "; pass a positive number, or 0 for the communicator's");
  }
  return {};
}

void CoalescedCall::make_buckets(size_t block) {
  block_ = block;
  const size_t value_bytes = element_bytes(type_);
  const size_t bucket_values = scratch_->block_bytes() / value_bytes;
  std::vector<uint32_t> direct;
  Bucket open;
  const auto close = [&] {
    if (open.last > open.first) buckets_.push_back(open);
    open = {open.last, open.last, 0, false};
  };
  for (uint32_t i = 0; i < tensors_.size(); ++i) {
    const size_t count = tensors_[i].count;
    if (count == 0) continue;
    if (count * value_bytes >= kDirectBytes) {
      direct.push_back(i);
      continue;
    }
    const size_t padded = padded_count(tensors_[i]);
    if (open.values + padded > bucket_values) close();
    order_.push_back(i);
    ++open.last;
    open.values += padded;
  }
  close();
  for (const uint32_t i : direct) {
    const auto at = static_cast<uint32_t>(order_.size());
    order_.push_back(i);
    buckets_.push_back({at, at + 1, tensors_[i].count, true});
  }
  // A list without a value is still a call that the others must be in.
  if (buckets_.empty()) buckets_.push_back({0, 0, 0, false});
}

// The number of tensors in the upper 24 bits, so that a disagreement can name it; 0 is for calls of
// one array.
uint64_t CoalescedCall::make_checksum() const {
  constexpr int kHashBits = 40;
  std::vector<int64_t> counts;
  counts.reserve(tensors_.size());
  for (const TensorRef& tensor : tensors_) counts.push_back(static_cast<int64_t>(tensor.count));
  const uint64_t hash = device_group_id(0, counts) >> (64 - kHashBits);
  const uint64_t number = std::min<uint64_t>(tensors_.size(), (1U << 24) - 1);
  return number << kHashBits | std::max<uint64_t>(hash, 1);
}

Status CoalescedCall::start(int64_t default_timeout_ms) {
  TERSUM_RETURN_IF_ERROR(check(tensors_, options_));
  const Result<const Codec*> codec = find_codec(codec_, type_, op_);
  if (!codec.ok()) return codec.status();
  takes_parts_ = codec.value()->takes_parts();
  make_buckets(codec.value()->block());
  checksum_ = make_checksum();
  if (buckets_.size() >= size_t{1} << kBucketBits) {
    return invalid_argument(
        "all_reduce_coalesced got more than a million large tensors at once; "
        "pass fewer");
  }
  const int64_t timeout_ms = options_.timeout_ms > 0 ? options_.timeout_ms : default_timeout_ms;
  deadline_ns_ = deadline_after_ms(member_->progress->clock().now_ns(), timeout_ms);
  self_ = shared_from_this();
  for (Slot& slot : slots_) {
    slot.call = this;
    launch(slot);
  }
  while (Slot* const slot = take_idle()) launch(*slot);
  return {};
}

// A slot whose bucket has ended already. Until there is none, whoever ends buckets launches none:
// those of one call are submitted in their order, and before start() returns and the caller may
// start another call, whose buckets would stand before these at their sites.
CoalescedCall::Slot* CoalescedCall::take_idle() {
  const std::lock_guard lock(mutex_);
  for (Slot& slot : slots_) {
    if (std::exchange(slot.idle, false)) return &slot;
  }
  started_ = true;
  return nullptr;
}

size_t CoalescedCall::padded_count(const TensorRef& tensor) const {
  return (tensor.count + block_ - 1) / block_ * block_;
}

// Whether the bucket's inputs, and its outputs, lie in memory as pack() would put them: then copies
// of them are of no use. Gradients often are views of one buffer.
bool CoalescedCall::lies_packed(const Bucket& bucket) const {
  const size_t value_bytes = element_bytes(type_);
  const TensorRef& first = tensors_[order_[bucket.first]];
  const auto* const input = static_cast<const std::byte*>(first.input);
  const auto* const output = static_cast<const std::byte*>(first.output);
  size_t bytes = 0;
  for (uint32_t i = bucket.first; i < bucket.last; ++i) {
    const TensorRef& tensor = tensors_[order_[i]];
    if (tensor.count != padded_count(tensor) || tensor.input != input + bytes ||
        tensor.output != output + bytes) {
      return false;
    }
    bytes += tensor.count * value_bytes;
  }
  const auto in = reinterpret_cast<uintptr_t>(input);
  const auto out = reinterpret_cast<uintptr_t>(output);
  if (in % value_bytes != 0 || out % value_bytes != 0) return false;
  // One tensor's output may be another one's input only when all have been read.
  return in == out || in + bytes <= out || out + bytes <= in;
}

// How many of a tensor's first values are not copied: all whole blocks where tensors lie apart.
size_t CoalescedCall::values_in_place(const TensorRef& tensor, bool apart) const {
  return apart ? tensor.count / block_ * block_ : 0;
}

void CoalescedCall::pack(const Bucket& bucket, bool apart, std::byte* to) const {
  const size_t value_bytes = element_bytes(type_);
  for (uint32_t i = bucket.first; i < bucket.last; ++i) {
    const TensorRef& tensor = tensors_[order_[i]];
    const size_t skipped = values_in_place(tensor, apart) * value_bytes;
    const size_t bytes = tensor.count * value_bytes;
    const size_t padded = padded_count(tensor) * value_bytes;
    if (bytes > skipped) {
      copy_bytes(to + skipped, static_cast<const std::byte*>(tensor.input) + skipped,
                 bytes - skipped);
      std::memset(to + bytes, 0, padded - bytes);
    }
    to += padded;
  }
}

void CoalescedCall::unpack(const Bucket& bucket, bool apart, const std::byte* from) const {
  const size_t value_bytes = element_bytes(type_);
  for (uint32_t i = bucket.first; i < bucket.last; ++i) {
    const TensorRef& tensor = tensors_[order_[i]];
    const size_t skipped = values_in_place(tensor, apart) * value_bytes;
    const size_t bytes = tensor.count * value_bytes;
    if (bytes > skipped) {
      copy_bytes(static_cast<std::byte*>(tensor.output) + skipped, from + skipped, bytes - skipped);
    }
    from += padded_count(tensor) * value_bytes;
  }
}

// Whether a call may read and write the bucket's tensors where they are, in an order of its own.
bool CoalescedCall::can_lie_apart(const Bucket& bucket) const {
  const size_t value_bytes = element_bytes(type_);
  std::vector<std::pair<uintptr_t, uintptr_t>> ranges;
  ranges.reserve(2 * size_t{bucket.last - bucket.first});
  for (uint32_t i = bucket.first; i < bucket.last; ++i) {
    const TensorRef& tensor = tensors_[order_[i]];
    const auto in = reinterpret_cast<uintptr_t>(tensor.input);
    const auto out = reinterpret_cast<uintptr_t>(tensor.output);
    if (in % value_bytes != 0 || out % value_bytes != 0) return false;
    ranges.emplace_back(in, in + tensor.count * value_bytes);
    if (out != in) ranges.emplace_back(out, out + tensor.count * value_bytes);
  }
  std::ranges::sort(ranges);
  // One tensor's output may be another one's input only when all have been read. (That two inputs
  // are one array would do no harm; it is too rare to be told apart.)
  return std::ranges::adjacent_find(ranges, [](const auto& one, const auto& next) {
           return next.first < one.second;
         }) == ranges.end();
}

// Calls visit(place) for each tensor of a bucket that is read and written in parts: its whole
// blocks where they are, and in scratch what is left of it, in one part with neighbours that have
// none.
template <class Visit>
void CoalescedCall::walk_parts(const Bucket& bucket, const Visit& visit) const {
  TensorPlace place;
  bool copied = false;
  for (uint32_t i = bucket.first; i < bucket.last; ++i) {
    place.tensor = &tensors_[order_[i]];
    place.rest = place.begin + values_in_place(*place.tensor, true);
    place.end = place.begin + padded_count(*place.tensor);
    place.joins = copied && place.rest == place.begin;
    visit(std::as_const(place));
    copied = place.copied() || place.joins;
    place.begin = place.end;
  }
}

CoalescedCall::PartCount CoalescedCall::count_parts(const Bucket& bucket) const {
  PartCount counted;
  walk_parts(bucket, [&](const TensorPlace& place) {
    if (place.rest > place.begin) ++counted.parts;
    if (place.copied() && !place.joins) ++counted.parts;
    counted.values_in_place += place.rest - place.begin;
    counted.copies |= place.copied();
  });
  return counted;
}

void CoalescedCall::list_parts(const Bucket& bucket, Slot& slot) const {
  walk_parts(bucket, [&](const TensorPlace& place) {
    if (place.rest > place.begin) {
      slot.parts.push_back({static_cast<const std::byte*>(place.tensor->input),
                            static_cast<std::byte*>(place.tensor->output), place.begin,
                            place.rest});
    }
    if (!place.copied()) return;
    if (place.joins) {
      slot.parts.back().end = place.end;
      return;
    }
    std::byte* const copy = slot.scratch.get() + place.rest * element_bytes(type_);
    slot.parts.push_back({copy, copy, place.rest, place.end});
  });
}

// Where the bucket's call finds its values: in the tensors if that is possible, else in scratch.
void CoalescedCall::place_values(const Bucket& bucket, Slot& slot, CallArguments& arguments) {
  slot.parts.clear();
  const bool lies = bucket.direct || (bucket.values > 0 && lies_packed(bucket));
  slot.apart = false;
  slot.packed = !lies && bucket.values > 0;
  if (slot.packed && takes_parts_) {
    const PartCount counted = count_parts(bucket);
    const size_t bytes_in_place = counted.values_in_place * element_bytes(type_);
    slot.apart = bytes_in_place >= counted.parts * kApartBytes && can_lie_apart(bucket);
    slot.packed = !slot.apart || counted.copies;
  }
  if (slot.packed || bucket.values == 0) {
    if (!slot.scratch) slot.scratch = scratch_->take();
    pack(bucket, slot.apart, slot.scratch.get());
    arguments.input = arguments.output = slot.scratch.get();
  }
  if (!lies && !slot.apart) return;
  arguments.input = tensors_[order_[bucket.first]].input;
  arguments.output = tensors_[order_[bucket.first]].output;
  if (slot.apart) list_parts(bucket, slot);
  arguments.parts = slot.parts;
}

// Starts the next bucket, if there is one, in this idle slot.
void CoalescedCall::launch(Slot& slot) {
  {
    const std::lock_guard lock(mutex_);
    if (!status_.ok() || next_ == buckets_.size()) return;
    slot.bucket = next_++;
    ++in_flight_;
  }
  const Bucket& bucket = buckets_[slot.bucket];
  CallArguments arguments{Collective::kAllReduce, nullptr, nullptr, bucket.values, type_, op_, 0};
  place_values(bucket, slot, arguments);
  const bool first = slot.bucket == 0;
  arguments.tensors = checksum_;
  arguments.site = site_;
  arguments.bucket = static_cast<uint32_t>(slot.bucket + 1);
  const int64_t left_ns = deadline_ns_ - member_->progress->clock().now_ns();
  CallOptions options = options_;
  options.timeout_ms = std::max<int64_t>(left_ns / kNsPerMs, 1);
  Status failed;
  {
    // Held while the call starts: its end may come at once, and finds everything in place.
    const std::lock_guard lock(mutex_);
    const uint64_t key = first_call_ << kBucketBits | slot.bucket;
    auto started = start_call(first ? member_ : lane_, arguments, options, 0, key,
                              !options.attended, on_bucket_end, &slot);
    if (started.ok()) {
      slot.operation = std::move(started).value();
      if (first) first_call_ = slot.operation->request().call;
      return;
    }
    failed = started.status();
  }
  bucket_ended(slot, failed);
}

void CoalescedCall::on_bucket_end(void* slot, const Status& status) {
  auto* const ended = static_cast<Slot*>(slot);
  ended->call->bucket_ended(*ended, status);
}

void CoalescedCall::bucket_ended(Slot& slot, const Status& status) {
  const Bucket& bucket = buckets_[slot.bucket];
  if (status.ok() && slot.packed) unpack(bucket, slot.apart, slot.scratch.get());
  bool first_failure = false;
  bool launches = true;
  {
    const std::lock_guard lock(mutex_);
    launches = started_;
    slot.idle = !started_;
    slot.operation.reset();
    first_failure = !status.ok() && status_.ok();
    if (first_failure) status_ = status;
  }
  if (first_failure) end_others(status);
  if (launches) launch(slot);
  {
    const std::lock_guard lock(mutex_);
    --in_flight_;
  }
  finish_if_over();
}

// The other ranks have dropped, or will drop, the same call; what they did not start cannot end.
void CoalescedCall::end_others(const Status& status) {
  std::vector<std::shared_ptr<Operation>> others;
  {
    const std::lock_guard lock(mutex_);
    for (const Slot& slot : slots_) {
      if (slot.operation) others.push_back(slot.operation);
    }
  }
  if (others.empty()) return;
  member_->progress->post_async([others = std::move(others), status](Node& node) {
    for (const auto& operation : others) operation->fail(node, status);
  });
}

void CoalescedCall::finish_if_over() {
  std::shared_ptr<CoalescedCall> self;
  {
    const std::lock_guard lock(mutex_);
    const bool all_started = next_ == buckets_.size() || !status_.ok();
    if (in_flight_ > 0 || !all_started || done()) return;
    self = std::move(self_);
    for (Slot& slot : slots_) {
      if (slot.scratch) scratch_->give(std::move(slot.scratch));
    }
    done_.store(true, std::memory_order_release);
  }
}

Status CoalescedCall::wait(int64_t timeout_ms) {
  constexpr int64_t kDrainNs = 1'000 * kNsPerMs;  // as for a single call
  if (!done()) {
    const int64_t timeout_ns = timeout_ms < 0 ? INT64_MAX : deadline_after_ms(0, timeout_ms);
    const std::shared_ptr<Progress> progress = member_->progress;
    if (!progress->wait_until([this] { return done(); }, timeout_ns)) {
      return {StatusCode::kTimeout, "the call is still in flight after waiting " +
                                        std::to_string(timeout_ms) +
                                        " ms; its buffers stay in use until it ends"};
    }
    progress->drain(kDrainNs);
  }
  const std::lock_guard lock(mutex_);
  return status_;
}

}  // namespace tersum
