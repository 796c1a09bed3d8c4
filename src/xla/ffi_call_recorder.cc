#include "xla/ffi_call_recorder.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace tersum::xla_ffi {
namespace {

bool keeps_output(Collective collective, int64_t device, std::span<const int64_t> group) {
  return collective == Collective::kReduceScatter || device == group.front();
}

// Elements of input for each of output.
size_t input_share(const Invocation& invocation) {
  return invocation.collective == Collective::kReduceScatter
             ? static_cast<size_t>(invocation.group_size)
             : size_t{1};
}

int64_t disk_bytes(size_t count, DataType type) {
  const auto bytes = static_cast<int64_t>(count * element_bytes(type));
  return std::max(CallRecorder::kFileBytesMin, bytes + CallRecorder::kFileHeaderBytes);
}

std::vector<std::byte> copy_of(const void* data, size_t bytes) {
  const auto* const begin = static_cast<const std::byte*>(data);
  return {begin, begin + bytes};
}

}  // namespace

CallRecorder& CallRecorder::instance() {
  static auto* const recorder = new CallRecorder;
  return *recorder;
}

Status CallRecorder::start(const RecordLimits& limits) {
  const std::scoped_lock lock(mutex_);
  if (recording_.load() || open_ > 0 || !finished_.empty()) {
    return invalid_argument("a recording is running in this process: stop it first");
  }
  limits_ = limits;
  counts_ = {};
  calls_of_site_.clear();
  bytes_used_ = 0;
  recording_.store(true);
  return {};
}

void CallRecorder::stop() {
  {
    const std::scoped_lock lock(mutex_);
    recording_.store(false);
  }
  wake_.notify_all();
}

bool CallRecorder::take(std::vector<std::unique_ptr<RecordedCall>>& calls) {
  calls.clear();
  std::unique_lock lock(mutex_);
  wake_.wait(lock, [this] { return !finished_.empty() || (!recording_.load() && open_ == 0); });
  calls.swap(finished_);
  return !calls.empty();
}

RecordCounts CallRecorder::counts() const {
  const std::scoped_lock lock(mutex_);
  return counts_;
}

bool CallRecorder::has_room(const Site& site, int64_t bytes) {
  const std::scoped_lock lock(mutex_);
  if (!recording_.load()) return false;
  const auto calls = calls_of_site_.find(site);
  if (calls != calls_of_site_.end() && calls->second >= limits_.calls_per_site) {
    ++counts_.beyond_calls;
    return false;
  }
  if (bytes > limits_.bytes_max - bytes_used_) {
    ++counts_.beyond_bytes;
    return false;
  }
  bytes_used_ += bytes;
  ++calls_of_site_[site];
  ++open_;
  return true;
}

std::unique_ptr<RecordedCall> CallRecorder::admit(const Invocation& invocation,
                                                  std::span<const int64_t> group,
                                                  uint32_t occurrence, uint64_t key) {
  if (!recording_.load(std::memory_order_relaxed)) return nullptr;
  const size_t share = input_share(invocation);
  int64_t bytes = 0;
  for (const Operand& operand : invocation.operands) {
    bytes += disk_bytes(operand.count * share, operand.type);
    bytes += disk_bytes(operand.count, operand.type);
  }
  const OperationId& operation = invocation.operation;
  if (!has_room({invocation.device, operation.fingerprint, operation.operation, occurrence},
                bytes)) {
    return nullptr;
  }
  auto call = std::make_unique<RecordedCall>();
  call->collective = invocation.collective;
  call->device = invocation.device;
  call->group.assign(group.begin(), group.end());
  call->operation = operation;
  call->occurrence = occurrence;
  call->key = key;
  call->codec = invocation.wire_bf16 ? std::string_view("bf16") : invocation.codec;
  call->plan = invocation.plan;
  call->operands.reserve(invocation.operands.size());
  for (const Operand& operand : invocation.operands) {
    const size_t input_bytes = operand.count * share * element_bytes(operand.type);
    call->operands.push_back({operand.type, copy_of(operand.input, input_bytes), {}});
  }
  return call;
}

void CallRecorder::finish(std::unique_ptr<RecordedCall> call, std::span<const Operand> operands,
                          bool well) {
  TERSUM_CHECK(call != nullptr && call->operands.size() == operands.size());
  if (well && keeps_output(call->collective, call->device, call->group)) {
    for (size_t i = 0; i < operands.size(); ++i) {
      const Operand& operand = operands[i];
      call->operands[i].output =
          copy_of(operand.output, operand.count * element_bytes(operand.type));
    }
  }
  {
    const std::scoped_lock lock(mutex_);
    --open_;
    if (well) {
      finished_.push_back(std::move(call));
    } else {
      ++counts_.failed;
    }
  }
  wake_.notify_all();
}

}  // namespace tersum::xla_ffi
