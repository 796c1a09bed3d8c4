// CoalescedCall: many tensors reduced as one: in buckets, several of them in flight.
//
// Small tensors follow one another in buckets of kBucketBytes, each beginning at a block of the
// codec so that none shares a scale with its neighbour. Large ones travel as calls of their own. A
// bucket's values are copied into pooled scratch and out of it, unless its tensors lie in memory as
// they would there, or the codec takes parts and they are not tiny: then they are read and written
// where they are, but for the last few values of a tensor that are no whole block. That is each
// rank's own affair: what travels is the same. The first bucket is an ordinary call of the
// communicator and thereby matched by order; its descriptor carries a checksum of all lengths, so
// ranks whose lists differ hear of it there. The others run in the lane of all ranks under keys
// made from its number.
//
// Thread safety: WorkImpl's part from any thread; buckets end on the progress role's thread, which
// unpacks them and starts the next. Invariants: outputs are written between start() and the end. At
// most kInFlight buckets hold scratch at a time, whatever the total.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "runtime/lanes.h"
#include "runtime/operation.h"
#include "runtime/scratch_pool.h"
#include "runtime/start_call.h"
#include "tersum/communicator.h"

namespace tersum {

class CoalescedCall final : public WorkImpl, public std::enable_shared_from_this<CoalescedCall> {
 public:
  // A bucket stays in L2 between packing and encoding.
  static constexpr size_t kBucketBytes = size_t{1} << 20;
  static constexpr size_t kInFlight = 2;
  // Of a mean part. Coding each by itself takes some 100 ns three times, as long as copying 2 KiB
  // into a bucket and out of it. 4 MB of exact values over loopback, by copies and apart: tensors
  // of 1 KiB 2.2 and 2.5 ms, of 2 KiB 2.0 and 2.0, of 4 KiB 1.9 and 1.7, of 40 KB 1.7 and 1.5;
  // int8 of 1 KiB 1.3 and 1.2, of 2 KiB 1.4 and 1.4, of 4 KiB 1.0 and 0.7, of 40 KB 0.8 and 0.5.
  static constexpr size_t kApartBytes = 2048;
  // From here on a copy costs more than a call.
  static constexpr size_t kDirectBytes = size_t{256} << 10;

  CoalescedCall(std::shared_ptr<Member> member, std::shared_ptr<Member> lane,
                std::shared_ptr<ScratchPool> scratch, std::span<const TensorRef> tensors,
                DataType type, ReduceOp op, const CallOptions& options);

  // What is wrong with a list, whatever its codec.
  static Status check(std::span<const TensorRef> tensors, const CallOptions& options);

  // kInvalidArgument and kUnsupported: nothing was started.
  Status start(int64_t default_timeout_ms);

  [[nodiscard]] bool done() const override { return done_.load(std::memory_order_acquire); }
  Status wait(int64_t timeout_ms) override;

 private:
  // A run of order_: the tensors of one bucket.
  struct Bucket {
    uint32_t first = 0;
    uint32_t last = 0;
    size_t values = 0;  // with padding
    bool direct = false;
  };
  // What is in flight. Its address is the context of its call's end.
  struct Slot {
    CoalescedCall* call = nullptr;
    size_t bucket = 0;
    bool apart = false;   // its tensors are read and written in parts, where they are
    bool packed = false;  // values were copied to scratch: of those tensors what is no whole block
    std::vector<ArrayPart> parts;
    ScratchPool::Block scratch;
    std::shared_ptr<Operation> operation;
    bool idle = false;  // its bucket ended before the call had started
  };

  void make_buckets(size_t block);
  [[nodiscard]] uint64_t make_checksum() const;
  void launch(Slot& slot);
  Slot* take_idle();
  [[nodiscard]] size_t padded_count(const TensorRef& tensor) const;
  [[nodiscard]] bool lies_packed(const Bucket& bucket) const;
  [[nodiscard]] bool can_lie_apart(const Bucket& bucket) const;
  // Where a tensor's values are in a bucket that is read and written in parts.
  struct TensorPlace {
    const TensorRef* tensor = nullptr;
    size_t begin = 0;  // of the bucket's values; to rest-1 they are the tensor's own
    size_t rest = 0;   // to end-1 they are copies,
    size_t end = 0;
    bool joins = false;  // in one part with the copies before
    [[nodiscard]] bool copied() const { return end > rest; }
  };
  template <class Visit>
  void walk_parts(const Bucket& bucket, const Visit& visit) const;
  // What becomes of such a bucket.
  struct PartCount {
    size_t parts = 0;
    size_t values_in_place = 0;
    bool copies = false;  // some of its values
  };
  [[nodiscard]] PartCount count_parts(const Bucket& bucket) const;
  [[nodiscard]] size_t values_in_place(const TensorRef& tensor, bool apart) const;
  void list_parts(const Bucket& bucket, Slot& slot) const;
  void place_values(const Bucket& bucket, Slot& slot, CallArguments& arguments);
  void pack(const Bucket& bucket, bool apart, std::byte* to) const;
  void unpack(const Bucket& bucket, bool apart, const std::byte* from) const;
  static void on_bucket_end(void* slot, const Status& status);
  void bucket_ended(Slot& slot, const Status& status);
  void end_others(const Status& status);
  void finish_if_over();

  const std::shared_ptr<Member> member_;
  const std::shared_ptr<Member> lane_;
  const std::shared_ptr<ScratchPool> scratch_;
  const std::vector<TensorRef> tensors_;
  const DataType type_;
  const ReduceOp op_;
  const std::string codec_;
  const uint64_t site_;  // digest of its name; 0: it has none
  CallOptions options_;
  int64_t deadline_ns_ = 0;
  size_t block_ = 1;
  bool takes_parts_ = false;  // as Codec's
  std::vector<uint32_t> order_;
  std::vector<Bucket> buckets_;
  uint64_t checksum_ = 0;  // of all lengths

  // All below, but for what a slot says of where values lie, which is its bucket's.
  std::mutex mutex_;
  std::array<Slot, kInFlight> slots_;
  size_t next_ = 0;
  bool started_ = false;  // the caller's thread is through with launching
  size_t in_flight_ = 0;
  uint64_t first_call_ = 0;  // the first bucket's number
  Status status_;
  std::shared_ptr<CoalescedCall> self_;  // until the end: a dropped handle cancels nothing
  std::atomic<bool> done_{false};
};

}  // namespace tersum
