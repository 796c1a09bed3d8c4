// Messages over real links: all arrive, once, with the right bytes, whatever carries them.
#include <algorithm>
#include <random>
#include <span>

#include "base/check.h"
#include "transport/endpoint.h"

namespace tersum::testing {
namespace {

struct Way {
  TransportKind kind;
  int tcp_streams;
  const char* name;
};

class ExchangeTest : public ::testing::TestWithParam<Way> {
 protected:
  ListenOptions listen_options() const {
    ListenOptions options;
    options.tcp_streams = GetParam().tcp_streams;
    return options;
  }
};

// Bytes that tell their message and place, so that a mix-up shows: a stretch of the same random
// ones, from a place of its own. Made once, because a sanitizer takes a minute over making each.
std::span<const std::byte> pattern(uint32_t seed, size_t count) {
  constexpr uint32_t kPlaces = 65'521;
  static const std::vector<std::byte> all = [] {
    std::vector<std::byte> bytes(kPlaces + 300'000);
    uint32_t state = 12345;
    for (std::byte& byte : bytes) {
      state = state * 1664525u + 1013904223u;
      byte = static_cast<std::byte>(state >> 24);
    }
    return bytes;
  }();
  TERSUM_CHECK(kPlaces + count <= all.size());
  return std::span(all).subspan(size_t{61} * seed % kPlaces, count);
}

bool holds(const std::vector<std::byte>& bytes, std::span<const std::byte> wanted) {
  return bytes.size() == wanted.size() &&
         (wanted.empty() || std::memcmp(bytes.data(), wanted.data(), wanted.size()) == 0);
}

// `bytes` in up to kPayloadPiecesMax pieces, some of them empty.
std::vector<std::span<const std::byte>> cut(std::span<const std::byte> bytes,
                                            std::mt19937_64& random) {
  std::vector<std::span<const std::byte>> pieces;
  for (size_t left = random() % kPayloadPiecesMax; left > 0; --left) {
    const size_t step = random() % 4 == 0 ? random() % (bytes.size() + 1) : bytes.size() / left;
    pieces.push_back(bytes.first(step));
    bytes = bytes.subspan(step);
  }
  pieces.push_back(bytes);
  return pieces;
}

size_t random_size(std::mt19937_64& random) {
  switch (random() % 8) {
    case 0:
      return 0;
    case 1:
      return 1 + random() % 64;
    case 2:
      return 250 + random() % 12;
    case 3:
    case 4:
      return 1 + random() % 9000;
    case 5:
    case 6:
      return 60'000 + random() % 10'000;
    default:
      return 1 + random() % 300'000;
  }
}

void expect_all_once(const std::vector<Received>& messages, const std::vector<size_t>& sizes,
                     uint32_t salt) {
  ASSERT_EQ(messages.size(), sizes.size());
  std::vector<bool> seen(sizes.size());
  for (const Received& message : messages) {
    const uint32_t slice = message.header.slice;
    ASSERT_LT(slice, sizes.size());
    EXPECT_FALSE(seen[slice]) << "message " << slice << " came twice";
    seen[slice] = true;
    EXPECT_EQ(message.header.group, kGroup);
    ASSERT_EQ(message.payload.size(), sizes[slice]);
    ASSERT_TRUE(holds(message.payload, pattern(slice + salt, sizes[slice]))) << "message " << slice;
  }
}

TEST_P(ExchangeTest, RandomMessagesBothWaysArriveOnceWithTheirBytes) {
  const uint64_t seed = std::random_device()();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937_64 random(seed);
  Endpoint a(listen_options());
  Endpoint b(listen_options());
  a.sink.kept = random() % 20;
  b.sink.kept = random() % 20;
  Link* ab = link_up(a, b, GetParam().kind);
  ASSERT_NE(ab, nullptr);
  Link* ba = b.sink.ups[0];
  constexpr size_t kCount = 2000;
  std::array<std::vector<size_t>, 2> sizes;
  while (sizes[0].size() < kCount || sizes[1].size() < kCount) {
    for (int side = 0; side < 2; ++side) {
      Endpoint& from = side == 0 ? a : b;
      Link* link = side == 0 ? ab : ba;
      for (size_t burst = random() % 12; burst > 0 && sizes[side].size() < kCount; --burst) {
        const auto slice = static_cast<uint32_t>(sizes[side].size());
        const size_t bytes = random_size(random);
        sizes[side].push_back(bytes);
        MessageHeader header = data_header(slice, bytes);
        if (random() % 4 == 0) header.kind = MessageKind::kReady;
        link->send(header, from.payload(pattern(slice + side * 1000, bytes)));
      }
      if (random() % 2 == 0) link->flush();
      if (random() % 2 == 0) from.transport->poll();
    }
  }
  EXPECT_TRUE(poll_until({&a, &b}, [&] {
    return a.sink.messages.size() >= kCount && b.sink.messages.size() >= kCount;
  }));
  expect_all_once(b.sink.messages, sizes[0], 0);
  expect_all_once(a.sink.messages, sizes[1], 1000);
  EXPECT_EQ(ab->backlog_bytes(), 0u);
  EXPECT_EQ(ab->transport(), GetParam().kind == TransportKind::kTcp ? "tcp" : "shm");
  EXPECT_TRUE(a.sink.downs.empty());
  EXPECT_TRUE(b.sink.downs.empty());
  // Once the receivers have let go, nothing is in use any more.
  a.sink.holds.clear();
  b.sink.holds.clear();
  EXPECT_TRUE(poll_until({&a, &b}, [&] {
    return a.transport->arena().used_bytes() == 0 && b.transport->arena().used_bytes() == 0;
  }));
}

// More than the sockets take, so that rests must be copied, between messages that are not lent.
TEST_P(ExchangeTest, LentBytesMayChangeOnceTheyAreSettled) {
  const uint64_t seed = std::random_device()();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937_64 random(seed);
  Endpoint a(listen_options());
  Endpoint b(listen_options());
  Link* link = link_up(a, b, GetParam().kind);
  ASSERT_NE(link, nullptr);
  std::vector<size_t> sizes;
  std::vector<std::vector<std::byte>> lent;
  while (sizes.size() < 400) {
    lent.clear();
    for (size_t burst = 1 + random() % 20; burst > 0; --burst) {
      const auto slice = static_cast<uint32_t>(sizes.size());
      const size_t bytes = random_size(random);
      sizes.push_back(bytes);
      const SlotRef slot = a.payload(pattern(slice + 1, bytes));
      if (bytes == 0 || random() % 3 == 0) {
        link->send(data_header(slice, bytes), a.payload(pattern(slice, bytes)));
        continue;
      }
      const auto now = pattern(slice, bytes);
      lent.emplace_back(now.begin(), now.end());
      link->send_lent(data_header(slice, bytes), slot, cut(lent.back(), random));
      if (random() % 8 == 0) link->flush();
    }
    link->settle();
    for (auto& bytes : lent) std::fill(bytes.begin(), bytes.end(), std::byte{0xEE});
    if (random() % 2 == 0) a.transport->poll();
    if (random() % 4 == 0) b.transport->poll();
  }
  EXPECT_TRUE(poll_until({&a, &b}, [&] { return b.sink.messages.size() == sizes.size(); }));
  expect_all_once(b.sink.messages, sizes, 0);
  EXPECT_TRUE(poll_until({&a, &b}, [&] { return a.transport->arena().used_bytes() == 0; }));
}

TEST_P(ExchangeTest, AnUnreleasedPayloadHoldsUpNothing) {
  Endpoint a(listen_options());
  Endpoint b(listen_options());
  b.sink.kept = 1'000'000;
  Link* link = link_up(a, b, GetParam().kind);
  ASSERT_NE(link, nullptr);
  // Several times what the mailbox (1024 units) and the socket buffers hold.
  constexpr uint32_t kCount = 5000;
  for (uint32_t i = 0; i < kCount; ++i) {
    link->send(data_header(i, 2000), a.payload(pattern(i, 2000)));
  }
  EXPECT_TRUE(poll_until({&a, &b}, [&] { return b.sink.messages.size() == kCount; }));
  for (const Received& message : b.sink.messages) {
    ASSERT_TRUE(holds(message.payload, pattern(message.header.slice, 2000)));
  }
}

// What a peer has read where it lay is not the next to be written; what was copied is.
TEST_P(ExchangeTest, OnlyWhatWasReadInPlaceRests) {
  Endpoint a(listen_options());
  Endpoint b(listen_options());
  Link* link = link_up(a, b, GetParam().kind);
  ASSERT_NE(link, nullptr);
  for (const size_t bytes : {size_t{200}, size_t{1000}}) {
    const uint32_t index = a.payload(pattern(1, bytes)).index();
    link->send(data_header(0, bytes), a.payload(pattern(1, bytes)));
    EXPECT_TRUE(poll_until({&a, &b}, [&] { return a.transport->arena().used_bytes() == 0; }));
    const bool is_read_in_place = GetParam().kind == TransportKind::kSharedMemory && bytes > 256;
    EXPECT_EQ(a.payload(pattern(2, bytes)).index() != index, is_read_in_place) << bytes;
  }
}

// Who drives a link stops when there is no backlog: a header alone must count, too.
TEST_P(ExchangeTest, WhatIsOnlyAHeaderIsBacklogUntilItHasLeft) {
  Endpoint a(listen_options());
  Endpoint b(listen_options());
  Link* link = link_up(a, b, GetParam().kind);
  ASSERT_NE(link, nullptr);
  uint32_t sent = 0;
  while (link->backlog_bytes() == 0 && sent < 1'000'000) {
    link->send(data_header(sent++, 0), {});
    link->flush();
  }
  EXPECT_GT(link->backlog_bytes(), 0u);
  EXPECT_TRUE(poll_until({&a, &b}, [&] { return b.sink.messages.size() == sent; }));
  EXPECT_EQ(link->backlog_bytes(), 0u);
}

TEST_P(ExchangeTest, SendingFromWithinOnMessageWorks) {
  Endpoint a(listen_options());
  Endpoint b(listen_options());
  b.sink.also_on_message = [&](Link& link, const Received& message) {
    link.send(message.header, b.payload(message.payload));
  };
  a.sink.also_on_message = [&](Link& link, const Received& message) {
    if (message.header.slice >= 500) return;
    link.send(data_header(message.header.slice + 1, message.payload.size()),
              a.payload(message.payload));
  };
  Link* link = link_up(a, b, GetParam().kind);
  ASSERT_NE(link, nullptr);
  link->send(data_header(0, 70'000), a.payload(pattern(1, 70'000)));
  EXPECT_TRUE(poll_until({&a, &b}, [&] { return a.sink.messages.size() == 501; }));
  EXPECT_TRUE(holds(a.sink.messages.back().payload, pattern(1, 70'000)));
}

TEST_P(ExchangeTest, ACloseIsReportedAsLeavingAfterEverythingElse) {
  Endpoint a(listen_options());
  Endpoint b(listen_options());
  Link* link = link_up(a, b, GetParam().kind);
  ASSERT_NE(link, nullptr);
  for (uint32_t i = 0; i < 20; ++i) {
    link->send(data_header(i, 1000), a.payload(pattern(i, 1000)));
  }
  link->close();
  EXPECT_TRUE(link->down());
  link->send(data_header(99, 10), a.payload(pattern(1, 10)));
  link->flush();
  link->close();
  EXPECT_TRUE(poll_until({&a, &b}, [&] { return !b.sink.downs.empty(); }));
  EXPECT_EQ(b.sink.messages.size(), 20u);
  EXPECT_EQ(b.sink.downs[0].code(), StatusCode::kPeerLost);
  EXPECT_NE(b.sink.downs[0].message().find("left"), std::string_view::npos)
      << b.sink.downs[0].to_string();
  EXPECT_TRUE(a.sink.downs.empty());
  EXPECT_EQ(a.transport->find(b.transport->self()), nullptr);
  EXPECT_EQ(b.transport->find(a.transport->self()), nullptr);
  EXPECT_TRUE(poll_until({&a, &b}, [&] { return a.transport->arena().used_bytes() == 0; }));
}

TEST_P(ExchangeTest, AfterACloseTheTwoCanLinkAgain) {
  Endpoint a(listen_options());
  Endpoint b(listen_options());
  for (size_t round = 1; round <= 5; ++round) {
    (round % 2 == 0 ? a : b).connect(round % 2 == 0 ? b : a, GetParam().kind);
    ASSERT_TRUE(poll_until(
        {&a, &b}, [&] { return a.sink.ups.size() == round && b.sink.ups.size() == round; }));
    b.sink.ups.back()->send(data_header(0, 500), b.payload(pattern(7, 500)));
    ASSERT_TRUE(poll_until({&a, &b}, [&] { return a.sink.messages.size() == round; }));
    a.sink.ups.back()->close();
    ASSERT_TRUE(poll_until({&a, &b}, [&] { return b.sink.downs.size() == round; }));
  }
}

INSTANTIATE_TEST_SUITE_P(Ways, ExchangeTest,
                         ::testing::Values(Way{TransportKind::kTcp, 1, "tcp1"},
                                           Way{TransportKind::kTcp, 2, "tcp2"},
                                           Way{TransportKind::kTcp, 5, "tcp5"},
                                           Way{TransportKind::kSharedMemory, 0, "shm"}),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace tersum::testing
