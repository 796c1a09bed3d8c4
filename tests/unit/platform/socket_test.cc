// Addresses and sockets: what is parsed, chosen, refused, and in which words.
#include <gtest/gtest.h>
#include <poll.h>
#include <unistd.h>

#include <array>
#include <string>
#include <vector>

#include "platform/socket_address.h"
#include "platform/stream_socket.h"

namespace tersum {
namespace {

TEST(SocketAddress, TextRoundTrips) {
  for (const char* text : {"127.0.0.1:80", "10.1.2.3:65535", "[::1]:8080", "[2001:db8::7]:1"}) {
    Result<SocketAddress> parsed = parse_socket_address(text);
    ASSERT_TRUE(parsed.ok()) << text;
    EXPECT_EQ(parsed->to_string(), text);
  }
}

TEST(SocketAddress, RefusesWhatIsNotNumeric) {
  for (const char* text : {"", ":", "127.0.0.1", "127.0.0.1:", "127.0.0.1:x", "127.0.0.1:70000",
                           "localhost:80", "::1:80", "[::1]", "[]:80", "1.2.3.4.5:1"}) {
    EXPECT_EQ(parse_socket_address(text).status().code(), StatusCode::kInvalidArgument) << text;
  }
}

TEST(SocketAddress, KnowsLoopbackAndAny) {
  EXPECT_TRUE(parse_socket_address("127.1.2.3:1")->is_loopback());
  EXPECT_TRUE(parse_socket_address("[::1]:1")->is_loopback());
  EXPECT_FALSE(parse_socket_address("10.0.0.1:1")->is_loopback());
  EXPECT_TRUE(parse_socket_address("0.0.0.0:1")->is_any());
  EXPECT_TRUE(parse_socket_address("[::]:1")->is_any());
  EXPECT_FALSE(parse_socket_address("0.0.0.1:1")->is_any());
}

TEST(ChooseListenAddress, IsLoopbackWhereTheStoreIs) {
  for (const char* store : {"", "127.0.0.1", "localhost"}) {
    Result<SocketAddress> chosen = choose_listen_address("", store, 7);
    ASSERT_TRUE(chosen.ok()) << chosen.status().to_string();
    EXPECT_TRUE(chosen->is_loopback()) << store;
    EXPECT_EQ(chosen->port(), 7);
  }
}

TEST(ChooseListenAddress, TakesAnAddressOrAnInterface) {
  EXPECT_EQ(choose_listen_address("127.0.0.9", "10.0.0.1", 5)->to_string(), "127.0.0.9:5");
  EXPECT_EQ(choose_listen_address("lo", "10.0.0.1", 5)->to_string(), "127.0.0.1:5");
}

TEST(ChooseListenAddress, NamesTheInterfacesWhenThereIsNoSuchOne) {
  const Status status = choose_listen_address("nosuch0", "", 0).status();
  EXPECT_EQ(status.code(), StatusCode::kUnavailable);
  EXPECT_NE(status.message().find("'nosuch0'"), std::string_view::npos) << status.to_string();
  EXPECT_NE(status.message().find("interfaces here: "), std::string_view::npos);
  EXPECT_NE(status.message().find("lo"), std::string_view::npos);
}

TEST(ChooseListenAddress, NamesAStoreHostThatIsUnknown) {
  const Status status = choose_listen_address("", "no-such-host.invalid", 0).status();
  EXPECT_EQ(status.code(), StatusCode::kUnavailable);
  EXPECT_NE(status.message().find("no-such-host.invalid"), std::string_view::npos);
}

TEST(ListenTcp, SaysThatAPortIsTaken) {
  Result<UniqueFd> first = listen_tcp(parse_socket_address("127.0.0.1:0").value());
  ASSERT_TRUE(first.ok());
  Result<SocketAddress> bound = local_address(first->get());
  ASSERT_TRUE(bound.ok());
  const Status status = listen_tcp(bound.value()).status();
  EXPECT_EQ(status.code(), StatusCode::kUnavailable);
  EXPECT_NE(status.message().find(bound->to_string()), std::string_view::npos);
  EXPECT_NE(status.message().find("the port is taken"), std::string_view::npos)
      << status.to_string();
}

TEST(ListenTcp, SaysThatAnAddressIsNotOfThisHost) {
  const Status status = listen_tcp(parse_socket_address("192.0.2.1:0").value()).status();
  EXPECT_EQ(status.code(), StatusCode::kUnavailable);
  EXPECT_NE(status.message().find("this host has no such address"), std::string_view::npos);
}

// A listener and a client that is connected to it by `address`.
void expect_loopback(const std::string& address) {
  Result<UniqueFd> listener = listen_tcp(parse_socket_address(address + ":0").value());
  ASSERT_TRUE(listener.ok()) << listener.status().to_string();
  EXPECT_EQ(is_loopback(listener->get()), address == "127.0.0.1") << "connected with nobody";
  Result<UniqueFd> client = start_connect_tcp(local_address(listener->get()).value());
  ASSERT_TRUE(client.ok());
  pollfd connected{client->get(), POLLOUT, 0};
  ASSERT_EQ(poll(&connected, 1, 10'000), 1);
  ASSERT_EQ(pending_error(client->get()), 0);
  EXPECT_TRUE(is_loopback(client->get())) << address;
}

TEST(IsLoopback, IsAConnectionOfThisHostWithItselfByAnyAddress) {
  expect_loopback("127.0.0.1");
  Result<SocketAddress> own = address_routing_to("192.0.2.1");
  if (!own.ok()) GTEST_SKIP() << "this host has no route to anywhere: " << own.status().to_string();
  expect_loopback(own->host_text());
}

TEST(UnixSocket, CarriesDescriptorsAndLeavesNoFile) {
  const std::string name = "tersum-socket-test-" + std::to_string(getpid());
  Result<UniqueFd> listener = listen_unix(name);
  ASSERT_TRUE(listener.ok()) << listener.status().to_string();
  Result<UniqueFd> client = connect_unix(name);
  ASSERT_TRUE(client.ok());
  Result<UniqueFd> server = accept_connection(listener->get());
  ASSERT_TRUE(server.ok() && *server);
  EXPECT_FALSE(accept_connection(listener->get()).value()) << "nobody else waits";
  const std::array<std::byte, 3> bytes = {std::byte{1}, std::byte{2}, std::byte{3}};
  const int sent = client->get();
  ASSERT_TRUE(send_at_once(client->get(), bytes, std::span(&sent, 1)));
  std::array<std::byte, 16> into;
  std::vector<UniqueFd> descriptors;
  const ReadResult got = read_socket(server->get(), into, &descriptors);
  EXPECT_EQ(got.bytes, 3u);
  ASSERT_EQ(descriptors.size(), 1u);
  EXPECT_GE(descriptors[0].get(), 0);
  const ReadResult none = read_socket(server->get(), into, &descriptors);
  EXPECT_TRUE(none.bytes == 0 && !none.ended && none.error_number == 0);
  descriptors.clear();
  client->reset();
  EXPECT_TRUE(read_socket(server->get(), into, &descriptors).ended);
  listener->reset();
  EXPECT_EQ(connect_unix(name).status().code(), StatusCode::kUnavailable);
}

}  // namespace
}  // namespace tersum
