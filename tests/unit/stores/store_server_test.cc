// The server against strangers, liars, silent, greedy and dying clients.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>

#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "platform/socket_address.h"
#include "platform/system_clock.h"
#include "runtime/stores/store_server.h"
#include "store_fixture.h"

namespace tersum::testing {
namespace {

class StoreServerTest : public ::testing::Test {
 protected:
  void serve(const StoreServerLimits& limits = {}) {
    auto server = StoreServer::start(parse_socket_address("127.0.0.1:0").value(), clock_, limits);
    ASSERT_TRUE(server.ok()) << server.status().to_string();
    server_ = std::move(server).value();
    port_ = server_->address().port();
  }

  // The server answers a client that behaves.
  void expect_alive() {
    const std::string key = "alive " + std::to_string(++probes_);
    const auto store = must_connect(port_);
    ASSERT_NE(store, nullptr);
    ASSERT_TRUE(store->set(key, "yes").ok());
    const auto got = store->wait(key, kPatienceMs);
    ASSERT_TRUE(got.ok()) << got.status().to_string();
    EXPECT_EQ(got.value(), "yes");
  }

  static std::string request(StoreOperation operation, std::string_view key,
                             std::string_view value = {}) {
    return encode_store_request({operation, key, value});
  }

  const SystemClock clock_{};
  std::unique_ptr<StoreServer> server_;
  uint16_t port_ = 0;
  int probes_ = 0;
};

TEST_F(StoreServerTest, AStrangerLosesItsConnectionOnly) {
  serve();
  const auto waiting = must_connect(port_);
  std::thread waiter([&] { EXPECT_TRUE(waiting->wait("key", kPatienceMs).ok()); });
  for (const char* greeting :
       {"GET / HTTP/1.1\r\n\r\n", "TSTRs\0\1\0", "tstrc\0\1\0", "\0\0\0\0\0\0\0\0"}) {
    RawConnection stranger(port_);
    stranger.send_bytes(std::string_view(greeting, 8));
    EXPECT_TRUE(stranger.is_dropped());
  }
  expect_alive();
  EXPECT_TRUE(must_connect(port_)->set("key", "value").ok());
  waiter.join();
}

TEST_F(StoreServerTest, RandomBytesNeverHurt) {
  serve();
  const uint64_t seed = std::random_device{}();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937_64 random(seed);
  for (int i = 0; i < 200; ++i) {
    RawConnection stranger(port_);
    if (random() % 2 == 0) stranger.greet();
    std::string bytes(random() % 300, '\0');
    for (char& byte : bytes) byte = static_cast<char>(random() % 4 == 0 ? random() : random() % 4);
    stranger.send_bytes(bytes);
    if (random() % 2 == 0) stranger.reset();
  }
  expect_alive();
}

TEST_F(StoreServerTest, LyingLengthsAreNotBelieved) {
  serve();
  const std::string lies[] = {
      std::string("\1\0\0\0\1\0\0\0v", 9),         // no key
      std::string("\1\0\1\4\1\0\0\0", 8),          // a key of 1025 bytes
      std::string("\1\0\1\0\0\0\1\0", 8),          // a value of 64 KiB
      std::string("\1\0\1\0\xff\xff\xff\xff", 8),  // a value of 4 GiB
      std::string("\2\0\1\0\1\0\0\0kv", 10),       // a wait with a value
      std::string("\0\0\1\0\0\0\0\0k", 9),         // unknown operations
      std::string("\4\0\1\0\0\0\0\0k", 9),
      std::string("\1\7\1\0\0\0\0\0k", 9),  // a reserved byte
  };
  for (const std::string& lie : lies) {
    RawConnection liar(port_);
    liar.greet();
    liar.send_bytes(lie);
    EXPECT_TRUE(liar.is_dropped());
  }
  expect_alive();
}

TEST_F(StoreServerTest, SpeakingWhileWaitingIsAnError) {
  serve();
  RawConnection rude(port_);
  rude.greet();
  rude.send_bytes(request(StoreOperation::kWait, "k") + request(StoreOperation::kSet, "k", "v"));
  EXPECT_TRUE(rude.is_dropped());
  expect_alive();
}

TEST_F(StoreServerTest, SilenceBeforeTheGreetingIsNotWaitedOut) {
  serve({.greeting_timeout_ms = 250});
  RawConnection silent(port_);
  RawConnection half(port_);
  half.send_bytes("TSTR");
  RawConnection polite(port_);
  polite.greet();
  EXPECT_TRUE(silent.is_dropped());
  EXPECT_TRUE(half.is_dropped());
  // After the greeting a client may be silent for as long as it likes.
  polite.send_bytes(request(StoreOperation::kSet, "k", "v"));
  EXPECT_EQ(polite.receive_bytes(kStoreHeaderBytes), encode_store_reply({}));
}

TEST_F(StoreServerTest, BytesMayComeOneByOneOrAllAtOnce) {
  serve();
  RawConnection slow(port_);
  for (const char byte :
       encode_store_greeting(StoreSide::kClient) + request(StoreOperation::kSet, "slow", "value")) {
    slow.send_bytes({&byte, 1});
  }
  slow.receive_bytes(kStoreGreetingBytes);
  EXPECT_EQ(slow.receive_bytes(kStoreHeaderBytes), encode_store_reply({}));
  RawConnection quick(port_);
  quick.send_bytes(encode_store_greeting(StoreSide::kClient) +
                   request(StoreOperation::kSet, "a", "1") + request(StoreOperation::kPeek, "a") +
                   request(StoreOperation::kPeek, "b") + request(StoreOperation::kWait, "slow"));
  const std::string expected = encode_store_greeting(StoreSide::kServer) + encode_store_reply({}) +
                               encode_store_reply({StoreResult::kOk, "1"}) +
                               encode_store_reply({StoreResult::kAbsent, {}}) +
                               encode_store_reply({StoreResult::kOk, "value"});
  EXPECT_EQ(quick.receive_bytes(expected.size()), expected);
}

// A client that asks and asks but does not read is not read from any more; others are served.
TEST_F(StoreServerTest, AClientThatDoesNotListenFillsNoMemory) {
  serve();
  const std::string value(60'000, 'v');
  ASSERT_TRUE(must_connect(port_)->set("large", value).ok());
  RawConnection deaf(port_);
  deaf.greet();
  constexpr int kRequests = 400;  // 24 MB of replies: more than socket buffers hold
  for (int i = 0; i < kRequests; ++i) deaf.send_bytes(request(StoreOperation::kPeek, "large"));
  expect_alive();
  const std::string reply = encode_store_reply({StoreResult::kOk, value});
  for (int i = 0; i < kRequests; ++i) ASSERT_EQ(deaf.receive_bytes(reply.size()), reply) << i;
}

TEST_F(StoreServerTest, AnotherVersionIsToldOursAndDropped) {
  serve();
  RawConnection newer(port_);
  newer.send_bytes(encode_store_greeting(StoreSide::kClient, kStoreVersion + 1));
  EXPECT_EQ(newer.receive_bytes(kStoreGreetingBytes), encode_store_greeting(StoreSide::kServer));
  EXPECT_TRUE(newer.is_dropped());
}

TEST_F(StoreServerTest, ConnectionsAreBounded) {
  serve({.connections_max = 2});
  RawConnection first(port_);
  first.greet();
  auto second = std::make_unique<RawConnection>(port_);
  second->greet();
  RawConnection third(port_);
  EXPECT_TRUE(third.is_dropped());
  second.reset();
  EXPECT_TRUE(eventually([&] {
    RawConnection again(port_);
    again.send_bytes(encode_store_greeting(StoreSide::kClient));
    return again.receive_bytes(kStoreGreetingBytes).size() == kStoreGreetingBytes;
  }));
}

TEST_F(StoreServerTest, TheTableIsBounded) {
  serve({.table_bytes_max = 10'000});
  const auto store = must_connect(port_);
  Status status;
  int entries = 0;
  for (; status.ok() && entries < 100; ++entries) {
    status = store->set("key " + std::to_string(entries), "");
  }
  EXPECT_TRUE(says(status, StatusCode::kUnavailable, "full"));
  EXPECT_GT(entries, 50);
  EXPECT_TRUE(store->set("key 0", "").ok());
  EXPECT_TRUE(store->wait("key 7", kPatienceMs).ok());
}

TEST_F(StoreServerTest, ClientsThatDieWhileWaitingAreForgotten) {
  serve();
  const size_t before = open_descriptors();
  for (int i = 0; i < 20; ++i) {
    RawConnection dying(port_);
    dying.greet();
    dying.send_bytes(request(StoreOperation::kWait, "key"));
    i % 2 == 0 ? dying.reset() : dying.close();
  }
  EXPECT_TRUE(eventually([&] { return open_descriptors() == before; }));
  expect_alive();
  EXPECT_TRUE(must_connect(port_)->set("key", "value").ok());
}

TEST_F(StoreServerTest, AKilledProcessIsForgotten) {
  serve();
  const size_t before = open_descriptors();
  int ready[2];
  ASSERT_EQ(pipe(ready), 0);
  const std::string greeting = encode_store_greeting(StoreSide::kClient);
  const std::string wait = request(StoreOperation::kWait, "key");
  const sockaddr_in address = loopback(port_);
  const pid_t child = fork();
  if (child == 0) {  // only async-signal-safe calls from here
    const int fd = socket(AF_INET, SOCK_STREAM, 0);
    bool well = connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0;
    char reply[kStoreGreetingBytes];
    well = well && write(fd, greeting.data(), greeting.size()) > 0;
    well = well && read(fd, reply, sizeof reply) == sizeof reply;
    well = well && write(fd, wait.data(), wait.size()) > 0;
    const char result = well ? 'y' : 'n';
    (void)!write(ready[1], &result, 1);
    for (;;) pause();
  }
  ASSERT_GT(child, 0);
  char result = 0;
  EXPECT_EQ(read(ready[0], &result, 1), 1);
  EXPECT_EQ(result, 'y');
  EXPECT_EQ(kill(child, SIGKILL), 0);
  EXPECT_EQ(waitpid(child, nullptr, 0), child);
  close(ready[0]);
  close(ready[1]);
  EXPECT_TRUE(eventually([&] { return open_descriptors() == before; }));
  expect_alive();
}

TEST_F(StoreServerTest, StoppingDoesNotWaitForClients) {
  serve();
  RawConnection idle(port_);
  idle.greet();
  RawConnection waiting(port_);
  waiting.greet();
  waiting.send_bytes(request(StoreOperation::kWait, "never"));
  RawConnection silent(port_);
  server_.reset();
  EXPECT_TRUE(idle.is_dropped());
  EXPECT_TRUE(waiting.is_dropped());
  EXPECT_TRUE(silent.is_dropped());
}

TEST_F(StoreServerTest, LeaksNeitherThreadsNorDescriptors) {
  const size_t threads = running_threads();
  const size_t descriptors = open_descriptors();
  for (int round = 0; round < 30; ++round) {
    serve();
    expect_alive();
    RawConnection waiting(port_);
    waiting.greet();
    waiting.send_bytes(request(StoreOperation::kWait, "never"));
    server_.reset();
  }
  EXPECT_TRUE(eventually([&] { return running_threads() == threads; }));
  EXPECT_EQ(open_descriptors(), descriptors);
}

}  // namespace
}  // namespace tersum::testing
