// An invocation: one execution of a rewritten collective on one device, with one DeviceWorld call
// per operand.
//
// Thread safety: start_invocation from any thread. Invariants: it never blocks; `done` runs exactly
// once, after the last operand's call has ended (also when an earlier one failed), so after the
// last access to any buffer; it runs on the calling thread before start_invocation returns, or on a
// thread of the Completer, never on the progress thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "tersum/data_type.h"
#include "tersum/options.h"
#include "tersum/status.h"
#include "xla/ffi_call_key.h"
#include "xla/ffi_world_gate.h"

namespace tersum::xla_ffi {

struct Operand {
  const void* input = nullptr;
  void* output = nullptr;
  size_t count = 0;  // elements of `output`
  DataType type = DataType::kFloat32;
  size_t channels = 0;  // CallOptions::channels
};

// Borrowed for the duration of start_invocation only, except the operands' buffers.
struct Invocation {
  Collective collective = Collective::kAllReduce;
  int64_t device = 0;  // global device id
  int64_t run_id = 0;
  std::span<const int64_t> groups;  // all groups, concatenated; global device ids in rank order
  int64_t group_size = 0;
  OperationId operation;
  std::string_view codec;
  std::string_view plan;
  int64_t timeout_ms = 0;  // 0: the world's
  // float32 values that all came from bfloat16 and travel as such.
  bool wire_bf16 = false;
  std::span<const Operand> operands;
};

using InvocationDone = void (*)(void* context, const Status& status);

void start_invocation(WorldGate& gate, OccurrenceCounter& occurrences, const Invocation& invocation,
                      InvocationDone done, void* context);

// Blocks until no invocation of this process is open, programs that go on from one to the next
// included. Bounded by the deadlines of the calls.
void wait_until_no_invocations();

}  // namespace tersum::xla_ffi
