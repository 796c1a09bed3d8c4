// The TCP store: a StoreClient per thread that is talking, and on one rank the StoreServer as well.
#include <algorithm>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "platform/cpu_relax.h"
#include "platform/socket_address.h"
#include "platform/system_clock.h"
#include "runtime/stores/store_client.h"
#include "runtime/stores/store_server.h"
#include "tersum/store.h"

namespace tersum {
namespace {

constexpr int64_t kNsPerMs = 1'000'000;
// Between attempts: short at first, since ranks start together; then rare enough for a thousand
// ranks that wait for rank 0.
constexpr int64_t kRetryNsMin = 5 * kNsPerMs;
constexpr int64_t kRetryNsMax = 200 * kNsPerMs;
// Connections kept for the next call. More exist only while more threads wait at once.
constexpr size_t kIdleMax = 1;

std::string url_of(const std::string& host, uint16_t port) {
  const bool is_ipv6 = host.find(':') != std::string::npos;
  return "tcp://" + (is_ipv6 ? "[" + host + "]" : host) + ":" + std::to_string(port);
}

class TcpStore final : public Store {
 public:
  TcpStore(std::string host, const SocketAddress& address, int64_t timeout_ms)
      : host_(std::move(host)),
        url_(url_of(host_, address.port())),
        address_(address),
        timeout_ms_(std::max<int64_t>(timeout_ms, 0)) {}

  Status start_server() {
    Result<std::unique_ptr<StoreServer>> server = StoreServer::start(address_, clock_);
    if (!server.ok()) {
      return {server.status().code(),
              "store " + url_ + ": " + std::string(server.status().message()) +
                  "; rank 0 serves the store, so the URL must name an address "
                  "of its host and a port that is free there"};
    }
    server_ = std::move(server).value();
    return ok_status();
  }

  // The first connection, so that a wrong address is found out now and not at the first key.
  Status reach() {
    std::unique_ptr<StoreClient> client;
    TERSUM_RETURN_IF_ERROR(acquire(deadline_after(timeout_ms_), &client));
    release(std::move(client));
    return ok_status();
  }

  Status set(std::string_view key, std::string_view value) override {
    TERSUM_RETURN_IF_ERROR(check_store_entry(key, value));
    const StoreRequest request{StoreOperation::kSet, key, value};
    Result<std::string> done = call(request, timeout_ms_);
    return done.ok() ? ok_status() : done.status();
  }

  Result<std::string> wait(std::string_view key, int64_t timeout_ms) override {
    TERSUM_RETURN_IF_ERROR(check_store_key(key));
    if (timeout_ms > 0) return call({StoreOperation::kWait, key, {}}, timeout_ms);
    // Not willing to wait for the key; but the answer takes the network's time all the same.
    return call({StoreOperation::kPeek, key, {}}, timeout_ms_);
  }

  [[nodiscard]] std::string host() const override { return host_; }

 private:
  int64_t deadline_after(int64_t timeout_ms) const {
    const int64_t now_ns = clock_.now_ns();
    return timeout_ms > (INT64_MAX - now_ns) / kNsPerMs ? INT64_MAX
                                                        : now_ns + timeout_ms * kNsPerMs;
  }

  // Setting and waiting may both be repeated without harm, so a lost connection is made again and
  // the request sent again, until the deadline.
  Result<std::string> call(const StoreRequest& request, int64_t timeout_ms) {
    const int64_t deadline_ns = deadline_after(timeout_ms);
    for (;;) {
      std::unique_ptr<StoreClient> client;
      const Status reached = acquire(deadline_ns, &client);
      if (!reached.ok()) {
        return Status(reached.code(), std::string(reached.message()) + " (" +
                                          action(request.operation) + " key " +
                                          printable_store_key(request.key) + ")");
      }
      switch (client->exchange(request, deadline_ns)) {
        case StoreAttempt::kDone: {
          const Status status = status_of(request, client->result());
          std::string value = client->take_value();
          release(std::move(client));
          if (!status.ok()) return status;
          return value;
        }
        case StoreAttempt::kTimeout:
          return late(request, timeout_ms);
        case StoreAttempt::kLost:
          if (clock_.now_ns() >= deadline_ns) return late(request, timeout_ms);
          sleep_thread_ns(kRetryNsMin);
          break;
        case StoreAttempt::kStranger:
        case StoreAttempt::kVersion:
          return stranger();
      }
    }
  }

  static const char* action(StoreOperation operation) {
    return operation == StoreOperation::kSet ? "setting" : "waiting for";
  }

  Status late(const StoreRequest& request, int64_t timeout_ms) const {
    const std::string key = printable_store_key(request.key);
    const std::string after = " within " + std::to_string(timeout_ms) + " ms";
    if (request.operation == StoreOperation::kWait) return not_set(key, after);
    return {StatusCode::kTimeout, "store " + url_ + " did not answer about key " + key + after +
                                      ": check that rank 0 still runs and can be reached"};
  }

  Status not_set(const std::string& key, const std::string& after) const {
    return {StatusCode::kTimeout, "store " + url_ + ": key " + key + " was not set" + after +
                                      ": check that every rank was started, with the same size and "
                                      "name, or allow more time"};
  }

  Status status_of(const StoreRequest& request, StoreResult result) const {
    const std::string key = printable_store_key(request.key);
    if (result == StoreResult::kConflict) {
      return invalid_argument(
          "store " + url_ + ": key " + key +
          " already holds other bytes; keys are set once: use a name that is new "
          "in this store");
    }
    if (result == StoreResult::kFull) {
      return {StatusCode::kUnavailable,
              "store " + url_ + " is full; key " + key + " was not set: use a fresh store"};
    }
    if (result == StoreResult::kAbsent) return not_set(key, "");
    return ok_status();
  }

  Status stranger() const {
    return {StatusCode::kProtocol,
            "what answers at " + url_ +
                " is not a tersum store: another program has the port; choose "
                "another one"};
  }

  // An idle connection, or a new one; retries until the deadline while nobody listens.
  Status acquire(int64_t deadline_ns, std::unique_ptr<StoreClient>* client) {
    if (take_idle(client)) return ok_status();
    const int64_t began_ns = clock_.now_ns();
    *client = std::make_unique<StoreClient>(clock_);
    for (int64_t pause_ns = kRetryNsMin;; pause_ns = std::min(2 * pause_ns, kRetryNsMax)) {
      switch ((*client)->connect(address_, deadline_ns)) {
        case StoreAttempt::kDone:
          return ok_status();
        case StoreAttempt::kStranger:
          return stranger();
        case StoreAttempt::kVersion:
          return {StatusCode::kVersionMismatch, "the store at " + url_ + " speaks version " +
                                                    std::to_string((*client)->peer_version()) +
                                                    " of the protocol, this process " +
                                                    std::to_string(kStoreVersion) +
                                                    ": use one version of tersum on all ranks"};
        case StoreAttempt::kTimeout:
        case StoreAttempt::kLost:
          break;
      }
      const int64_t left_ns = deadline_ns - clock_.now_ns();
      if (left_ns <= 0) return unreachable(**client, began_ns);
      sleep_thread_ns(std::min(pause_ns, left_ns));
    }
  }

  Status unreachable(const StoreClient& client, int64_t began_ns) const {
    const int64_t passed_ms = (clock_.now_ns() - began_ns) / kNsPerMs;
    return {StatusCode::kTimeout, "no store answers at " + url_ + " (" + client.last_error() +
                                      ") after " + std::to_string(passed_ms) +
                                      " ms: check that rank 0 was started, that the address is its "
                                      "own and that no firewall is in between"};
  }

  bool take_idle(std::unique_ptr<StoreClient>* client) {
    const std::lock_guard lock(mutex_);
    if (idle_.empty()) return false;
    *client = std::move(idle_.back());
    idle_.pop_back();
    return true;
  }

  void release(std::unique_ptr<StoreClient> client) {
    const std::lock_guard lock(mutex_);
    if (client->connected() && idle_.size() < kIdleMax) idle_.push_back(std::move(client));
  }

  const SystemClock clock_{};
  const std::string host_;
  const std::string url_;
  const SocketAddress address_;
  const int64_t timeout_ms_;
  std::unique_ptr<StoreServer> server_;
  std::mutex mutex_;
  std::vector<std::unique_ptr<StoreClient>> idle_;
};

}  // namespace

Result<std::shared_ptr<Store>> make_tcp_store(const std::string& host, uint16_t port, bool serve,
                                              int64_t timeout_ms) {
  if (host.empty() || port == 0) {
    return invalid_argument(
        "a TCP store needs a host and a port from 1 to 65535, the same on all "
        "ranks; got host \"" +
        host + "\", port " + std::to_string(port));
  }
  Result<SocketAddress> address = resolve_host(host, port);
  if (!address.ok()) {
    return Status(address.status().code(),
                  "store " + url_of(host, port) + ": " + std::string(address.status().message()));
  }
  auto store = std::make_shared<TcpStore>(host, address.value(), timeout_ms);
  if (serve) TERSUM_RETURN_IF_ERROR(store->start_server());
  TERSUM_RETURN_IF_ERROR(store->reach());
  return std::shared_ptr<Store>(std::move(store));
}

}  // namespace tersum
