#include "xla/ffi_handlers.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tersum/data_type.h"
#include "tersum/status.h"
#include "xla/ffi/api/ffi.h"
#include "xla/ffi_invocation.h"

namespace tersum::xla_ffi {
namespace {

namespace ffi = ::xla::ffi;

#define TERSUM_STRINGIFY_(x) #x
#define TERSUM_STRINGIFY(x) TERSUM_STRINGIFY_(x)
constexpr std::string_view kFfiApiVersion =
    TERSUM_STRINGIFY(XLA_FFI_API_MAJOR) "." TERSUM_STRINGIFY(XLA_FFI_API_MINOR);

ffi::ErrorCode error_code(StatusCode code) {
  switch (code) {
    case StatusCode::kInvalidArgument:
      return ffi::ErrorCode::kInvalidArgument;
    case StatusCode::kUnsupported:
      return ffi::ErrorCode::kUnimplemented;
    case StatusCode::kDisagreement:
    case StatusCode::kClosed:
    case StatusCode::kVersionMismatch:
      return ffi::ErrorCode::kFailedPrecondition;
    case StatusCode::kPeerLost:
    case StatusCode::kUnavailable:
      return ffi::ErrorCode::kUnavailable;
    case StatusCode::kTimeout:
      return ffi::ErrorCode::kDeadlineExceeded;
    case StatusCode::kAborted:
      return ffi::ErrorCode::kAborted;
    case StatusCode::kProtocol:
      return ffi::ErrorCode::kDataLoss;
    case StatusCode::kOk:
    case StatusCode::kSystem:
    case StatusCode::kInternal:
      return ffi::ErrorCode::kInternal;
  }
  return ffi::ErrorCode::kInternal;
}

ffi::Error to_error(const Status& status) {
  return {error_code(status.code()), std::string(status.message())};
}

std::optional<DataType> data_type(ffi::DataType type) {
  switch (type) {
    case ffi::DataType::F32:
      return DataType::kFloat32;
    case ffi::DataType::BF16:
      return DataType::kBFloat16;
    case ffi::DataType::F16:
      return DataType::kFloat16;
    case ffi::DataType::F64:
      return DataType::kFloat64;
    case ffi::DataType::S32:
      return DataType::kInt32;
    case ffi::DataType::S64:
      return DataType::kInt64;
    case ffi::DataType::U8:
      return DataType::kUint8;
    default:
      return std::nullopt;
  }
}

// Copies what outlives the call frame: pointers and counts. `shrink` is how many elements of input
// there are per element of output.
Status decode_operands(const ffi::RemainingArgs& args, const ffi::RemainingRets& rets,
                       size_t shrink, std::span<const int64_t> channels,
                       std::vector<Operand>& out) {
  if (args.size() != rets.size() || args.size() != channels.size()) {
    return {StatusCode::kInternal,
            fmt::format("{} operands but {} results and {} channel counts; please report this",
                        args.size(), rets.size(), channels.size())};
  }
  out.reserve(args.size());
  for (size_t i = 0; i < args.size(); ++i) {
    const ffi::AnyBuffer input = *args.get<ffi::AnyBuffer>(i);
    const ffi::AnyBuffer output = **rets.get<ffi::AnyBuffer>(i);
    const std::optional<DataType> type = data_type(input.element_type());
    if (!type.has_value() || input.element_type() != output.element_type()) {
      return unsupported(
          fmt::format("operand {} has XLA element type {}; tersum sums float32, "
                      "bfloat16, float16, float64, int32, int64 and uint8",
                      i, static_cast<int>(input.element_type())));
    }
    if (input.element_count() != output.element_count() * shrink) {
      return {StatusCode::kInternal,
              fmt::format("operand {} has {} elements and its result {}; please report this", i,
                          input.element_count(), output.element_count())};
    }
    out.push_back({input.untyped_data(), output.untyped_data(), output.element_count(), *type,
                   static_cast<size_t>(std::max<int64_t>(channels[i], 0))});
  }
  return {};
}

OccurrenceCounter& occurrences() {
  static auto* const counter = new OccurrenceCounter;
  return *counter;
}

void fulfil(void* context, const Status& status) {
  const std::unique_ptr<ffi::Promise> promise(static_cast<ffi::Promise*>(context));
  if (status.ok()) {
    promise->SetAvailable();
  } else {
    promise->SetError(to_error(status));
  }
}

// Attributes in the order in which the pass writes them.
struct Attributes {
  ffi::Span<const int64_t> groups;
  int64_t group_size;
  int64_t fingerprint;
  int64_t operation;
  std::string_view codec;
  std::string_view plan;
  int64_t timeout_ms;
  bool wire_bf16;
  ffi::Span<const int64_t> channels;
};

ffi::Future run(Collective collective, int32_t device, ffi::RunId run_id,
                const ffi::RemainingArgs& args, const ffi::RemainingRets& rets,
                const Attributes& attributes) {
  // The future must exist before the promise can be fulfilled and freed.
  auto* const promise = new ffi::Promise;
  ffi::Future future(*promise);
  std::vector<Operand> operands;
  const size_t shrink = collective == Collective::kReduceScatter
                            ? static_cast<size_t>(attributes.group_size)
                            : size_t{1};
  const Status decoded = decode_operands(
      args, rets, shrink, {attributes.channels.begin(), attributes.channels.size()}, operands);
  if (!decoded.ok()) {
    fulfil(promise, decoded);
    return future;
  }
  Invocation invocation;
  invocation.collective = collective;
  invocation.device = device;
  invocation.run_id = run_id.run_id;
  invocation.groups = {attributes.groups.begin(), attributes.groups.size()};
  invocation.group_size = attributes.group_size;
  invocation.operation = {static_cast<uint64_t>(attributes.fingerprint), attributes.operation};
  invocation.codec = attributes.codec;
  invocation.plan = attributes.plan;
  invocation.timeout_ms = attributes.timeout_ms;
  invocation.wire_bf16 = attributes.wire_bf16;
  invocation.operands = operands;
  start_invocation(WorldGate::instance(), occurrences(), invocation, fulfil, promise);
  return future;
}

template <Collective kCollective>
ffi::Future handle(int32_t device, ffi::RunId run_id, ffi::RemainingArgs args,
                   ffi::RemainingRets rets, ffi::Span<const int64_t> groups, int64_t group_size,
                   int64_t fingerprint, int64_t operation, std::string_view codec,
                   std::string_view plan, int64_t timeout_ms, bool wire_bf16,
                   ffi::Span<const int64_t> channels) {
  return run(
      kCollective, device, run_id, args, rets,
      {groups, group_size, fingerprint, operation, codec, plan, timeout_ms, wire_bf16, channels});
}

auto binding() {
  return ffi::Ffi::Bind()
      .Ctx<ffi::DeviceOrdinal>()
      .Ctx<ffi::RunId>()
      .RemainingArgs()
      .RemainingRets()
      .Attr<ffi::Span<const int64_t>>("groups")
      .Attr<int64_t>("group_size")
      .Attr<int64_t>("fingerprint")
      .Attr<int64_t>("operation")
      .Attr<std::string_view>("codec")
      .Attr<std::string_view>("plan")
      .Attr<int64_t>("timeout_ms")
      .Attr<bool>("wire_bf16")
      .Attr<ffi::Span<const int64_t>>("channels");
}

template <Collective kCollective>
XLA_FFI_Error* entry(XLA_FFI_CallFrame* frame) {
  static auto* const handler = binding().To(handle<kCollective>).release();
  return handler->Call(frame);
}

}  // namespace

std::span<const HandlerEntry> handler_table() {
  static const std::array<HandlerEntry, 2> table = {{
      {"tersum_all_reduce", reinterpret_cast<void*>(&entry<Collective::kAllReduce>)},
      {"tersum_reduce_scatter", reinterpret_cast<void*>(&entry<Collective::kReduceScatter>)},
  }};
  return table;
}

std::string_view ffi_api_version() { return kFfiApiVersion; }

}  // namespace tersum::xla_ffi
