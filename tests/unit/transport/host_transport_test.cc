// HostTransport as a whole: where it listens, whom it links, what it leaves behind.
#include <atomic>
#include <chrono>
#include <random>
#include <thread>

#include "platform/cache_size.h"
#include "platform/cpu_count.h"
#include "platform/stream_socket.h"
#include "transport/endpoint.h"
#include "transport/open_descriptors.h"
#include "transport/peer_address.h"
#include "transport/shm/mailbox.h"

namespace tersum::testing {
namespace {

Status listen_status(const ListenOptions& listen) {
  SystemClock clock;
  SystemRandom random;
  HostTransportOptions options;
  options.clock = &clock;
  options.random = &random;
  options.arena_capacity_bytes = size_t{1} << 28;
  Result<std::unique_ptr<Transport>> transport = make_host_transport(options);
  EXPECT_TRUE(transport.ok());
  return (*transport)->listen(listen);
}

TEST(HostTransport, SaysWhatIsWrongWithItsListenOptions) {
  ListenOptions options;
  options.listen_address = "nosuch0";
  EXPECT_EQ(listen_status(options).code(), StatusCode::kUnavailable);
  options.listen_address = "192.0.2.1";
  EXPECT_EQ(listen_status(options).code(), StatusCode::kUnavailable);
  options = {};
  options.tcp_streams = 17;
  EXPECT_EQ(listen_status(options).code(), StatusCode::kInvalidArgument);
  options.tcp_streams = -1;
  EXPECT_EQ(listen_status(options).code(), StatusCode::kInvalidArgument);
  Result<UniqueFd> holder = listen_tcp(parse_socket_address("127.0.0.1:0").value());
  ASSERT_TRUE(holder.ok());
  options = {};
  options.listen_port = local_address(holder->get()).value().port();
  const Status taken = listen_status(options);
  EXPECT_EQ(taken.code(), StatusCode::kUnavailable);
  EXPECT_NE(taken.message().find("the port is taken"), std::string_view::npos);
}

TEST(HostTransport, ListensOnceAndTellsWhere) {
  Endpoint endpoint;
  const std::string first = endpoint.transport->address();
  ListenOptions other;
  other.listen_address = "nosuch0";
  EXPECT_TRUE(endpoint.transport->listen(other).ok()) << "later calls keep the first choice";
  EXPECT_EQ(endpoint.transport->address(), first);
  const Result<ProcessId> id = endpoint.transport->parse_peer(first);
  ASSERT_TRUE(id.ok());
  EXPECT_EQ(id.value(), endpoint.transport->self());
  EXPECT_EQ(parse_peer_address(first).value().tcp.rfind("127.0.0.1:", 0), 0u) << first;
  for (const char* text : {"", "tersum:1;", "tersum:1;id=12;tcp=x", "tersum:2;id=0", "rank0",
                           "tersum:1;id=00000000000000000000000000000001"}) {
    EXPECT_EQ(endpoint.transport->parse_peer(text).status().code(), StatusCode::kProtocol);
  }
}

TEST(HostTransport, KnowsWhoIsOnOneHost) {
  const Endpoint a;
  const Endpoint b({}, false);
  PeerAddress address = parse_peer_address(b.transport->address()).value();
  if (address.boot.empty() || address.network.empty()) GTEST_SKIP() << "the host hides its ids";
  const std::string here = a.transport->host_of(a.transport->address());
  EXPECT_EQ(a.transport->host_of(b.transport->address()), here);
  EXPECT_EQ(b.transport->host_of(a.transport->address()), here);
  EXPECT_EQ(b.transport->host_of(b.transport->address()), here);
  for (std::string* const field : {&address.boot, &address.network}) {
    const std::string before = std::exchange(*field, "another");
    EXPECT_NE(a.transport->host_of(address.to_string()), here) << address.to_string();
    *field = "";
    PeerAddress other = address;
    other.id.low += 1;
    EXPECT_NE(a.transport->host_of(address.to_string()), here) << address.to_string();
    EXPECT_NE(a.transport->host_of(address.to_string()), a.transport->host_of(other.to_string()))
        << "of two processes whose hosts nobody knows";
    *field = before;
  }
  EXPECT_NE(a.transport->host_of("no address"), here);
}

TEST(HostTransport, SaysHowMuchItsCacheHolds) {
  const Endpoint a;
  const std::string own = a.transport->address();
  EXPECT_EQ(a.transport->cache_bytes_of(own), last_level_cache_bytes());
  EXPECT_EQ(a.transport->cache_bytes_of("no address"), 0u);
  PeerAddress address = parse_peer_address(own).value();
  address.cache_bytes = 32 << 20;
  EXPECT_EQ(a.transport->cache_bytes_of(address.to_string()), size_t{32} << 20);
  address.cache_bytes = 0;  // as of an earlier version
  const std::string silent = address.to_string();
  EXPECT_EQ(silent.find("cache"), std::string::npos);
  for (const char* const field : {"", ";cache=", ";cache=-1", ";cache=1K", ";cache= 1",
                                  ";cache=1000000000000000", ";cache=0x10"}) {
    EXPECT_EQ(a.transport->cache_bytes_of(silent + field), 0u) << field;
    EXPECT_TRUE(a.transport->parse_peer(silent + field).ok()) << field;
  }
}

TEST(HostTransport, SaysOnWhichCpusItMayRun) {
  const Endpoint a;
  const std::string own = a.transport->address();
  EXPECT_EQ(a.transport->cpus_of(own), own_cpus());
  EXPECT_EQ(a.transport->cpus_of("no address"), "");
  PeerAddress address = parse_peer_address(own).value();
  address.cpus = "0f";
  EXPECT_EQ(a.transport->cpus_of(address.to_string()), "0f");
  address.cpus = "";  // as of an earlier version
  const std::string silent = address.to_string();
  EXPECT_EQ(silent.find("cpus"), std::string::npos);
  const std::string endless = ";cpus=" + std::string(kCpuDigitsMax + 1, 'f');
  for (const std::string& field :
       {std::string(), std::string(";cpus="), std::string(";cpus=0"), std::string(";cpus=30"),
        std::string(";cpus=-4"), std::string(";cpus=F"), endless}) {
    EXPECT_EQ(a.transport->cpus_of(silent + field), "") << field;
    EXPECT_TRUE(a.transport->parse_peer(silent + field).ok()) << field;
  }
}

TEST(HostTransport, LinksOverIpv6) {
  ListenOptions options;
  options.listen_address = "::1";
  if (!listen_status(options).ok()) GTEST_SKIP() << "this host has no IPv6 loopback";
  Endpoint a(options);
  Endpoint b(options);
  EXPECT_NE(link_up(a, b, TransportKind::kTcp), nullptr);
}

TEST(HostTransport, ChoosesSharedMemoryOnOneHostAndTcpOtherwise) {
  Endpoint a;
  Endpoint b;
  Endpoint without({}, false);
  EXPECT_EQ(link_up(a, b, TransportKind::kAuto)->transport(), "shm");
  EXPECT_EQ(link_up(without, a, TransportKind::kAuto)->transport(), "tcp");
}

TEST(HostTransport, SaysWhySharedMemoryIsImpossible) {
  Endpoint a;
  Endpoint b;
  Endpoint without({}, false);
  const PeerAddress other = parse_peer_address(b.transport->address()).value();
  PeerAddress elsewhere = other;
  elsewhere.boot = "another";
  PeerAddress shaped = other;
  shaped.network = "net:[1]";
  std::vector<std::pair<std::string, std::string>> cases = {
      {elsewhere.to_string(), "different hosts"},
      {shaped.to_string(), "different network namespaces"},
      {without.transport->address(), "set up without it"}};
  for (const auto& [address, why] : cases) {
    a.sink.failures.clear();
    a.transport->connect(address, kGroup, kToken, TransportKind::kSharedMemory,
                         a.clock.now_ns() + 10 * kSecondNs);
    ASSERT_TRUE(poll_until({&a}, [&] { return !a.sink.failures.empty(); }));
    EXPECT_EQ(a.sink.failures[0].second.code(), StatusCode::kUnavailable);
    EXPECT_NE(a.sink.failures[0].second.message().find(why), std::string_view::npos)
        << a.sink.failures[0].second.to_string();
  }
}

TEST(HostTransport, ReportsWhatCannotBeConnectedTo) {
  Endpoint a;
  a.transport->connect("rubbish", kGroup, kToken, TransportKind::kAuto, a.clock.now_ns());
  a.transport->connect(a.transport->address(), kGroup, kToken, TransportKind::kAuto,
                       a.clock.now_ns());
  ASSERT_TRUE(poll_until({&a}, [&] { return a.sink.failures.size() == 2; }));
  EXPECT_EQ(a.sink.failures[0].second.code(), StatusCode::kProtocol);
  EXPECT_EQ(a.sink.failures[1].second.code(), StatusCode::kInvalidArgument);
  std::string gone;
  {
    Endpoint b;
    gone = b.transport->address();
  }
  a.transport->connect(gone, kGroup, kToken, TransportKind::kTcp, a.clock.now_ns() + kSecondNs / 5);
  ASSERT_TRUE(poll_until({&a}, [&] { return a.sink.failures.size() == 3; }));
  EXPECT_EQ(a.sink.failures[2].second.code(), StatusCode::kTimeout);
  EXPECT_NE(a.sink.failures[2].second.message().find("Connection refused"), std::string_view::npos)
      << a.sink.failures[2].second.to_string();
}

TEST(HostTransport, SimultaneousConnectsMakeOneLink) {
  const uint64_t seed = std::random_device()();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937_64 random(seed);
  const std::array kinds = {TransportKind::kTcp, TransportKind::kSharedMemory,
                            TransportKind::kAuto};
  for (int round = 0; round < 60; ++round) {
    ListenOptions options;
    options.tcp_streams = 1 + static_cast<int>(random() % 4);
    Endpoint a(options);
    Endpoint b(options);
    a.connect(b, kinds[random() % kinds.size()]);
    for (uint64_t i = random() % 4; i > 0; --i) (random() % 2 ? a : b).transport->poll();
    b.connect(a, kinds[random() % kinds.size()]);
    const auto linked = [&] { return !a.sink.ups.empty() && !b.sink.ups.empty(); };
    const SystemClock clock;
    const int64_t deadline = clock.now_ns() + 20 * kSecondNs;
    while (!linked() && clock.now_ns() < deadline) {
      (random() % 2 ? a : b).transport->poll();
    }
    ASSERT_TRUE(linked());
    // Nothing else comes of the connection that lost.
    for (int i = 0; i < 200; ++i) (random() % 2 ? a : b).transport->poll();
    ASSERT_EQ(a.sink.ups.size(), 1u);
    ASSERT_EQ(b.sink.ups.size(), 1u);
    ASSERT_TRUE(a.sink.downs.empty() && b.sink.downs.empty());
    ASSERT_TRUE(a.sink.failures.empty() && b.sink.failures.empty());
    a.sink.ups[0]->send(data_header(1, 0), {});
    b.sink.ups[0]->send(data_header(2, 0), {});
    ASSERT_TRUE(poll_until(
        {&a, &b}, [&] { return a.sink.messages.size() == 1 && b.sink.messages.size() == 1; }));
  }
}

TEST(HostTransport, ManyEndpointsLinkAllWithAll) {
  std::vector<std::unique_ptr<Endpoint>> endpoints;
  std::vector<Endpoint*> all;
  for (int i = 0; i < 9; ++i) {
    ListenOptions options;
    options.tcp_streams = 2;
    endpoints.push_back(std::make_unique<Endpoint>(options));
    all.push_back(endpoints.back().get());
  }
  for (size_t i = 0; i < all.size(); ++i) {
    for (size_t j = 0; j < all.size(); ++j) {
      if (i != j)
        all[i]->connect(*all[j], i < 4 && j < 4 ? TransportKind::kTcp : TransportKind::kAuto);
    }
  }
  EXPECT_TRUE(poll_until(all, [&] {
    return std::all_of(all.begin(), all.end(),
                       [&](Endpoint* one) { return one->sink.ups.size() == all.size() - 1; });
  }));
  for (Endpoint* one : all) {
    EXPECT_EQ(one->sink.ups.size(), all.size() - 1);
    EXPECT_TRUE(one->sink.downs.empty());
  }
}

TEST(HostTransport, LeavesNoDescriptorBehind) {
  const auto exercise = [] {
    ListenOptions options;
    options.tcp_streams = 3;
    Endpoint a(options);
    Endpoint b(options);
    Endpoint c(options);
    link_up(a, b, TransportKind::kTcp);
    Link* shm = link_up(c, b, TransportKind::kSharedMemory);
    shm->send(data_header(1, 5000), c.payload(std::vector<std::byte>(5000)));
    EXPECT_TRUE(poll_until({&a, &b, &c}, [&] { return !b.sink.messages.empty(); }));
    a.sink.ups[0]->close();
    EXPECT_TRUE(poll_until({&a, &b, &c}, [&] { return !b.sink.downs.empty(); }));
  };
  exercise();
  const size_t before = open_descriptors();
  for (int i = 0; i < 5; ++i) exercise();
  EXPECT_EQ(open_descriptors(), before);
}

TEST(HostTransport, AClosedLinkFreesItsDescriptorsWhileTheTransportLives) {
  for (const TransportKind kind : {TransportKind::kTcp, TransportKind::kSharedMemory}) {
    Endpoint a;
    Endpoint b;
    const size_t before = open_descriptors();
    Link* link = link_up(a, b, kind);
    ASSERT_NE(link, nullptr);
    EXPECT_GT(open_descriptors(), before);
    link->close();
    EXPECT_TRUE(poll_until({&a, &b}, [&] { return open_descriptors() == before; }))
        << open_descriptors() << " descriptors, " << before << " before";
  }
}

// The payload stays as it was sent for as long as somebody reads it, even if its sender has closed
// the link and goes on using its memory.
TEST(HostTransport, BytesDoNotChangeUnderAReaderWhenTheSenderCloses) {
  Endpoint a;
  Endpoint b;
  b.sink.kept = 1000;
  Link* link = link_up(a, b, TransportKind::kSharedMemory);
  ASSERT_NE(link, nullptr);
  std::span<const std::byte> seen;
  struct Peek : Recorder {
    std::span<const std::byte>* seen;
    void on_message(Link& link, InMessage message) override {
      *seen = message.payload;
      Recorder::on_message(link, std::move(message));
    }
  } peek;
  peek.kept = 1000;
  peek.seen = &seen;
  b.transport->set_sink(&peek);
  const std::vector<std::byte> ones(70'000, std::byte{1});
  link->send(data_header(1, ones.size()), a.payload(ones));
  ASSERT_TRUE(poll_until({&a, &b}, [&] { return !seen.empty(); }));
  link->close();
  ASSERT_TRUE(poll_until({&a, &b}, [&] { return !peek.downs.empty(); }));
  const std::vector<std::byte> twos(70'000, std::byte{2});
  for (int i = 0; i < 10; ++i) {
    const SlotRef slot = a.payload(twos);
    a.transport->poll();
  }
  EXPECT_TRUE(std::equal(seen.begin(), seen.end(), ones.begin()));
  EXPECT_GT(a.transport->arena().used_bytes(), 0u);
  peek.holds.clear();
  EXPECT_TRUE(poll_until({&a, &b}, [&] { return a.transport->arena().used_bytes() == 0; }));
}

// Two threads, a transport each, that sleep whenever they have nothing to do: one lost wake-up
// would stall for the whole timeout.
TEST(HostTransport, NoWakeUpIsLostBetweenSleepers) {
  for (const TransportKind kind : {TransportKind::kSharedMemory, TransportKind::kTcp}) {
    constexpr uint32_t kRounds = 10'000;
    Endpoint a;
    Endpoint b;
    Link* ab = link_up(a, b, kind);
    ASSERT_NE(ab, nullptr);
    Link* ba = b.sink.ups[0];
    const SystemClock clock;
    const auto play = [&](Endpoint& own, Link* link, bool first) {
      std::mt19937_64 random(first ? 1 : 2);
      uint32_t sent = 0;
      int64_t longest_ns = 0;
      const std::vector<std::byte> bytes(600);
      for (;;) {
        if (sent < kRounds && own.sink.messages.size() + (first ? 1 : 0) > sent) {
          const size_t size = random() % 2 == 0 ? 0 : bytes.size();
          link->send(data_header(sent++, size), own.payload(std::span(bytes).first(size)));
          link->flush();
        }
        if (own.sink.messages.size() == kRounds && sent == kRounds) break;
        bool moved = false;
        for (uint64_t spins = 1 + random() % 3; spins > 0; --spins) moved |= own.transport->poll();
        if (moved) continue;
        const int64_t start = clock.now_ns();
        own.transport->wait(20 * kSecondNs);
        longest_ns = std::max(longest_ns, clock.now_ns() - start);
      }
      EXPECT_LT(longest_ns, 15 * kSecondNs)
          << transport_kind_name(kind) << (first ? " first" : " second");
    };
    std::thread other([&] { play(b, ba, false); });
    play(a, ab, true);
    other.join();
    EXPECT_EQ(a.sink.messages.size(), kRounds);
  }
}

// A release that found the mailbox full has nothing else that would bring it along.
TEST(HostTransport, ASleeperWithReleasesHearsOfRoomInItsMailbox) {
  Endpoint a;
  Endpoint b;
  b.sink.kept = 1;
  Link* ab = link_up(a, b, TransportKind::kSharedMemory);
  ASSERT_NE(ab, nullptr);
  Link* ba = b.sink.ups[0];
  ab->send(data_header(0, 600), a.payload(std::vector<std::byte>(600)));
  ASSERT_TRUE(poll_until({&a, &b}, [&] { return b.sink.messages.size() == 1; }));
  for (size_t i = 0; i < kUnits; ++i) ba->send(data_header(0, 0), {});
  EXPECT_EQ(ba->backlog_bytes(), 0u);
  b.sink.holds.clear();
  const SystemClock clock;
  const int64_t start = clock.now_ns();
  std::atomic<bool> sleeps{false};
  std::atomic<bool> over{false};
  std::thread sleeper([&] {
    while (!over.load()) {
      b.transport->poll();
      sleeps.store(true);
      b.transport->wait(20 * kSecondNs);
    }
  });
  while (!sleeps.load()) std::this_thread::yield();
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  EXPECT_TRUE(
      poll_until({&a}, [&] { return a.transport->arena().used_bytes() == 0; }, 40 * kSecondNs));
  EXPECT_LT(clock.now_ns() - start, 15 * kSecondNs);
  over.store(true);
  b.transport->wake();
  sleeper.join();
}

TEST(HostTransport, WakeEndsAWaitFromAnotherThread) {
  Endpoint a;
  for (int i = 0; i < 50; ++i) {
    const SystemClock clock;
    const int64_t start = clock.now_ns();
    std::thread waker([&] { a.transport->wake(); });
    a.transport->wait(20 * kSecondNs);
    waker.join();
    EXPECT_LT(clock.now_ns() - start, 15 * kSecondNs);
  }
}

}  // namespace
}  // namespace tersum::testing
