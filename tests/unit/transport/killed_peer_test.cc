// A peer process that is killed with SIGKILL: its links go down, everything is let go, nothing is
// left on the machine.
#include <dirent.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>

#include "platform/cpu_relax.h"
#include "transport/endpoint.h"
#include "transport/peer_address.h"

namespace tersum::testing {
namespace {

// The child: links with its parent, streams messages to it without end, releases nothing.
[[noreturn]] void run_child(const std::string& parent_address, TransportKind kind) {
  Endpoint child;
  child.sink.kept = 1'000'000;
  child.transport->connect(parent_address, kGroup, kToken, kind,
                           child.clock.now_ns() + 20 * kSecondNs);
  const std::vector<std::byte> bytes(20'000, std::byte{3});
  for (uint32_t slice = 0;; ++slice) {
    child.transport->poll();
    if (child.sink.ups.empty() || child.sink.ups[0]->backlog_bytes() > 1'000'000) continue;
    child.sink.ups[0]->send(data_header(slice, bytes.size()), child.payload(bytes));
    child.sink.ups[0]->flush();
  }
}

size_t entries_of(const char* path) {
  size_t count = 0;
  DIR* folder = opendir(path);
  if (folder == nullptr) return 0;
  while (const dirent* entry = readdir(folder)) {
    count += std::string_view(entry->d_name).find("tersum") != std::string_view::npos;
  }
  closedir(folder);
  return count;
}

// The Unix sockets of this machine whose name holds `name`.
size_t unix_sockets_named(const std::string& name) {
  std::ifstream table("/proc/net/unix");
  size_t count = 0;
  for (std::string line; std::getline(table, line);) count += line.find(name) != line.npos;
  return count;
}

class KilledPeerTest : public ::testing::TestWithParam<TransportKind> {};

TEST_P(KilledPeerTest, TakesItsLinkDownAndLeavesNothing) {
  ListenOptions options;
  options.tcp_streams = 2;
  Endpoint parent(options);
  parent.sink.kept = 40;
  const std::string address = parent.transport->address();
  const pid_t child = fork();
  if (child == 0) run_child(address, GetParam());
  ASSERT_GT(child, 0);
  ASSERT_TRUE(poll_until({&parent}, [&] { return parent.sink.messages.size() > 100; }));
  Link* link = parent.sink.ups[0];
  const std::string own_name = parse_peer_address(address).value().unix_name;
  // Some of our payloads are in the child's hands when it dies.
  const std::vector<std::byte> bytes(5000);
  for (uint32_t i = 0; i < 50; ++i) {
    link->send(data_header(i, bytes.size()), parent.payload(bytes));
    parent.transport->poll();
  }
  ASSERT_EQ(kill(child, SIGKILL), 0);
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  const int64_t start = parent.clock.now_ns();
  ASSERT_TRUE(poll_until({&parent}, [&] { return !parent.sink.downs.empty(); }));
  EXPECT_LT(parent.clock.now_ns() - start, 5 * kSecondNs);
  EXPECT_EQ(parent.sink.downs[0].code(), StatusCode::kPeerLost);
  EXPECT_EQ(parent.sink.downs[0].message().find("left"), std::string_view::npos)
      << parent.sink.downs[0].to_string();
  for (const Received& message : parent.sink.messages) {
    ASSERT_TRUE(std::all_of(message.payload.begin(), message.payload.end(),
                            [](std::byte byte) { return byte == std::byte{3}; }));
  }
  link->send(data_header(0, bytes.size()), parent.payload(bytes));  // nothing happens
  EXPECT_EQ(link->backlog_bytes(), 0u);
  parent.sink.holds.clear();
  EXPECT_TRUE(poll_until({&parent}, [&] { return parent.transport->arena().used_bytes() == 0; }));
  EXPECT_EQ(parent.sink.downs.size(), 1u);
  EXPECT_EQ(entries_of("/dev/shm"), 0u);
  // Only our own listener; the ends that it accepted carry its name, too.
  EXPECT_TRUE(poll_until({&parent}, [&] { return unix_sockets_named(own_name) == 1; }));
}

TEST_P(KilledPeerTest, AStoppedPeerIsNoLostPeer) {
  Endpoint parent;
  const std::string address = parent.transport->address();
  const pid_t child = fork();
  if (child == 0) run_child(address, GetParam());
  ASSERT_GT(child, 0);
  ASSERT_TRUE(poll_until({&parent}, [&] { return parent.sink.messages.size() > 10; }));
  kill(child, SIGSTOP);
  const int64_t start = parent.clock.now_ns();
  const std::vector<std::byte> bytes(60'000);
  Link* link = parent.sink.ups[0];
  while (parent.clock.now_ns() - start < kSecondNs / 2) {
    if (link->backlog_bytes() < 1'000'000) {
      link->send(data_header(0, bytes.size()), parent.payload(bytes));
    }
    parent.transport->poll();
  }
  EXPECT_TRUE(parent.sink.downs.empty());
  const size_t before = parent.sink.messages.size();
  kill(child, SIGCONT);
  EXPECT_TRUE(poll_until({&parent}, [&] { return parent.sink.messages.size() > before + 10; }));
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  EXPECT_TRUE(poll_until({&parent}, [&] { return !parent.sink.downs.empty(); }));
}

INSTANTIATE_TEST_SUITE_P(Kinds, KilledPeerTest,
                         ::testing::Values(TransportKind::kTcp, TransportKind::kSharedMemory),
                         [](const auto& info) {
                           return std::string(transport_kind_name(info.param));
                         });

}  // namespace
}  // namespace tersum::testing
