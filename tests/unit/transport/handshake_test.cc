// Who gets in: strangers, liars and silent connections do not, and do no harm.
#include <sys/socket.h>
#include <unistd.h>

#include "platform/cpu_relax.h"
#include "platform/stream_socket.h"
#include "tersum/version.h"
#include "transport/endpoint.h"
#include "transport/open_descriptors.h"
#include "transport/peer_address.h"
#include "wire/handshake.h"

namespace tersum::testing {
namespace {

class ManualClock : public Clock {
 public:
  [[nodiscard]] int64_t now_ns() const override { return now_ns_; }
  void advance(int64_t duration_ns) { now_ns_ += duration_ns; }

 private:
  int64_t now_ns_ = kSecondNs;
};

// A hand-driven connection to an endpoint's listener.
class Stranger {
 public:
  Stranger(const Endpoint& target, Carrier carrier) : own_id_{123, 456} {
    const PeerAddress address = parse_peer_address(target.transport->address()).value();
    target_id_ = address.id;
    carrier_ = carrier;
    if (carrier == Carrier::kTcp) {
      fd_ = std::move(start_connect_tcp(parse_socket_address(address.tcp).value()).value());
    } else {
      fd_ = std::move(connect_unix(address.unix_name).value());
    }
  }

  HandshakeFrame hello() const {
    HandshakeFrame frame;
    frame.version = kWireVersion;
    frame.kind = HandshakeKind::kHello;
    frame.carrier = carrier_;
    frame.stream_count = 1;
    frame.attempt = 42;
    frame.from = {own_id_.high, own_id_.low};
    frame.to = {target_id_.high, target_id_.low};
    frame.group = kGroup;
    frame.token = kToken;
    return frame;
  }
  void say(const HandshakeFrame& frame) {
    std::array<std::byte, kHandshakeBytes> bytes;
    encode_handshake(frame, bytes);
    say(bytes);
  }
  void say(std::span<const std::byte> bytes) {
    const SystemClock clock;
    const int64_t deadline = clock.now_ns() + 5 * kSecondNs;
    while (!send_at_once(fd_.get(), bytes) && clock.now_ns() < deadline) yield_thread();
  }
  // Whether the endpoint has closed the connection; what it said before is kept.
  bool is_closed() {
    std::array<std::byte, 1024> bytes;
    for (;;) {
      const ReadResult got = read_socket(fd_.get(), bytes, nullptr);
      heard.insert(heard.end(), bytes.begin(), bytes.begin() + static_cast<ptrdiff_t>(got.bytes));
      if (got.ended || got.error_number != 0) return true;
      if (got.bytes == 0) return false;
    }
  }
  int fd() const { return fd_.get(); }

  std::vector<std::byte> heard;

 private:
  ProcessId own_id_;
  ProcessId target_id_;
  Carrier carrier_ = Carrier::kTcp;
  UniqueFd fd_;
};

class HandshakeTest : public ::testing::TestWithParam<Carrier> {
 protected:
  TransportKind kind() const {
    return GetParam() == Carrier::kTcp ? TransportKind::kTcp : TransportKind::kSharedMemory;
  }
  // The endpoint drops `stranger` without hearing of it, and goes on to serve an honest peer.
  void expect_dropped(Endpoint& target, Stranger& stranger) {
    EXPECT_TRUE(poll_until({&target}, [&] { return stranger.is_closed(); }));
    EXPECT_TRUE(target.sink.ups.empty());
    EXPECT_TRUE(target.sink.downs.empty());
    EXPECT_TRUE(target.sink.failures.empty());
    Endpoint honest;
    EXPECT_NE(link_up(honest, target, kind()), nullptr);
  }
};

TEST_P(HandshakeTest, AStrangersBytesAreDropped) {
  Endpoint target;
  Stranger stranger(target, GetParam());
  constexpr std::string_view kRequest = "GET / HTTP/1.1\r\nHost: x\r\n\r\n";
  stranger.say(std::as_bytes(std::span(kRequest)));
  expect_dropped(target, stranger);
  EXPECT_TRUE(stranger.heard.empty());
}

TEST_P(HandshakeTest, AWrongTokenIsDropped) {
  Endpoint target;
  for (const int at : {0, 15}) {
    Stranger stranger(target, GetParam());
    HandshakeFrame hello = stranger.hello();
    hello.token[static_cast<size_t>(at)] ^= std::byte{1};
    stranger.say(hello);
    EXPECT_TRUE(poll_until({&target}, [&] { return stranger.is_closed(); }));
    EXPECT_TRUE(stranger.heard.empty());
  }
  Stranger stranger(target, GetParam());
  HandshakeFrame hello = stranger.hello();
  hello.group = kGroup + 1;
  stranger.say(hello);
  expect_dropped(target, stranger);
}

TEST_P(HandshakeTest, AForgottenGroupLetsNobodyIn) {
  Endpoint target;
  target.transport->forget(kGroup);
  Stranger stranger(target, GetParam());
  stranger.say(stranger.hello());
  EXPECT_TRUE(poll_until({&target}, [&] { return stranger.is_closed(); }));
  EXPECT_TRUE(target.sink.ups.empty());
}

TEST_P(HandshakeTest, AHelloForAnotherProcessIsDropped) {
  Endpoint target;
  Stranger stranger(target, GetParam());
  HandshakeFrame hello = stranger.hello();
  hello.to[1] ^= 1;
  stranger.say(hello);
  expect_dropped(target, stranger);
}

TEST_P(HandshakeTest, AFrameThatLiesAboutItsLengthIsDropped) {
  Endpoint target;
  Stranger stranger(target, GetParam());
  std::array<std::byte, kHandshakeBytes> bytes;
  encode_handshake(stranger.hello(), bytes);
  bytes[12] = bytes[13] = std::byte{0xFF};
  stranger.say(bytes);
  expect_dropped(target, stranger);
}

TEST_P(HandshakeTest, AnotherVersionHearsOursAndIsDropped) {
  Endpoint target;
  Stranger stranger(target, GetParam());
  HandshakeFrame hello = stranger.hello();
  hello.version = kWireVersion + 9;
  stranger.say(hello);
  expect_dropped(target, stranger);
  const HandshakePrefix prefix = decode_handshake_prefix(stranger.heard);
  EXPECT_TRUE(prefix.is_tersum && prefix.complete);
  EXPECT_EQ(prefix.version, kWireVersion);
}

TEST_P(HandshakeTest, SilenceIsDroppedAfterFiveSeconds) {
  ManualClock clock;
  Endpoint target({}, true, &clock);
  Stranger silent(target, GetParam());
  Stranger half(target, GetParam());
  std::array<std::byte, kHandshakeBytes> bytes;
  encode_handshake(half.hello(), bytes);
  half.say(std::span(bytes).first(50));
  for (int i = 0; i < 100; ++i) target.transport->poll();
  EXPECT_FALSE(silent.is_closed());
  clock.advance(4 * kSecondNs);
  for (int i = 0; i < 100; ++i) target.transport->poll();
  EXPECT_FALSE(silent.is_closed());
  EXPECT_FALSE(half.is_closed());
  clock.advance(kSecondNs);
  EXPECT_TRUE(poll_until({&target}, [&] { return silent.is_closed() && half.is_closed(); }));
}

TEST_P(HandshakeTest, ManySilentConnectionsDoNotKeepAnHonestOneOut) {
  Endpoint target;
  const size_t before = open_descriptors();
  std::vector<std::unique_ptr<Stranger>> crowd;
  for (int i = 0; i < 200; ++i) {
    crowd.push_back(std::make_unique<Stranger>(target, GetParam()));
    target.transport->poll();
  }
  for (int i = 0; i < 50; ++i) target.transport->poll();
  EXPECT_LE(open_descriptors() - before, crowd.size() + 64);
  Endpoint honest;
  EXPECT_NE(link_up(honest, target, kind()), nullptr);
}

TEST_P(HandshakeTest, AWelcomedPeerThatNeverConfirmsIsNoLink) {
  Endpoint target;
  {
    Stranger stranger(target, GetParam());
    stranger.say(stranger.hello());
    EXPECT_TRUE(poll_until({&target}, [&] {
      stranger.is_closed();
      return stranger.heard.size() >= kHandshakeBytes;
    }));
    EXPECT_TRUE(target.sink.ups.empty());
  }
  for (int i = 0; i < 100; ++i) target.transport->poll();
  EXPECT_TRUE(target.sink.ups.empty());
  EXPECT_TRUE(target.sink.downs.empty());
}

TEST_P(HandshakeTest, ARefusingPeerFailsAtTheDeadlineWithAReason) {
  Endpoint a;
  Endpoint b;
  b.transport->forget(kGroup);
  a.connect(b, kind(), kSecondNs / 2);
  EXPECT_TRUE(poll_until({&a, &b}, [&] { return !a.sink.failures.empty(); }));
  ASSERT_EQ(a.sink.failures.size(), 1u);
  EXPECT_EQ(a.sink.failures[0].first, b.transport->self());
  EXPECT_EQ(a.sink.failures[0].second.code(), StatusCode::kTimeout);
  EXPECT_NE(a.sink.failures[0].second.message().find("has not joined"), std::string_view::npos)
      << a.sink.failures[0].second.to_string();
}

TEST_P(HandshakeTest, APeerThatAdmitsLateIsWaitedFor) {
  Endpoint a;
  Endpoint b;
  b.transport->forget(kGroup);
  a.connect(b, kind());
  for (int i = 0; i < 200; ++i) {
    a.transport->poll();
    b.transport->poll();
  }
  EXPECT_TRUE(a.sink.ups.empty());
  b.transport->admit(kGroup, kToken);
  EXPECT_TRUE(poll_until({&a, &b}, [&] { return !a.sink.ups.empty() && !b.sink.ups.empty(); }));
}

INSTANTIATE_TEST_SUITE_P(Carriers, HandshakeTest,
                         ::testing::Values(Carrier::kTcp, Carrier::kSharedMemory),
                         [](const auto& info) {
                           return info.param == Carrier::kTcp ? "tcp" : "shm";
                         });

// Plays an acceptor of another version.
TEST(HandshakeVersions, TheConnectorNamesBoth) {
  Endpoint a;
  Endpoint b;
  Result<UniqueFd> listener = listen_tcp(parse_socket_address("127.0.0.1:0").value());
  ASSERT_TRUE(listener.ok());
  PeerAddress address = parse_peer_address(b.transport->address()).value();
  address.tcp = local_address(listener->get()).value().to_string();
  a.transport->connect(address.to_string(), kGroup, kToken, TransportKind::kTcp,
                       a.clock.now_ns() + 20 * kSecondNs);
  UniqueFd server;
  HandshakeFrame reject;
  reject.version = 77;
  reject.kind = HandshakeKind::kReject;
  reject.stream_count = 1;
  std::array<std::byte, kHandshakeBytes> bytes;
  encode_handshake(reject, bytes);
  EXPECT_TRUE(poll_until({&a}, [&] {
    if (!server) {
      server = std::move(accept_connection(listener->get()).value());
      // Another version's frame may be shorter than ours.
      if (server) send_at_once(server.get(), std::span(bytes).first(kHandshakePrefixBytes));
    }
    return !a.sink.failures.empty();
  }));
  ASSERT_EQ(a.sink.failures.size(), 1u);
  const Status& status = a.sink.failures[0].second;
  EXPECT_EQ(status.code(), StatusCode::kVersionMismatch);
  EXPECT_NE(status.message().find("wire version 77"), std::string_view::npos);
  EXPECT_NE(status.message().find("this process " + std::to_string(kWireVersion)),
            std::string_view::npos)
      << status.to_string();
}

// An authenticated peer that then talks nonsense takes its own link down, nothing else.
TEST(HandshakeAfterwards, ABadHeaderEndsTheLinkWithKProtocol) {
  for (const int what : {0, 1}) {
    Endpoint target;
    Endpoint honest;
    Link* good = link_up(honest, target, TransportKind::kTcp);
    ASSERT_NE(good, nullptr);
    Stranger liar(target, Carrier::kTcp);
    liar.say(liar.hello());
    HandshakeFrame confirm = liar.hello();
    confirm.kind = HandshakeKind::kConfirm;
    liar.say(confirm);
    std::array<std::byte, kMessageHeaderBytes> header;
    encode_header(data_header(0, 100), header);
    if (what == 0) header[0] = std::byte{99};
    if (what == 1) header[35] = std::byte{0x7F};  // a payload of 2 GB
    liar.say(header);
    EXPECT_TRUE(poll_until({&target, &honest}, [&] { return !target.sink.downs.empty(); }));
    EXPECT_EQ(target.sink.downs[0].code(), StatusCode::kProtocol)
        << target.sink.downs[0].to_string();
    EXPECT_EQ(target.transport->arena().used_bytes(), 0u);
    good->send(data_header(5, 0), {});
    EXPECT_TRUE(poll_until({&target, &honest}, [&] { return !target.sink.messages.empty(); }));
    EXPECT_EQ(target.sink.downs.size(), 1u);
  }
}

}  // namespace
}  // namespace tersum::testing
