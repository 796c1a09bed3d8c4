// Store URLs, and the file store's own matters.
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <memory>
#include <string>

#include "store_fixture.h"
#include "tersum/store.h"

namespace tersum::testing {
namespace {

TEST(OpenStore, RankZeroServesTheTcpStore) {
  uint16_t port = 0;
  std::shared_ptr<Store> zero;
  for (int attempt = 0; attempt < 10 && zero == nullptr; ++attempt) {
    port = free_port();
    auto opened = open_store("tcp://127.0.0.1:" + std::to_string(port), 0, kPatienceMs);
    if (opened.ok()) zero = std::move(opened).value();
  }
  ASSERT_NE(zero, nullptr);
  const auto one = open_store("tcp://127.0.0.1:" + std::to_string(port), 1, kPatienceMs);
  ASSERT_TRUE(one.ok()) << one.status().to_string();
  ASSERT_TRUE(one.value()->set("k", "v").ok());
  EXPECT_EQ(zero->wait("k", kPatienceMs).value(), "v");
  EXPECT_EQ(one.value()->host(), "127.0.0.1");
}

TEST(OpenStore, Ipv6StandsInBrackets) {
  for (int attempt = 0; attempt < 10; ++attempt) {
    const std::string url = "tcp://[::1]:" + std::to_string(free_port());
    const auto zero = open_store(url, 0, kPatienceMs);
    if (zero.status().message().find("has no such address") != std::string_view::npos ||
        zero.status().message().find("not supported") != std::string_view::npos) {
      GTEST_SKIP() << "this host has no IPv6: " << zero.status().to_string();
    }
    if (!zero.ok()) continue;  // the port is free for IPv4 only
    EXPECT_EQ(zero.value()->host(), "::1");
    const auto one = open_store(url, 1, kPatienceMs);
    ASSERT_TRUE(one.ok()) << one.status().to_string();
    ASSERT_TRUE(one.value()->set("k", "v").ok());
    EXPECT_TRUE(says(one.value()->wait("absent", 5).status(), StatusCode::kTimeout, url));
    return;
  }
  FAIL() << "no free port in ten attempts";
}

TEST(OpenStore, FileUrlsAreAbsolutePathsWithEscapes) {
  const TemporaryDirectory directory;
  const auto store = open_store("file://" + directory.path() + "/a%20b%25/", 3, 100);
  ASSERT_TRUE(store.ok()) << store.status().to_string();
  ASSERT_TRUE(store.value()->set("k", "v").ok());
  EXPECT_TRUE(std::filesystem::exists(directory.path() + "/a b%/k.key"));
  const auto same = make_file_store(directory.path() + "/a b%");
  EXPECT_EQ(same.value()->wait("k", kPatienceMs).value(), "v");
}

TEST(OpenStore, MalformedUrlsAreExplained) {
  const std::pair<const char*, const char*> cases[] = {
      {"", "kind of store is not known"},
      {"127.0.0.1:29500", "kind of store is not known"},
      {"http://host:1", "kind of store is not known"},
      {"TCP://host:1", "kind of store is not known"},
      {"tcp:/host:1", "kind of store is not known"},
      {"tcp://", "port is missing"},
      {"tcp://host", "port is missing"},
      {"tcp://host:", "number from 1 to 65535, not \"\""},
      {"tcp://host:0", "number from 1 to 65535"},
      {"tcp://host:65536", "number from 1 to 65535"},
      {"tcp://host:-1", "number from 1 to 65535"},
      {"tcp://host:+1", "number from 1 to 65535"},
      {"tcp://host:1/", "number from 1 to 65535"},
      {"tcp://host:29500x", "number from 1 to 65535"},
      {"tcp://:29500", "host is missing"},
      {"tcp://user@host:1", "there is no host"},
      {"tcp://ho st:1", "there is no host"},
      {"tcp://a/b:1", "there is no host"},
      {"tcp://::1:29500", "IPv6 address stands in brackets"},
      {"tcp://[::1]", "port is missing"},
      {"tcp://[::1]29500", "port is missing"},
      {"tcp://[::1:29500", "bracket is not closed"},
      {"tcp://[host]:1", "brackets are for IPv6"},
      {"file://", "must be absolute"},
      {"file://relative/path", "must be absolute"},
      {"file:///a%2", "two hexadecimal digits"},
      {"file:///a%zz", "two hexadecimal digits"},
      {"file:///a%00b", "two hexadecimal digits"},
  };
  for (const auto& [url, fragment] : cases) {
    const auto store = open_store(url, 0, 50);
    EXPECT_TRUE(says(store.status(), StatusCode::kInvalidArgument, fragment)) << url;
    EXPECT_TRUE(says(store.status(), StatusCode::kInvalidArgument, std::string("\"") + url + "\""));
    EXPECT_TRUE(says(store.status(), StatusCode::kInvalidArgument, "tcp://HOST:PORT"));
  }
}

TEST(OpenStore, RanksCountFromZero) {
  EXPECT_TRUE(says(open_store("tcp://127.0.0.1:1", -1, 50).status(), StatusCode::kInvalidArgument,
                   "rank -1"));
}

TEST(FileStore, APlaceThatCannotBeWrittenIsNamed) {
  const TemporaryDirectory directory;
  const std::string file = directory.path() + "/file";
  ASSERT_TRUE(make_file_store(directory.path()).value()->set("file", "").ok());
  std::filesystem::rename(directory.path() + "/file.key", file);
  EXPECT_TRUE(says(make_file_store(file + "/below").status(), StatusCode::kUnavailable, file));
  EXPECT_TRUE(says(make_file_store("").status(), StatusCode::kInvalidArgument, "directory"));
  EXPECT_TRUE(says(make_file_store("/proc/none").status(), StatusCode::kUnavailable, "/proc/none"));
}

TEST(FileStore, LeavesNoDraftsAndNoDescriptors) {
  const TemporaryDirectory directory;
  const size_t descriptors = open_descriptors();
  {
    const auto store = make_file_store(directory.path()).value();
    for (int i = 0; i < 50; ++i) {
      EXPECT_TRUE(store->set("k", "v").ok());
      EXPECT_FALSE(store->set("k", "w").ok());
      EXPECT_TRUE(store->wait("k", 0).ok());
    }
  }
  EXPECT_EQ(entries_of(directory.path().c_str()), 1U);
  EXPECT_EQ(open_descriptors(), descriptors);
}

TEST(FileStore, AFileThatIsNoneOfOursIsRefused) {
  const TemporaryDirectory directory;
  const auto store = make_file_store(directory.path()).value();
  ASSERT_EQ(mkdir((directory.path() + "/odd.key").c_str(), 0700), 0);
  EXPECT_TRUE(says(store->wait("odd", 50).status(), StatusCode::kSystem, "odd.key"));
  EXPECT_TRUE(says(store->set("odd", "v"), StatusCode::kSystem, "odd.key"));
}

}  // namespace
}  // namespace tersum::testing
