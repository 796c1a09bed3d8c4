#include "runtime/stores/store_server.h"

#include <algorithm>
#include <array>
#include <span>
#include <utility>

#include "platform/doorbell.h"
#include "platform/stream_socket.h"
#include "platform/system_error.h"

namespace tersum {
namespace {

// What the table's own bookkeeping costs per key, so that many empty entries count as well.
constexpr size_t kEntryOverheadBytes = 128;

// How long no connection is accepted after the process ran out of descriptors.
constexpr int64_t kAcceptPauseNs = 100'000'000;

constexpr size_t kReadBytes = 16 * 1024;

}  // namespace

Result<std::unique_ptr<StoreServer>> StoreServer::start(const SocketAddress& address,
                                                        const Clock& clock,
                                                        const StoreServerLimits& limits) {
  std::unique_ptr<StoreServer> server(new StoreServer(clock, limits));
  Result<UniqueFd> listener = listen_tcp(address);
  if (!listener.ok()) return listener.status();
  server->listener_ = std::move(listener).value();
  Result<SocketAddress> bound = local_address(server->listener_.get());
  if (!bound.ok()) return bound.status();
  server->address_ = bound.value();
  Result<UniqueFd> stop = make_doorbell();
  if (!stop.ok()) return stop.status();
  server->stop_ = std::move(stop).value();
  const auto run = [](void* self) { static_cast<StoreServer*>(self)->run(); };
  TERSUM_RETURN_IF_ERROR(server->thread_.start(run, server.get(), "tersum-store"));
  return server;
}

StoreServer::~StoreServer() {
  if (stop_) ring_doorbell(stop_.get());
  thread_.join();
}

void StoreServer::run() {
  while (!stopping_) {
    const int64_t now_ns = clock_.now_ns();
    const int64_t wake_ns = watch(now_ns);
    if (poll_set_.wait(wake_ns - now_ns)) serve_ready();
    drop_dead();
  }
  connections_.clear();
}

// Fills poll_set_; the time at which there is something to do even if nothing becomes ready.
int64_t StoreServer::watch(int64_t now_ns) {
  int64_t wake_ns = INT64_MAX;
  const bool accepting = now_ns >= accept_again_ns_;
  if (!accepting) wake_ns = accept_again_ns_;
  poll_set_.clear();
  poll_set_.add(stop_.get(), PollSet::For::kReading);
  poll_set_.add(accepting ? listener_.get() : -1, PollSet::For::kReading);
  for (const auto& connection : connections_) {
    // While a reply is stuck nothing more is read: a client that does not listen cannot fill
    // memory.
    poll_set_.add(connection->fd.get(),
                  connection->out.empty() ? PollSet::For::kReading : PollSet::For::kWriting);
    if (!connection->greeted) wake_ns = std::min(wake_ns, connection->greeting_deadline_ns);
  }
  return wake_ns;
}

void StoreServer::serve_ready() {
  if (poll_set_.ready(0)) {
    stopping_ = true;
    return;
  }
  for (size_t i = 0; i < connections_.size(); ++i) {
    if (!poll_set_.ready(i + 2)) continue;
    Connection& connection = *connections_[i];
    if (!connection.out.empty()) flush(connection);
    if (connection.out.empty()) read_from(connection);
  }
  if (poll_set_.ready(1)) accept_all();
}

void StoreServer::accept_all() {
  for (;;) {
    Result<UniqueFd> fd = accept_connection(listener_.get());
    if (!fd.ok()) {
      accept_again_ns_ = clock_.now_ns() + kAcceptPauseNs;
      return;
    }
    if (!*fd) return;
    if (connections_.size() >= limits_.connections_max) continue;  // closed; the client tries again
    tune_tcp(fd->get());
    auto connection = std::make_unique<Connection>();
    connection->fd = std::move(fd).value();
    connection->greeting_deadline_ns =
        clock_.now_ns() + limits_.greeting_timeout_ms * int64_t{1'000'000};
    connections_.push_back(std::move(connection));
  }
}

void StoreServer::read_from(Connection& connection) {
  if (connection.closing) {
    connection.dead = true;
    return;
  }
  std::array<std::byte, kReadBytes> buffer;
  const ReadResult read = read_socket(connection.fd.get(), buffer, nullptr);
  if (read.ended || read.error_number != 0) connection.dead = true;
  connection.in.append(reinterpret_cast<const char*>(buffer.data()), read.bytes);
  advance(connection);
}

// Takes apart what has come, as far as it goes without a reply being stuck.
void StoreServer::advance(Connection& connection) {
  while (!connection.dead && !connection.closing && connection.out.empty()) {
    if (!connection.greeted) {
      if (!take_greeting(connection)) return;
    } else if (!connection.awaited_key.empty()) {
      // One request at a time: whoever speaks while waiting does not speak this protocol.
      if (!connection.in.empty()) connection.dead = true;
      return;
    } else if (!take_request(connection)) {
      return;
    }
  }
}

bool StoreServer::take_greeting(Connection& connection) {
  if (connection.in.size() < kStoreGreetingBytes) return false;
  const uint16_t version = decode_store_greeting(StoreSide::kClient, connection.in);
  if (version == 0) {
    connection.dead = true;
    return false;
  }
  connection.in.erase(0, kStoreGreetingBytes);
  connection.greeted = true;
  // A client of another version reads ours in the greeting and can say so.
  connection.closing = version != kStoreVersion;
  connection.out = encode_store_greeting(StoreSide::kServer);
  flush(connection);
  return true;
}

bool StoreServer::take_request(Connection& connection) {
  StoreRequest request;
  size_t taken = 0;
  const StoreDecoded decoded = decode_store_request(connection.in, &request, &taken);
  if (decoded == StoreDecoded::kBroken) connection.dead = true;
  if (decoded != StoreDecoded::kComplete) return false;
  if (request.operation == StoreOperation::kSet) {
    const StoreResult result = set(request.key, request.value);
    const std::string key(request.key);
    const std::string value(request.value);
    connection.in.erase(0, taken);
    answer(connection, {result, {}});
    if (result == StoreResult::kOk) wake_waiters(key, value);
    return true;
  }
  const bool waits = request.operation == StoreOperation::kWait;
  std::string key(request.key);
  connection.in.erase(0, taken);
  const auto found = table_.find(key);
  if (found != table_.end()) {
    answer(connection, {StoreResult::kOk, found->second});
  } else if (waits) {
    connection.awaited_key = std::move(key);
  } else {
    answer(connection, {StoreResult::kAbsent, {}});
  }
  return true;
}

StoreResult StoreServer::set(std::string_view key, std::string_view value) {
  const auto found = table_.find(std::string(key));
  if (found != table_.end()) {
    return found->second == value ? StoreResult::kOk : StoreResult::kConflict;
  }
  const size_t bytes = key.size() + value.size() + kEntryOverheadBytes;
  if (table_bytes_ + bytes > limits_.table_bytes_max) return StoreResult::kFull;
  table_bytes_ += bytes;
  table_.emplace(key, value);
  return StoreResult::kOk;
}

void StoreServer::wake_waiters(std::string_view key, std::string_view value) {
  for (const auto& waiter : connections_) {
    if (waiter->awaited_key != key) continue;
    waiter->awaited_key.clear();
    answer(*waiter, {StoreResult::kOk, value});
  }
}

void StoreServer::answer(Connection& connection, const StoreReply& reply) {
  connection.out = encode_store_reply(reply);
  flush(connection);
}

void StoreServer::flush(Connection& connection) {
  while (!connection.out.empty()) {
    const SendResult sent =
        send_some(connection.fd.get(), std::as_bytes(std::span(connection.out)));
    if (sent.error_number != 0) {
      connection.dead = true;
      connection.out.clear();
      return;
    }
    if (sent.bytes == 0) return;
    connection.out.erase(0, sent.bytes);
  }
  if (connection.closing) connection.dead = true;
}

void StoreServer::drop_dead() {
  const int64_t now_ns = clock_.now_ns();
  std::erase_if(connections_, [now_ns](const std::unique_ptr<Connection>& connection) {
    return connection->dead || (!connection->greeted && now_ns >= connection->greeting_deadline_ns);
  });
}

}  // namespace tersum
