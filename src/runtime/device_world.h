// DeviceWorld: collectives among *devices* spread over processes, matched by keys instead of order.
//
// What XLA's handlers need: every device is a rank, one process may hold several, calls start in
// different orders on different devices and repeat inside loops. The world is made once per set of
// processes; groups of devices need no further agreement, because every member derives the same
// group id from the same list.
//
// Thread safety: start() from any thread, never blocks. Callbacks run on the process's progress
// thread (or, when the call fails at once, inside start(), or in what held it back: load_flatten()
// and reset_flatten()) and must not block or call back into the world. Invariants: on_done is
// called exactly once per started call, after the last access to its buffers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tersum/communicator.h"
#include "tersum/data_type.h"
#include "tersum/options.h"
#include "tersum/status.h"
#include "tersum/store.h"

namespace tersum {

class Progress;

// One collective of one device.
struct KeyedCall {
  std::span<const int64_t> group;  // global device ids, in rank order; equal on all members
  int64_t device = 0;              // this member's id; must be in `group` and local
  uint64_t key = 0;                // equal on all members, and on no other live call of the group
  Collective collective = Collective::kAllReduce;  // or kReduceScatter
  const void* input = nullptr;  // count elements (reduce_scatter: group.size() * count)
  void* output = nullptr;       // count elements; may be `input` for all_reduce
  size_t count = 0;
  DataType type = DataType::kFloat32;
  ReduceOp op = ReduceOp::kSum;
  // Of a flattening codec, with options.channels, of one that feeds back, and of "auto"; equal on
  // all members.
  uint64_t site = 0;
  // With the codec "auto" max_rel_error must be above 0: see sampled_calls.h.
  CallOptions options;
};

// What a site's last call with the codec "auto" took.
struct SiteChoice {
  uint64_t site = 0;
  std::string_view codec;  // for ever
  double rel_error = 0;    // in recent samples
  uint64_t calls = 0;      // of one device here
};

class DeviceWorld {
 public:
  virtual ~DeviceWorld() = default;

  // Process `process_index` of `process_count` with the devices `local_devices`. Publishes itself
  // in `store` under `name`, waits for all others (blocking, up to options.timeout_ms), links with
  // them. `store` may be null when process_count is 1.
  static Result<std::shared_ptr<DeviceWorld>> create(int process_index, int process_count,
                                                     std::span<const int64_t> local_devices,
                                                     const std::shared_ptr<Store>& store,
                                                     const CommunicatorOptions& options,
                                                     std::string_view name);

  using OnDone = void (*)(void* context, const Status& status);
  virtual void start(const KeyedCall& call, OnDone on_done, void* context) = 0;

  // True when all members of `group` are devices of this process.
  [[nodiscard]] virtual bool is_local(std::span<const int64_t> group) const = 0;
  [[nodiscard]] virtual CommunicatorStats stats() const = 0;

  // Of every site with a device here, in the order of their numbers.
  [[nodiscard]] virtual std::vector<SiteChoice> choices() const = 0;

  // What calls with +flatten have learned, of every group with a device here. kInvalidArgument
  // while such a call is in flight. Blocks for as long as a round of the engine takes, as do the
  // next two, which count a call with "auto" from its sample on.
  [[nodiscard]] virtual Result<std::vector<std::byte>> save_flatten() = 0;
  // Puts saved states in place of those of the same sites, also of groups that have not met yet.
  // Every process loads the same between the same calls. kInvalidArgument: bytes that are none, or
  // a call in flight.
  virtual Status load_flatten(std::span<const std::byte> saved) = 0;
  // Forgets them all. kInvalidArgument as above: nothing has changed.
  virtual Status reset_flatten() = 0;
  // What calls with +feedback owe on the devices of this process; each process has its own.
  // kInvalidArgument while one is in flight.
  [[nodiscard]] virtual Result<std::vector<std::byte>> save_feedback() = 0;
  // Puts that in place of all that is owed, also of groups that have not met yet.
  // kInvalidArgument: bytes that are none, or a call in flight.
  virtual Status load_feedback(std::span<const std::byte> saved) = 0;
  // Nothing is owed to calls with +feedback any more, in this process. kInvalidArgument while one
  // is in flight.
  virtual Status reset_feedback() = 0;

  // Ends all calls in flight with kAborted; later ones fail at once.
  virtual void close() = 0;
};

// DeviceWorld::create on a given engine: tests put several "processes" into one.
Result<std::shared_ptr<DeviceWorld>> create_world_on(const std::shared_ptr<Progress>& progress,
                                                     int process_index, int process_count,
                                                     std::span<const int64_t> local_devices,
                                                     const std::shared_ptr<Store>& store,
                                                     const CommunicatorOptions& options,
                                                     std::string_view name);

}  // namespace tersum
