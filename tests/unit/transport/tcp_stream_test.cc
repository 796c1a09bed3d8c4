// TcpStream over a socket pair: whatever the pieces in which bytes arrive, the messages are those
// that were sent, and short ones take one read each.
#include "transport/tcp/tcp_stream.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <memory>
#include <random>
#include <vector>

namespace tersum {
namespace {

class Collector : public StreamSink {
 public:
  bool on_stream_message(InMessage message) override {
    const size_t chunk = message.header.chunk;
    // A landing that is dropped on the way counts as none.
    if (message.landed) {
      EXPECT_EQ(message.payload.data(), landings[chunk].data());
      payloads.push_back(landings[chunk]);
    } else {
      payloads.emplace_back(message.payload.begin(), message.payload.end());
    }
    landed += message.landed ? 1 : 0;
    return true;
  }
  // Pieces of `piece_bytes`, one after another.
  void find_stream_landing(const MessageHeader& header, Landing& landing) override {
    if (header.chunk >= landings.size()) return;
    std::span<std::byte> room = landings[header.chunk];
    for (; room.size() > piece_bytes; room = room.subspan(piece_bytes)) {
      landing.push_back(room.first(piece_bytes));
    }
    landing.push_back(room);
  }

  std::vector<std::vector<std::byte>> payloads;
  std::vector<std::vector<std::byte>> landings;  // by chunk: where payloads shall go instead
  size_t piece_bytes = size_t{1} << 20;
  size_t landed = 0;
};

class TcpStreamTest : public ::testing::Test {
 protected:
  void SetUp() override {
    int fds[2];
    ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, fds), 0);
    raw_ = fds[0];
    stream_ = std::make_unique<TcpStream>(UniqueFd(fds[1]), poller_.get(), arena_.get(), nullptr);
    const int room = 1 << 20;  // a message lies in the socket as a whole
    setsockopt(raw_, SOL_SOCKET, SO_SNDBUF, &room, sizeof room);
  }
  void TearDown() override { ::close(raw_); }

  std::vector<std::byte> message_of(size_t payload_bytes, uint32_t chunk) {
    MessageHeader header;
    header.kind = MessageKind::kData;
    header.chunk = chunk;
    header.payload_bytes = static_cast<uint32_t>(payload_bytes);
    std::array<std::byte, kMessageHeaderBytes> head{};
    encode_header(header, head);
    std::vector<std::byte> bytes(head.begin(), head.end());
    for (size_t i = 0; i < payload_bytes; ++i) bytes.push_back(static_cast<std::byte>(random_()));
    return bytes;
  }

  void write_all(const std::byte* bytes, size_t count) {
    ASSERT_EQ(::write(raw_, bytes, count), static_cast<ssize_t>(count));
    poller_->dispatch();
  }

  // One read: a budget of a byte is spent after it.
  void read_once() { stream_->receive(sink_, 1); }

  static std::vector<std::byte> payload_of(const std::vector<std::byte>& message) {
    return {message.begin() + kMessageHeaderBytes, message.end()};
  }

  std::unique_ptr<Poller> poller_ = std::move(Poller::create()).value();
  std::unique_ptr<Arena> arena_ = std::move(Arena::create(false, size_t{1} << 26)).value();
  std::mt19937_64 random_{20261126};
  Collector sink_;
  std::unique_ptr<TcpStream> stream_;
  int raw_ = -1;
};

TEST_F(TcpStreamTest, APayloadOf16KiBTakesOneReadWithItsHeader) {
  sink_.landings.assign(1, std::vector<std::byte>(16384));
  for (const uint32_t chunk : {0u, 1u}) {  // into its landing, into a slot
    const auto message = message_of(16384, chunk);
    write_all(message.data(), message.size());
    read_once();
    ASSERT_EQ(sink_.payloads.size(), chunk + 1);
    EXPECT_EQ(sink_.payloads.back(), payload_of(message));
    EXPECT_FALSE(stream_->readable()) << "the read was short: nothing more to ask for";
  }
  EXPECT_EQ(sink_.landings[0], sink_.payloads[0]);
}

TEST_F(TcpStreamTest, ManySmallMessagesTakeOneRead) {
  std::vector<std::byte> all;
  std::vector<std::vector<std::byte>> sent;
  for (uint32_t i = 0; i < 40; ++i) {
    const auto message = message_of(i * 10, i);
    sent.push_back(payload_of(message));
    all.insert(all.end(), message.begin(), message.end());
  }
  write_all(all.data(), all.size());
  read_once();
  EXPECT_EQ(sink_.payloads, sent);
}

TEST_F(TcpStreamTest, MessagesInAnyPiecesArriveWhole) {
  std::vector<std::byte> all;
  std::vector<std::vector<std::byte>> sent;
  for (uint32_t i = 0; i < 60; ++i) {
    const auto message = message_of(i % 3 == 0 ? random_() % 60'000 : random_() % 300, i);
    sent.push_back(payload_of(message));
    all.insert(all.end(), message.begin(), message.end());
  }
  sink_.landings.resize(30);
  for (size_t i = 0; i < 30; ++i) sink_.landings[i].resize(sent[i].size());
  for (size_t at = 0; at < all.size();) {
    const size_t step = std::min<size_t>(all.size() - at, 1 + random_() % (1u << random_() % 17));
    write_all(all.data() + at, step);
    at += step;
    stream_->receive(sink_, 1 << 20);
  }
  EXPECT_EQ(sink_.payloads, sent);
  EXPECT_TRUE(stream_->open() && !stream_->ended());
}

TEST_F(TcpStreamTest, LandingsInSeveralPiecesAreFilledUntilTheyAreDropped) {
  sink_.piece_bytes = 1000;
  std::vector<std::byte> all;
  std::vector<std::vector<std::byte>> sent;
  for (uint32_t i = 0; i < 40; ++i) {
    const auto message = message_of(1 + random_() % (1000 * kPayloadPiecesMax), i);
    sent.push_back(payload_of(message));
    all.insert(all.end(), message.begin(), message.end());
    sink_.landings.emplace_back(sent.back().size());
  }
  size_t drops = 0;
  for (size_t at = 0; at < all.size();) {
    const size_t step = std::min<size_t>(all.size() - at, 1 + random_() % (1u << random_() % 17));
    write_all(all.data() + at, step);
    at += step;
    stream_->receive(sink_, 1 << 20);
    if (random_() % 16 != 0) continue;
    const size_t half_there = sink_.payloads.size();
    stream_->drop_landing();
    ++drops;
    // Nothing of the rest may be written there.
    if (half_there < sink_.landings.size()) {
      std::ranges::fill(sink_.landings[half_there], std::byte{0xEE});
    }
  }
  EXPECT_EQ(sink_.payloads, sent);
  EXPECT_GT(drops, 0u);
  EXPECT_LT(sink_.landed, sent.size());
  EXPECT_GT(sink_.landed, 0u);
}

TEST_F(TcpStreamTest, AHeaderThatNobodyWritesEndsTheStream) {
  std::vector<std::byte> noise(kMessageHeaderBytes, std::byte{0xff});
  write_all(noise.data(), noise.size());
  read_once();
  EXPECT_TRUE(stream_->ended());
  EXPECT_EQ(stream_->failure().code(), StatusCode::kProtocol);
  EXPECT_TRUE(sink_.payloads.empty());
}

}  // namespace
}  // namespace tersum
