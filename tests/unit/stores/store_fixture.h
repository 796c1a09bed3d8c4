// What the store tests share: free ports, fresh directories, raw connections, counts of descriptors
// and threads.
#pragma once

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <string>
#include <thread>

#include "platform/unique_fd.h"
#include "runtime/stores/store_protocol.h"
#include "tersum/store.h"

namespace tersum::testing {

inline constexpr int64_t kPatienceMs = 20'000;  // for what must happen; never a measure of speed

inline sockaddr_in loopback(uint16_t port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  return address;
}

// A socket bound to a free port of 127.0.0.1, listening or not.
struct BoundSocket {
  UniqueFd fd;
  uint16_t port = 0;
};
inline BoundSocket bind_free_port(bool listening) {
  BoundSocket bound{UniqueFd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)), 0};
  sockaddr_in address = loopback(0);
  socklen_t length = sizeof address;
  EXPECT_EQ(bind(bound.fd.get(), reinterpret_cast<sockaddr*>(&address), length), 0);
  EXPECT_EQ(getsockname(bound.fd.get(), reinterpret_cast<sockaddr*>(&address), &length), 0);
  if (listening) {
    EXPECT_EQ(listen(bound.fd.get(), 16), 0);
  }
  bound.port = ntohs(address.sin_port);
  return bound;
}
inline uint16_t free_port() { return bind_free_port(false).port; }

// A serving store on a port that was free a moment ago; tries another if somebody was faster.
inline std::shared_ptr<Store> must_serve(uint16_t* port) {
  for (int attempt = 0; attempt < 10; ++attempt) {
    *port = free_port();
    auto store = make_tcp_store("127.0.0.1", *port, true, kPatienceMs);
    if (store.ok()) return std::move(store).value();
    EXPECT_EQ(store.status().code(), StatusCode::kUnavailable) << store.status().to_string();
  }
  ADD_FAILURE() << "no free port";
  return nullptr;
}
inline std::shared_ptr<Store> must_connect(uint16_t port) {
  auto store = make_tcp_store("127.0.0.1", port, false, kPatienceMs);
  EXPECT_TRUE(store.ok()) << store.status().to_string();
  return store.ok() ? std::move(store).value() : nullptr;
}

class TemporaryDirectory {
 public:
  TemporaryDirectory() {
    std::string name = (std::filesystem::temp_directory_path() / "tersum-store-XXXXXX").string();
    path_ = mkdtemp(name.data());
  }
  ~TemporaryDirectory() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  [[nodiscard]] const std::string& path() const { return path_; }

 private:
  std::string path_;
};

// A connection that speaks bytes instead of the protocol.
class RawConnection {
 public:
  explicit RawConnection(uint16_t port) : fd_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    const sockaddr_in address = loopback(port);
    EXPECT_EQ(connect(fd_.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
  }
  void send_bytes(std::string_view bytes) {
    (void)!send(fd_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
  }
  // Exactly `count` bytes, fewer at the end of the stream or when patience ends.
  std::string receive_bytes(size_t count) {
    std::string bytes(count, '\0');
    size_t have = 0;
    while (have < count) {
      pollfd entry{fd_.get(), POLLIN, 0};
      if (poll(&entry, 1, static_cast<int>(kPatienceMs)) <= 0) break;
      const ssize_t got = recv(fd_.get(), bytes.data() + have, count - have, 0);
      if (got <= 0) break;
      have += static_cast<size_t>(got);
    }
    bytes.resize(have);
    return bytes;
  }
  void greet() {
    send_bytes(encode_store_greeting(StoreSide::kClient));
    EXPECT_EQ(receive_bytes(kStoreGreetingBytes), encode_store_greeting(StoreSide::kServer));
  }
  // True when the server closes this connection.
  bool is_dropped() {
    pollfd entry{fd_.get(), POLLIN, 0};
    if (poll(&entry, 1, static_cast<int>(kPatienceMs)) <= 0) return false;
    char byte = 0;
    return recv(fd_.get(), &byte, 1, 0) <= 0;
  }
  // Closes with a reset, as a killed host would.
  void reset() {
    const linger abort_on_close{1, 0};
    setsockopt(fd_.get(), SOL_SOCKET, SO_LINGER, &abort_on_close, sizeof abort_on_close);
    fd_.reset();
  }
  void close() { fd_.reset(); }

 private:
  UniqueFd fd_;
};

inline size_t entries_of(const char* directory) {
  size_t count = 0;
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator(directory)) ++count;
  return count;
}
inline size_t open_descriptors() { return entries_of("/proc/self/fd"); }
inline size_t running_threads() { return entries_of("/proc/self/task"); }

// True as soon as `condition` is; false when patience ends first.
inline bool eventually(const std::function<bool()>& condition) {
  for (int64_t waited_ms = 0; waited_ms < kPatienceMs; waited_ms += 2) {
    if (condition()) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  return condition();
}

inline ::testing::AssertionResult says(const Status& status, StatusCode code,
                                       std::string_view fragment) {
  if (status.code() == code && status.message().find(fragment) != std::string_view::npos) {
    return ::testing::AssertionSuccess();
  }
  return ::testing::AssertionFailure() << "got \"" << status.to_string() << "\", expected "
                                       << status_code_name(code) << " with \"" << fragment << "\"";
}

}  // namespace tersum::testing
