// CallRecorder: copies of what invocations are given and of the sums they return, for
// tersum.jax.capture().
//
// A call is admitted as it starts, while the limits last: its inputs are copied then, its sums once
// it has ended well. Whoever writes the copies down fetches them with take(), on a thread of its
// own; no invocation waits for that.
//
// Thread safety: any thread. Invariants: one recording at a time, over when stop() was called and
// every admitted call has ended and been taken; copies never hold more than the limits say; without
// a recording a call costs one relaxed load.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <tuple>
#include <vector>

#include "tersum/data_type.h"
#include "tersum/options.h"
#include "tersum/status.h"
#include "xla/ffi_call_key.h"
#include "xla/ffi_invocation.h"

namespace tersum::xla_ffi {

struct RecordLimits {
  // Of each operation and occurrence, on each device: iterations of a loop are counted apart.
  int64_t calls_per_site = 0;
  // On a disk, of all devices of the process. Every member of a group counts the sum, whoever keeps
  // it, so that all processes stop at the same call.
  int64_t bytes_max = 0;
};

struct RecordedOperand {
  DataType type = DataType::kFloat32;
  std::vector<std::byte> input;
  // Empty but on the group's first device and for a reduce-scatter: elsewhere it is the same.
  std::vector<std::byte> output;
};

struct RecordedCall {
  Collective collective = Collective::kAllReduce;
  int64_t device = 0;
  std::vector<int64_t> group;  // in rank order
  OperationId operation;
  uint32_t occurrence = 0;
  uint64_t key = 0;  // of the first operand: equal on all members of the group, and only there
  std::string codec;
  std::string plan;
  std::vector<RecordedOperand> operands;
};

// What a recording left out.
struct RecordCounts {
  int64_t beyond_calls = 0;  // those of a site that had enough
  int64_t beyond_bytes = 0;
  int64_t failed = 0;
};

class CallRecorder {
 public:
  // What a copy counts on a disk: the header of its file, too, and a block at least.
  static constexpr int64_t kFileHeaderBytes = 128;
  static constexpr int64_t kFileBytesMin = 4096;

  // The process's recorder; never destroyed, since programs may run while it exits.
  static CallRecorder& instance();

  // kInvalidArgument while an earlier recording is not over.
  Status start(const RecordLimits& limits);
  // Admits no more calls. Idempotent.
  void stop();
  // Replaces `calls` by those that have ended since. Blocks until there are some; false when there
  // will be none any more. Waits after stop() at most for the deadlines of the calls in flight.
  bool take(std::vector<std::unique_ptr<RecordedCall>>& calls);
  [[nodiscard]] RecordCounts counts() const;

  // Null if the call is not to be recorded. `group` holds the invocation's device.
  std::unique_ptr<RecordedCall> admit(const Invocation& invocation, std::span<const int64_t> group,
                                      uint32_t occurrence, uint64_t key);
  // `operands` as they were admitted, their outputs complete if the call ended well.
  void finish(std::unique_ptr<RecordedCall> call, std::span<const Operand> operands, bool well);

 private:
  using Site = std::tuple<int64_t, uint64_t, int64_t, uint32_t>;

  bool has_room(const Site& site, int64_t bytes);

  std::atomic<bool> recording_ = false;
  mutable std::mutex mutex_;
  std::condition_variable wake_;
  RecordLimits limits_;
  RecordCounts counts_;
  std::map<Site, int64_t> calls_of_site_;
  int64_t bytes_used_ = 0;
  size_t open_ = 0;  // admitted and not yet finished
  std::vector<std::unique_ptr<RecordedCall>> finished_;
};

}  // namespace tersum::xla_ffi
