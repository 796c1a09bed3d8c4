// Status and Result<T>: how every operating error of tersum is reported.
//
// Thread safety: values; distinct objects may be used from distinct threads.
// Invariants: an OK status holds no memory; a failed one holds a code and a sentence that names the
// rank concerned (where there is one) and the remedy. Codes are stable and spaced by what the
// caller should do. Programmer errors do not come through here; they hit TERSUM_CHECK.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

namespace tersum {

enum class StatusCode : int32_t {
  kOk = 0,
  // 10s: your call is wrong; change the call.
  kInvalidArgument = 10,
  kUnsupported = 11,   // a valid wish that this build or codec cannot serve
  kDisagreement = 12,  // ranks called with different arguments; the communicator stays usable
  // 20s: the group changed or was too slow; retry with a new group.
  kPeerLost = 20,
  kTimeout = 21,
  kAborted = 22,
  kClosed = 23,
  // 30s: data from the network is bad.
  kProtocol = 30,
  kVersionMismatch = 31,
  // 40s: cannot here (no such interface, port taken, feature absent on this machine).
  kUnavailable = 40,
  // 50s: the operating system refused.
  kSystem = 50,
  // 60s: a tersum bug; please report it.
  kInternal = 60,
};

// The code's name as documented, e.g. "peer_lost"; "unknown" for a number that is none of them.
std::string_view status_code_name(StatusCode code);

class [[nodiscard]] Status {
 public:
  Status() noexcept = default;
  Status(StatusCode code, std::string message);

  [[nodiscard]] bool ok() const noexcept { return rep_ == nullptr; }
  [[nodiscard]] StatusCode code() const noexcept {
    return rep_ == nullptr ? StatusCode::kOk : rep_->code;
  }
  // Empty when ok().
  [[nodiscard]] std::string_view message() const noexcept {
    return rep_ == nullptr ? std::string_view() : std::string_view(rep_->message);
  }
  // True for the 20s: the same call may succeed in a new group.
  [[nodiscard]] bool is_retryable() const noexcept;
  // "timeout: …", or "ok".
  [[nodiscard]] std::string to_string() const;

 private:
  struct Rep {
    StatusCode code;
    std::string message;
  };
  std::shared_ptr<const Rep> rep_;
};

inline Status ok_status() { return {}; }
Status invalid_argument(std::string message);
Status unsupported(std::string message);

// Either a value or the failed status that explains its absence.
template <typename T>
class [[nodiscard]] Result {
 public:
  Result(T value) : value_(std::move(value)) {}          // NOLINT(google-explicit-constructor)
  Result(Status status) : status_(std::move(status)) {}  // NOLINT(google-explicit-constructor)

  [[nodiscard]] bool ok() const noexcept { return value_.has_value(); }
  [[nodiscard]] const Status& status() const noexcept { return status_; }
  // Require ok().
  [[nodiscard]] T& value() & { return *value_; }
  [[nodiscard]] const T& value() const& { return *value_; }
  [[nodiscard]] T&& value() && { return std::move(*value_); }
  T* operator->() { return &*value_; }
  T& operator*() & { return *value_; }

 private:
  std::optional<T> value_;
  Status status_;
};

#define TERSUM_RETURN_IF_ERROR(expr)                 \
  do {                                               \
    ::tersum::Status tersum_status_ = (expr);        \
    if (!tersum_status_.ok()) return tersum_status_; \
  } while (false)

}  // namespace tersum
