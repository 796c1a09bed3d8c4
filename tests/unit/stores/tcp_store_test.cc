// The TCP store's own matters: addresses, ports, absent and vanishing servers, other programs.
#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <string>
#include <thread>

#include "store_fixture.h"
#include "tersum/store.h"

namespace tersum::testing {
namespace {

TEST(TcpStore, APortThatIsTakenIsNamed) {
  const BoundSocket taken = bind_free_port(true);
  const auto store = make_tcp_store("127.0.0.1", taken.port, true, 100);
  EXPECT_TRUE(says(store.status(), StatusCode::kUnavailable,
                   "tcp://127.0.0.1:" + std::to_string(taken.port)));
  EXPECT_TRUE(says(store.status(), StatusCode::kUnavailable, "taken"));
}

TEST(TcpStore, AnAddressOfAnotherHostCannotBeServed) {
  // 192.0.2.0/24 is reserved for documentation: nobody's address.
  const auto store = make_tcp_store("192.0.2.1", 29'500, true, 100);
  EXPECT_TRUE(says(store.status(), StatusCode::kUnavailable, "rank 0 serves the store"));
}

TEST(TcpStore, AnUnknownHostIsNamed) {
  for (const bool serve : {false, true}) {
    const auto store = make_tcp_store("no-such-host.invalid", 29'500, serve, 100);
    EXPECT_TRUE(says(store.status(), StatusCode::kUnavailable, "no-such-host.invalid"));
  }
}

TEST(TcpStore, HostAndPortMustBeGiven) {
  EXPECT_TRUE(says(make_tcp_store("127.0.0.1", 0, true, 100).status(), StatusCode::kInvalidArgument,
                   "port"));
  EXPECT_TRUE(
      says(make_tcp_store("", 1, false, 100).status(), StatusCode::kInvalidArgument, "host"));
}

TEST(TcpStore, WithoutAServerTheTimeoutSaysWhereAndWhatToDo) {
  const BoundSocket mute = bind_free_port(false);  // bound, so that nobody else answers there
  const auto store = make_tcp_store("127.0.0.1", mute.port, false, 120);
  EXPECT_TRUE(
      says(store.status(), StatusCode::kTimeout, "tcp://127.0.0.1:" + std::to_string(mute.port)));
  EXPECT_TRUE(says(store.status(), StatusCode::kTimeout, "Connection refused"));
  EXPECT_TRUE(says(store.status(), StatusCode::kTimeout, "check that rank 0 was started"));
}

TEST(TcpStore, AServerThatNeverAnswersIsNotWaitedForLongerThanAsked) {
  const BoundSocket mute = bind_free_port(true);  // the kernel accepts, nobody speaks
  const auto store = make_tcp_store("127.0.0.1", mute.port, false, 80);
  EXPECT_TRUE(says(store.status(), StatusCode::kTimeout, "no answer"));
}

TEST(TcpStore, AClientMayComeBeforeItsServer) {
  for (int attempt = 0; attempt < 10; ++attempt) {
    const uint16_t port = free_port();
    std::thread client([&] {
      const auto store = make_tcp_store("127.0.0.1", port, false, kPatienceMs);
      ASSERT_TRUE(store.ok()) << store.status().to_string();
      EXPECT_TRUE(store.value()->set("early", "bird").ok());
    });
    std::this_thread::sleep_for(std::chrono::milliseconds(30));
    const auto server = make_tcp_store("127.0.0.1", port, true, kPatienceMs);
    if (!server.ok()) {  // another program took the port meanwhile
      client.detach();
      continue;
    }
    EXPECT_EQ(server.value()->wait("early", kPatienceMs).value(), "bird");
    client.join();
    return;
  }
  FAIL() << "no free port in ten attempts";
}

// Answers each connection with `reply` until destroyed.
class FakeServer {
 public:
  explicit FakeServer(std::string reply) : reply_(std::move(reply)), bound_(bind_free_port(true)) {
    thread_ = std::thread([this] {
      while (!stop_) {
        pollfd entry{bound_.fd.get(), POLLIN, 0};
        if (poll(&entry, 1, 5) <= 0) continue;
        const UniqueFd fd(accept(bound_.fd.get(), nullptr, nullptr));
        char greeting[kStoreGreetingBytes];
        (void)!recv(fd.get(), greeting, sizeof greeting, MSG_WAITALL);
        (void)!send(fd.get(), reply_.data(), reply_.size(), MSG_NOSIGNAL);
      }
    });
  }
  ~FakeServer() {
    stop_ = true;
    thread_.join();
  }
  [[nodiscard]] uint16_t port() const { return bound_.port; }

 private:
  const std::string reply_;
  const BoundSocket bound_;
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

TEST(TcpStore, AnotherProgramOnThePortIsRecognized) {
  const FakeServer web("HTTP/1.1 400 Bad Request\r\n\r\n");
  const auto store = make_tcp_store("127.0.0.1", web.port(), false, kPatienceMs);
  EXPECT_TRUE(says(store.status(), StatusCode::kProtocol, "not a tersum store"));
}

TEST(TcpStore, AnotherVersionIsRecognized) {
  const FakeServer newer(encode_store_greeting(StoreSide::kServer, kStoreVersion + 1));
  const auto store = make_tcp_store("127.0.0.1", newer.port(), false, kPatienceMs);
  EXPECT_TRUE(says(store.status(), StatusCode::kVersionMismatch, "version 2"));
}

TEST(TcpStore, AServerThatBreaksTheProtocolIsRecognized) {
  const FakeServer liar(encode_store_greeting(StoreSide::kServer) + "\7garbage");
  const auto store = make_tcp_store("127.0.0.1", liar.port(), false, kPatienceMs);
  ASSERT_TRUE(store.ok()) << store.status().to_string();
  EXPECT_TRUE(says(store.value()->set("k", "v"), StatusCode::kProtocol, "not a tersum store"));
}

TEST(TcpStore, AServerThatHangsUpIsRetriedUntilTheDeadline) {
  const FakeServer closing("");
  const auto store = make_tcp_store("127.0.0.1", closing.port(), false, 60);
  EXPECT_TRUE(says(store.status(), StatusCode::kTimeout, "closed"));
}

TEST(TcpStore, AVanishedServerEndsWaitsAtTheirDeadline) {
  uint16_t port = 0;
  auto server = must_serve(&port);
  const auto client = must_connect(port);
  std::atomic<bool> waiting{false};
  Status status;
  std::thread waiter([&] {
    waiting = true;
    status = client->wait("key", 300).status();
  });
  while (!waiting) std::this_thread::yield();
  std::this_thread::sleep_for(std::chrono::milliseconds(30));
  server.reset();
  waiter.join();
  EXPECT_TRUE(says(status, StatusCode::kTimeout, "waiting for key \"key\""));
  EXPECT_TRUE(says(status, StatusCode::kTimeout, "no store answers at tcp://127.0.0.1:"));
}

TEST(TcpStore, ALostConnectionIsMadeAgain) {
  uint16_t port = 0;
  auto server = must_serve(&port);
  const auto client = must_connect(port);
  ASSERT_TRUE(client->set("before", "1").ok());
  std::thread waiter([&] {
    const auto got = client->wait("after", kPatienceMs);
    ASSERT_TRUE(got.ok()) << got.status().to_string();
    EXPECT_EQ(got.value(), "2");
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(30));
  server.reset();
  const auto restarted = make_tcp_store("127.0.0.1", port, true, kPatienceMs);
  ASSERT_TRUE(restarted.ok()) << restarted.status().to_string();
  EXPECT_TRUE(client->set("after", "2").ok());
  waiter.join();
}

TEST(TcpStore, ManyClientsKeepOneConnectionEach) {
  uint16_t port = 0;
  const auto server = must_serve(&port);
  const size_t before = open_descriptors();
  std::vector<std::shared_ptr<Store>> clients;
  for (int i = 0; i < 100; ++i) clients.push_back(must_connect(port));
  for (auto& client : clients) {
    ASSERT_NE(client, nullptr);
    ASSERT_TRUE(client->set("all", "same").ok());
  }
  EXPECT_EQ(open_descriptors(), before + 200);  // both ends are in this process
  clients.clear();
  EXPECT_TRUE(eventually([&] { return open_descriptors() == before; }));
}

TEST(TcpStore, LeaksNothing) {
  const size_t threads = running_threads();
  const size_t descriptors = open_descriptors();
  for (int round = 0; round < 10; ++round) {
    uint16_t port = 0;
    const auto server = must_serve(&port);
    const auto client = must_connect(port);
    EXPECT_FALSE(client->wait("never", 5).ok());
    EXPECT_FALSE(make_tcp_store("127.0.0.1", port, true, 5).ok());
  }
  EXPECT_TRUE(eventually([&] { return running_threads() == threads; }));
  EXPECT_EQ(open_descriptors(), descriptors);
}

}  // namespace
}  // namespace tersum::testing
