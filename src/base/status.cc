#include "tersum/status.h"

#include "base/check.h"

namespace tersum {

std::string_view status_code_name(StatusCode code) {
  switch (code) {
    case StatusCode::kOk:
      return "ok";
    case StatusCode::kInvalidArgument:
      return "invalid_argument";
    case StatusCode::kUnsupported:
      return "unsupported";
    case StatusCode::kDisagreement:
      return "disagreement";
    case StatusCode::kPeerLost:
      return "peer_lost";
    case StatusCode::kTimeout:
      return "timeout";
    case StatusCode::kAborted:
      return "aborted";
    case StatusCode::kClosed:
      return "closed";
    case StatusCode::kProtocol:
      return "protocol";
    case StatusCode::kVersionMismatch:
      return "version_mismatch";
    case StatusCode::kUnavailable:
      return "unavailable";
    case StatusCode::kSystem:
      return "system";
    case StatusCode::kInternal:
      return "internal";
  }
  return "unknown";
}

Status::Status(StatusCode code, std::string message) {
  // An OK status with a message would read as success and lose the sentence.
  TERSUM_CHECK(code != StatusCode::kOk);
  rep_ = std::make_shared<const Rep>(Rep{code, std::move(message)});
}

bool Status::is_retryable() const noexcept {
  const auto number = static_cast<int32_t>(code());
  return number >= 20 && number < 30;
}

std::string Status::to_string() const {
  if (ok()) return "ok";
  std::string text(status_code_name(code()));
  text += ": ";
  text += message();
  return text;
}

Status invalid_argument(std::string message) {
  return {StatusCode::kInvalidArgument, std::move(message)};
}

Status unsupported(std::string message) { return {StatusCode::kUnsupported, std::move(message)}; }

}  // namespace tersum
