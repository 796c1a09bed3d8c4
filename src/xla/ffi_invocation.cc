#include "xla/ffi_invocation.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cfenv>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/check.h"
#include "runtime/device_world.h"
#include "xla/ffi_auto_codec.h"
#include "xla/ffi_call_recorder.h"
#include "xla/ffi_completer.h"

namespace tersum::xla_ffi {
namespace {

// In the name of a flatten site, where runs do not differ: XLA's run ids are positive.
constexpr int64_t kEveryRun = -1;
// Iterations of a loop that have sites of their own; all later ones share one.
constexpr uint32_t kIterationsApart = 64;

// Invocations whose `done` has not returned.
std::atomic<int64_t> g_open_invocations = 0;

// Lives from the handler's call to the end of its last operand; frees itself.
class Pending {
 public:
  Pending(const Invocation& invocation, std::span<const int64_t> group, PlanKind plan,
          uint32_t occurrence, InvocationDone done, void* context);

  // Starts one call per operand; on the handler's thread or the gate's.
  void start(const Result<std::shared_ptr<DeviceWorld>>& world, bool in_handler);
  // Before start(): copies the inputs if somebody records.
  void record(const Invocation& invocation, uint32_t occurrence);

 private:
  static void on_operand_done(void* context, const Status& status);
  void fail(const Status& status);
  // Gives up one of the references that keep the invocation open; the last one ends it.
  void release(bool in_handler);
  void end();
  [[nodiscard]] Status describe(const Status& cause) const;
  [[nodiscard]] KeyedCall keyed_call(uint32_t operand) const;

  Collective collective_;
  int64_t device_;
  std::vector<int64_t> group_;
  std::string codec_;
  std::optional<AllowedCodecs> allowed_;  // where codec_ is "auto:E" or "auto:E:LIST"
  PlanKind plan_;
  int64_t timeout_ms_;
  std::vector<Operand> operands_;
  std::vector<uint64_t> keys_;
  std::vector<uint64_t> sites_;
  InvocationDone done_;
  void* context_;
  std::fenv_t environment_;
  std::shared_ptr<DeviceWorld> world_;
  // One per operand, and one for whoever is still starting them.
  std::atomic<size_t> open_;
  std::mutex error_mutex_;
  Status error_;
  std::unique_ptr<RecordedCall> record_;
};

Pending::Pending(const Invocation& invocation, std::span<const int64_t> group, PlanKind plan,
                 uint32_t occurrence, InvocationDone done, void* context)
    : collective_(invocation.collective),
      device_(invocation.device),
      group_(group.begin(), group.end()),
      codec_(invocation.wire_bf16 ? std::string_view("bf16") : invocation.codec),
      plan_(plan),
      timeout_ms_(invocation.timeout_ms),
      operands_(invocation.operands.begin(), invocation.operands.end()),
      done_(done),
      context_(context),
      open_(operands_.size() + 1) {
  std::fegetenv(&environment_);
  // A name that is wrong is the world's to refuse.
  auto allowed = allowed_codecs(codec_);
  if (allowed.ok()) allowed_ = *allowed;
  keys_.reserve(operands_.size());
  sites_.reserve(operands_.size());
  for (uint32_t i = 0; i < operands_.size(); ++i) {
    CallIdentity identity{invocation.groups,    invocation.group_size,
                          invocation.operation, invocation.run_id,
                          occurrence,           i};
    keys_.push_back(call_key(identity));
    identity.run_id = kEveryRun;
    identity.occurrence = std::min(occurrence, kIterationsApart);
    sites_.push_back(call_key(identity));
    if (allowed_) name_site(sites_.back(), invocation.operation);
  }
}

void Pending::record(const Invocation& invocation, uint32_t occurrence) {
  if (keys_.empty()) return;
  record_ = CallRecorder::instance().admit(invocation, group_, occurrence, keys_.front());
}

KeyedCall Pending::keyed_call(uint32_t operand) const {
  const Operand& buffers = operands_[operand];
  KeyedCall call;
  call.group = group_;
  call.device = device_;
  call.key = keys_[operand];
  call.collective = collective_;
  call.input = buffers.input;
  call.output = buffers.output;
  call.count = buffers.count;
  call.type = buffers.type;
  call.op = ReduceOp::kSum;
  call.site = sites_[operand];
  call.options.channels = buffers.channels;
  call.options.codec = allowed_ ? allowed_->codec : codec_;
  call.options.max_rel_error = allowed_ ? allowed_->error : 0;
  call.options.plan = plan_;
  call.options.timeout_ms = timeout_ms_;
  return call;
}

void Pending::start(const Result<std::shared_ptr<DeviceWorld>>& world, bool in_handler) {
  if (world.ok()) {
    world_ = world.value();
    for (uint32_t i = 0; i < operands_.size(); ++i) {
      world_->start(keyed_call(i), &Pending::on_operand_done, this);
    }
  } else {
    fail(world.status());
    open_.fetch_sub(operands_.size(), std::memory_order_relaxed);
  }
  release(in_handler);
}

void Pending::on_operand_done(void* context, const Status& status) {
  auto* const self = static_cast<Pending*>(context);
  if (!status.ok()) self->fail(status);
  self->release(/*in_handler=*/false);
}

void Pending::fail(const Status& status) {
  const std::scoped_lock lock(error_mutex_);
  if (error_.ok()) error_ = status;
}

void Pending::release(bool in_handler) {
  if (open_.fetch_sub(1, std::memory_order_acq_rel) != 1) return;
  if (in_handler) {
    end();
    return;
  }
  Completer::instance().run(
      {[](void* context) { static_cast<Pending*>(context)->end(); }, this, environment_});
}

void Pending::end() {
  std::unique_ptr<Pending> self(this);
  // Before done_, after which the buffers are the program's again.
  if (record_) CallRecorder::instance().finish(std::move(record_), operands_, error_.ok());
  done_(context_, error_.ok() ? Status() : describe(error_));
  self.reset();
  // Last: the program may have gone on to its next collective inside done_, so that the number
  // reaches 0 only between programs.
  g_open_invocations.fetch_sub(1);
  g_open_invocations.notify_all();
}

Status Pending::describe(const Status& cause) const {
  size_t values = 0;
  for (const Operand& operand : operands_) values += operand.count;
  return {cause.code(), fmt::format("tersum {} on device {} (devices {}; {} values, codec {}): {}",
                                    collective_name(collective_), device_, fmt::join(group_, ","),
                                    values, codec_, cause.to_string())};
}

// The group that holds this device.
Result<std::span<const int64_t>> own_group(const Invocation& invocation) {
  const auto size = static_cast<size_t>(std::max<int64_t>(invocation.group_size, 0));
  if (size == 0 || invocation.groups.size() % size != 0) {
    return Status(StatusCode::kInternal,
                  fmt::format("{} device ids do not make groups of {}; please report this",
                              invocation.groups.size(), invocation.group_size));
  }
  for (size_t begin = 0; begin < invocation.groups.size(); begin += size) {
    const auto group = invocation.groups.subspan(begin, size);
    if (std::ranges::find(group, invocation.device) != group.end()) return group;
  }
  return Status(StatusCode::kInternal,
                fmt::format("device {} is in none of the groups {} (of {} each) of this operation: "
                            "the program was compiled for other devices; please report this",
                            invocation.device, fmt::join(invocation.groups, ","), size));
}

Result<PlanKind> choose_plan_kind(const Invocation& invocation) {
  // The owner sums in float32 and rounds once, which is what makes the bfloat16 wire lossless here;
  // a ring would round at each hop.
  if (invocation.wire_bf16) return PlanKind::kTwoStep;
  const std::optional<PlanKind> plan = parse_plan_kind(invocation.plan);
  if (plan.has_value()) return *plan;
  return invalid_argument(
      fmt::format("no plan is called '{}'; use auto, two_step, ring or one_shot", invocation.plan));
}

}  // namespace

void start_invocation(WorldGate& gate, OccurrenceCounter& occurrences, const Invocation& invocation,
                      InvocationDone done, void* context) {
  const auto group = own_group(invocation);
  const auto plan = choose_plan_kind(invocation);
  if (!group.ok() || !plan.ok()) {
    done(context, group.ok() ? plan.status() : group.status());
    return;
  }
  const uint32_t occurrence =
      occurrences.next(invocation.device, invocation.operation, invocation.run_id);
  g_open_invocations.fetch_add(1);
  auto* const pending =
      new Pending(invocation, group.value(), plan.value(), occurrence, done, context);
  pending->record(invocation, occurrence);
  // The gate's answer comes on this thread or on its own: only here may the end run inline.
  const auto handler_thread = std::this_thread::get_id();
  gate.with_world(group.value(), [pending, handler_thread](const auto& world) {
    pending->start(world, std::this_thread::get_id() == handler_thread);
  });
}

void wait_until_no_invocations() {
  for (int64_t open = g_open_invocations; open != 0; open = g_open_invocations) {
    g_open_invocations.wait(open);
  }
}

}  // namespace tersum::xla_ffi
