// Communicator: a group of ranks that run collectives together.
//
// Thread safety: every method may be called from any thread; calls of one rank are matched with the
// other ranks' by the order in which they *start*, so threads that share a communicator must agree
// on that order among themselves (or use split). No method blocks past its deadline.
// Invariants: after a successful collective every rank holds identical bytes. Inputs are never
// written (an in-place buffer is undefined after an error). After any call has ended, in whatever
// way, nothing of tersum touches the caller's memory again. kDisagreement leaves the communicator
// usable; every other error of a collective poisons it, and later calls return that first cause.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tersum/data_type.h"
#include "tersum/options.h"
#include "tersum/status.h"
#include "tersum/store.h"

namespace tersum {

class CommunicatorImpl;
class WorkImpl;

// A collective in flight. Copyable handle; the buffers of the call must live until it has ended.
// Dropping the last handle does not cancel the call.
class Work {
 public:
  Work() = default;
  explicit Work(std::shared_ptr<WorkImpl> impl) : impl_(std::move(impl)) {}

  // True once the call has ended and every pointer of the caller's is retired. Never blocks.
  [[nodiscard]] bool done() const;
  // Waits for the end, moving data meanwhile, and returns the call's status. `timeout_ms` < 0 waits
  // for the call's own deadline; when `timeout_ms` passes first, kTimeout is returned and the call
  // goes on (its buffers stay in use).
  Status wait(int64_t timeout_ms = -1);

 private:
  std::shared_ptr<WorkImpl> impl_;
};

// What a communicator has done since it was made; sums over its calls.
struct CommunicatorStats {
  uint64_t calls = 0;
  uint64_t values = 0;           // elements handed in
  uint64_t wire_bytes_sent = 0;  // payload bytes that left this rank, headers not counted
  uint64_t wire_bytes_received = 0;
  double seconds = 0;  // from start to end of each call, summed
};

// One way in which a call can be made, and how long it is expected to take.
struct PathOption {
  std::string codec;
  PlanKind plan = PlanKind::kAuto;
  double seconds = 0;
};

// What a call takes, and why.
struct PathChoice {
  std::string codec;
  PlanKind plan = PlanKind::kAuto;
  double seconds = 0;  // expected; 0 where nothing was measured
  std::string reason;
  std::vector<PathOption> options;  // what was weighed, best first
};

// What tuning found of a group's links.
struct LinkSpeed {
  double latency_seconds = 0;   // of one hop, with what ranks do about it
  double bytes_per_second = 0;  // that a rank sends, over all its links together, while it receives
};

// One tensor of all_reduce_coalesced: `count` elements from `input` to `output`, which may be the
// same array.
struct TensorRef {
  const void* input = nullptr;
  void* output = nullptr;
  size_t count = 0;
};

class Communicator {
 public:
  // Joins the group of `size` ranks that meet in `store` under `name` (which must be new in that
  // store); blocks until all have joined or options.timeout_ms passed. Every rank passes the same
  // size, name and (agreed) options, and a rank of its own.
  static Result<Communicator> create(int rank, int size, const std::shared_ptr<Store>& store,
                                     const CommunicatorOptions& options = {},
                                     std::string_view name = "default");

  Communicator() = default;
  explicit Communicator(std::shared_ptr<CommunicatorImpl> impl) : impl_(std::move(impl)) {}

  [[nodiscard]] int rank() const;
  [[nodiscard]] int size() const;
  // The number of each rank's host, by rank; hosts are numbered as their first ranks come. Those
  // that the topology names, else what was found when the group met: processes with one boot id and
  // one network namespace are on one host. Calls that leave their plan open go by it.
  [[nodiscard]] std::vector<int> hosts() const;

  // Reduces `count` elements of `input` over all ranks into `output` on every rank; the two may be
  // the same array but not overlap otherwise. options.residual and options.bias are added to this
  // rank's contribution on its way. Errors: kInvalidArgument (codec, block), and those of the class
  // comment.
  Status all_reduce(const void* input, void* output, size_t count, DataType type, ReduceOp op,
                    const CallOptions& options = {});
  Work start_all_reduce(const void* input, void* output, size_t count, DataType type, ReduceOp op,
                        const CallOptions& options = {});

  // Reduces many tensors as one call: small ones travel together, so that a call's latency is paid
  // once per MiB instead of once per tensor. Every rank passes tensors of the same lengths in the
  // same order; each is reduced as all_reduce would, and with a quantizing codec begins a block of
  // its own, so a tensor shorter than a block costs a whole one on the wire. Tensors may not
  // overlap each other. After an error all outputs are undefined.
  Status all_reduce_coalesced(std::span<const TensorRef> tensors, DataType type, ReduceOp op,
                              const CallOptions& options = {});
  // `tensors` itself may go when this returns; the buffers that it names must live until the end.
  Work start_all_reduce_coalesced(std::span<const TensorRef> tensors, DataType type, ReduceOp op,
                                  const CallOptions& options = {});

  // `input` has size() * count elements; `output` receives the `count` elements of the reduction
  // that start at rank() * count.
  Status reduce_scatter(const void* input, void* output, size_t count, DataType type, ReduceOp op,
                        const CallOptions& options = {});
  Work start_reduce_scatter(const void* input, void* output, size_t count, DataType type,
                            ReduceOp op, const CallOptions& options = {});

  // `input` has `count` elements; `output` receives size() * count, in rank order. With a lossy
  // codec this rank's own part is what the others decode, too.
  Status all_gather(const void* input, void* output, size_t count, DataType type,
                    const CallOptions& options);
  Work start_all_gather(const void* input, void* output, size_t count, DataType type,
                        const CallOptions& options);

  // `data` of rank `root` arrives in `data` of every rank (with a lossy codec the root's becomes
  // what the others decode).
  Status broadcast(void* data, size_t count, DataType type, int root, const CallOptions& options);
  Work start_broadcast(void* data, size_t count, DataType type, int root,
                       const CallOptions& options);

  // Every rank has something of its own for every rank: part j of `input` (size() parts of `count`
  // elements) arrives at rank j, as part rank() of its `output`. The own part is what others would
  // decode, too. `input` and `output` may not overlap.
  Status all_to_all(const void* input, void* output, size_t count, DataType type,
                    const CallOptions& options);
  Work start_all_to_all(const void* input, void* output, size_t count, DataType type,
                        const CallOptions& options);

  // The `count` elements of every rank arrive at rank `root`, in rank order: its `output` has
  // size() * count elements; that of the others is not used and may be null.
  Status gather(const void* input, void* output, size_t count, DataType type, int root,
                const CallOptions& options);
  Work start_gather(const void* input, void* output, size_t count, DataType type, int root,
                    const CallOptions& options);

  // Part i of `input` of rank `root` (size() parts of `count` elements; that of the others is not
  // used and may be null) arrives in `output` of rank i.
  Status scatter(const void* input, void* output, size_t count, DataType type, int root,
                 const CallOptions& options);
  Work start_scatter(const void* input, void* output, size_t count, DataType type, int root,
                     const CallOptions& options);

  // From one rank to another: send() on one and recv() on the other with equal `tag`, count, type
  // and codec. Only these two take part, and they are matched by (sender, tag) in the order of
  // their starts, whatever else is in flight. A send ends when the receiver has come and all bytes
  // have been handed over, so two ranks that both send first wait for each other until the
  // deadline: use start_send() and start_recv() for exchanges. With a lossy codec the receiver gets
  // what it decodes, and the sender's `data` stays as it is; codec "auto" means "exact" here. `tag`
  // is 0 or more. kUnsupported on a topology that has no link between the two.
  Status send(const void* data, size_t count, DataType type, int to, int tag,
              const CallOptions& options);
  Work start_send(const void* data, size_t count, DataType type, int to, int tag,
                  const CallOptions& options);
  Status recv(void* data, size_t count, DataType type, int from, int tag,
              const CallOptions& options);
  Work start_recv(void* data, size_t count, DataType type, int from, int tag,
                  const CallOptions& options);

  // Returns when every rank has entered.
  Status barrier(int64_t timeout_ms = 0);
  // `attended` as in CallOptions.
  Work start_barrier(int64_t timeout_ms = 0, bool attended = false);

  // A communicator of the ranks that pass the same `color`, ordered by (`key`, old rank).
  // Collective over this communicator; blocks. A negative color takes part and gets an empty
  // communicator.
  Result<Communicator> split(int color, int key);

  // Ends all calls in flight with kAborted here, and on the other ranks as soon as they hear of it;
  // poisons the communicator. Never blocks; any thread, at any time.
  void abort(std::string_view reason);

  // Ends calls in flight like abort and releases the group's links. Idempotent. The destructor of
  // the last handle does the same.
  void close();

  [[nodiscard]] CommunicatorStats stats() const;

  // What calls with +flatten have learned of their sites' channels (CallOptions::site), those with
  // +clip:learned of their clips and those with "kmeans:K" of their levels, in bytes for
  // load_flatten; docs/wire-format.md. Equal on all ranks after equal calls. kInvalidArgument while
  // a call is in flight that learns.
  [[nodiscard]] Result<std::vector<std::byte>> save_flatten() const;
  // Puts saved states in place of those of the same sites: what a later run or a rank that joins
  // starts from. Every rank must load the same, between the same calls, or the next call is
  // kDisagreement. kInvalidArgument, and nothing has changed: a call is in flight, or `saved` is
  // not what save_flatten() returned.
  Status load_flatten(std::span<const std::byte> saved);
  // Every rank then has what rank `root` has learned, and nothing else: for ranks that joined late,
  // and after kDisagreement. Collective; blocks. kInvalidArgument on every rank if a call that
  // learns is in flight on `root`, on those where one is otherwise; other errors are a broadcast's.
  Status share_flatten(int root, int64_t timeout_ms = 0);
  // Forgets what a site has learned, or with nullopt all of them; on every rank, between the same
  // calls. kInvalidArgument while a call is in flight.
  Status reset_flatten(std::optional<std::string_view> site = std::nullopt);

  // What this rank's calls with +feedback have lost and not yet given back, in bytes for
  // load_feedback; docs/wire-format.md. Each rank has its own, as large as the float32 arrays of
  // its sites. kInvalidArgument while such a call is in flight.
  [[nodiscard]] Result<std::vector<std::byte>> save_feedback() const;
  // Puts that in place of all that is owed on this rank. kInvalidArgument, and nothing has changed:
  // a call is in flight, or `saved` is not what save_feedback() returned.
  Status load_feedback(std::span<const std::byte> saved);
  // Nothing is owed any more, on this rank. kInvalidArgument while a call is in flight.
  Status reset_feedback();

  // Measures what the group's links, memory and codecs do, for calls with codec "auto" and plans
  // left open; up to 200 ms. Collective; blocks. What this group has found before, or else what an
  // earlier group of the same hosts kept, is taken instead if a few calls show that it still holds,
  // unless `fresh`. Errors are those of a collective.
  Status tune(bool fresh = false);

  // Latency and rate, as the times of tuning's exact calls have them; nullopt in a group that was
  // not tuned, whose ranks do not all have links to each other, or whose links have a latency that
  // hides their rate from all that fits into a tuning. Not collective.
  [[nodiscard]] std::optional<LinkSpeed> link_speed() const;

  // What a call with these arguments would take, and why. `count` as in the call; not collective.
  // A codec that is left open in a group that was not tuned is kInvalidArgument: tune() first.
  [[nodiscard]] Result<PathChoice> choose(Collective collective, size_t count, DataType type,
                                          ReduceOp op, const CallOptions& options = {}) const;

  // The largest error that one element of a sum may have under this plan and codec:
  //   sum over the ranks of the codec's bound for their blocks' absmax, plus that of the sum's own
  //   quantization; see docs/plans.md. `absmax` is the largest magnitude any rank holds,
  //   `sum_absmax` that of the exact sum. `count` as in the call. Of all_reduce and of
  //   reduce_scatter, whose sums are not quantized once more; kInvalidArgument for others.
  [[nodiscard]] Result<double> error_bound(std::string_view codec, PlanKind plan, size_t count,
                                           DataType type, double absmax, double sum_absmax,
                                           Collective collective = Collective::kAllReduce) const;

  [[nodiscard]] const std::shared_ptr<CommunicatorImpl>& impl() const { return impl_; }

 private:
  std::shared_ptr<CommunicatorImpl> impl_;
};

}  // namespace tersum
