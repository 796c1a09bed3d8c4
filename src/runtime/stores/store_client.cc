#include "runtime/stores/store_client.h"

#include <array>
#include <span>
#include <utility>

#include "base/check.h"
#include "platform/stream_socket.h"
#include "platform/system_error.h"

namespace tersum {
namespace {

constexpr size_t kReadBytes = 16 * 1024;

}  // namespace

StoreAttempt StoreClient::connect(const SocketAddress& address, int64_t deadline_ns) {
  in_.clear();
  Result<UniqueFd> fd = start_connect_tcp(address);
  if (!fd.ok()) return lost(std::string(fd.status().message()));
  fd_ = std::move(fd).value();
  const StoreAttempt writable = await(PollSet::For::kWriting, deadline_ns);
  if (writable != StoreAttempt::kDone) return writable;
  const int error_number = pending_error(fd_.get());
  if (error_number != 0) return lost(error_text(error_number));
  return greet(deadline_ns);
}

StoreAttempt StoreClient::greet(int64_t deadline_ns) {
  StoreAttempt attempt = send_all(encode_store_greeting(StoreSide::kClient), deadline_ns);
  while (attempt == StoreAttempt::kDone && in_.size() < kStoreGreetingBytes) {
    attempt = receive_some(deadline_ns);
  }
  if (attempt != StoreAttempt::kDone) return attempt;
  // While nobody listens, a connection to an ephemeral port of this host may come out at itself.
  if (decode_store_greeting(StoreSide::kClient, in_) != 0) return lost("connected to itself");
  peer_version_ = decode_store_greeting(StoreSide::kServer, in_);
  if (peer_version_ == 0) return closed(StoreAttempt::kStranger);
  if (peer_version_ != kStoreVersion) return closed(StoreAttempt::kVersion);
  in_.erase(0, kStoreGreetingBytes);
  return StoreAttempt::kDone;
}

StoreAttempt StoreClient::exchange(const StoreRequest& request, int64_t deadline_ns) {
  TERSUM_CHECK(connected());
  StoreAttempt attempt = send_all(encode_store_request(request), deadline_ns);
  while (attempt == StoreAttempt::kDone) {
    StoreReply reply;
    size_t taken = 0;
    const StoreDecoded decoded = decode_store_reply(in_, &reply, &taken);
    if (decoded == StoreDecoded::kBroken) return closed(StoreAttempt::kStranger);
    if (decoded == StoreDecoded::kComplete) {
      result_ = reply.result;
      value_ = std::string(reply.value);
      in_.erase(0, taken);
      return StoreAttempt::kDone;
    }
    attempt = receive_some(deadline_ns);
  }
  return attempt;
}

StoreAttempt StoreClient::send_all(std::string_view bytes, int64_t deadline_ns) {
  while (!bytes.empty()) {
    const SendResult sent = send_some(fd_.get(), std::as_bytes(std::span(bytes)));
    if (sent.error_number != 0) return lost(error_text(sent.error_number));
    bytes.remove_prefix(sent.bytes);
    if (sent.bytes > 0) continue;
    const StoreAttempt writable = await(PollSet::For::kWriting, deadline_ns);
    if (writable != StoreAttempt::kDone) return writable;
  }
  return StoreAttempt::kDone;
}

// Appends at least one byte to in_.
StoreAttempt StoreClient::receive_some(int64_t deadline_ns) {
  std::array<std::byte, kReadBytes> buffer;
  for (;;) {
    const ReadResult read = read_socket(fd_.get(), buffer, nullptr);
    if (read.ended) return lost("the connection was closed");
    if (read.error_number != 0) return lost(error_text(read.error_number));
    if (read.bytes > 0) {
      in_.append(reinterpret_cast<const char*>(buffer.data()), read.bytes);
      return StoreAttempt::kDone;
    }
    const StoreAttempt readable = await(PollSet::For::kReading, deadline_ns);
    if (readable != StoreAttempt::kDone) return readable;
  }
}

StoreAttempt StoreClient::await(PollSet::For what, int64_t deadline_ns) {
  poll_set_.clear();
  poll_set_.add(fd_.get(), what);
  for (;;) {
    const int64_t left_ns = deadline_ns - clock_.now_ns();
    if (poll_set_.wait(left_ns)) return StoreAttempt::kDone;
    if (left_ns <= 0) return closed(StoreAttempt::kTimeout);
  }
}

StoreAttempt StoreClient::lost(std::string why) {
  last_error_ = std::move(why);
  return closed(StoreAttempt::kLost);
}

StoreAttempt StoreClient::closed(StoreAttempt attempt) {
  fd_.reset();
  in_.clear();
  return attempt;
}

}  // namespace tersum
