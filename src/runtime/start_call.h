// Starting calls: checks the arguments, finds the codec, takes a pooled operation, hands it over.
//
// Thread safety: any thread. Invariant: for members matched by sequence, the number is drawn and
// the operation handed over under one lock, so numbers reach the node in order.
#pragma once

#include <memory>
#include <span>

#include "runtime/member.h"
#include "runtime/operation.h"
#include "tersum/options.h"
#include "tersum/status.h"

namespace tersum {

struct CallArguments {
  Collective collective = Collective::kBarrier;
  const void* input = nullptr;
  void* output = nullptr;
  size_t count = 0;
  DataType type = DataType::kFloat32;
  ReduceOp op = ReduceOp::kSum;
  int root = 0;
  uint64_t tensors = 0;  // as in CallRequest
  uint64_t site = 0;     // of a codec with a state; 0: named by the options
  // Of a bucket of a list: its number, from 1 on; `site` is the list's. Buckets learn and owe each
  // for itself: which of two lists in flight comes first is sure for equal numbers alone.
  uint32_t bucket = 0;
  bool keeps_data = false;  // the root of a broadcast does not take part in its result
  // Its sum teaches the site's channels whatever its codec: a later call there may flatten.
  bool teaches = false;
  std::span<const ArrayPart> parts = {};  // as in CallRequest
};

// Whether channels can be learned from the call's result: a sum of a whole array on every rank,
// whose channels are known. Elsewhere Hadamard stands alone.
bool shows_channels(const CallArguments& arguments, const CallOptions& options);

// Whether start_call would take the arguments, but for what concerns the codec.
Status check_call(const Member& member, const CallArguments& arguments, const CallOptions& options);

// kInvalidArgument, kUnsupported: nothing was started and no other rank is affected. With `async`
// the process's progress thread drives the call; otherwise the caller must wait() at once. `key`
// matters only for members matched by keys. `default_timeout_ms` serves options that name none.
Result<std::shared_ptr<Operation>> start_call(const std::shared_ptr<Member>& member,
                                              const CallArguments& arguments,
                                              const CallOptions& options,
                                              int64_t default_timeout_ms, uint64_t key, bool async,
                                              OnDone on_done, void* context);

}  // namespace tersum
