// Peers' arrays touched where they are: what is open can be read and written, what is closed
// cannot, whoever closed it and when.
#include "transport/array_reach.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <thread>
#include <vector>

#include "endpoint.h"
#include "platform/remote_memory.h"
#include "transport/array_door.h"

namespace tersum::testing {
namespace {

uint64_t address_of(const void* array) { return reinterpret_cast<uintptr_t>(array); }

std::span<std::byte> bytes_of(std::vector<int>& values) {
  return std::as_writable_bytes(std::span(values));
}

TEST(RemoteMemory, SaysWhoIsGoneAndWhatIsNoMemory) {
  int value = 7;
  int copy = 0;
  const auto to = std::as_writable_bytes(std::span(&copy, 1));
  EXPECT_EQ(read_remote(thread_number(), address_of(&value), to), RemoteCopy::kDone);
  EXPECT_EQ(copy, 7);
  EXPECT_EQ(read_remote(thread_number(), 0x10, to), RemoteCopy::kRefused);
  uint32_t ended = 0;
  std::thread([&] { ended = thread_number(); }).join();
  while (thread_state(ended) != ThreadState::kGone) std::this_thread::yield();
  EXPECT_EQ(read_remote(ended, address_of(&value), to), RemoteCopy::kGone);
  EXPECT_EQ(thread_state(thread_number()), ThreadState::kRuns);
}

TEST(RemoteMemory, CopiesAsFarAsThereIsMemoryAndSaysThatItWasNotAll) {
  const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  void* const two =
      mmap(nullptr, 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(two, MAP_FAILED);
  ASSERT_EQ(munmap(static_cast<std::byte*>(two) + page, page), 0);
  std::vector<std::byte> to(2 * page);
  EXPECT_EQ(read_remote(thread_number(), address_of(two), to), RemoteCopy::kRefused);
  EXPECT_EQ(read_remote(thread_number(), address_of(two), std::span(to).first(page)),
            RemoteCopy::kDone);
  munmap(two, page);
}

TEST(ArrayDoor, GrantsAsManyAsThereAreAndNoKeyTwice) {
  ArrayDoor door;
  std::vector<ArrayGrant> grants;
  for (size_t i = 0; i < kArrayGrantsMax; ++i) grants.push_back(door.claim());
  for (size_t i = 0; i < kArrayGrantsMax; ++i) {
    EXPECT_EQ(grants[i].slot, i);
    EXPECT_EQ(grants[i].key, i + 1);
  }
  EXPECT_EQ(door.claim().key, 0u);
  door.release(grants[2]);
  const ArrayGrant again = door.claim();
  EXPECT_EQ(again.slot, 2u);
  EXPECT_EQ(again.key, kArrayGrantsMax + 1);
}

TEST(ArrayDoor, NobodyIsBehindANumberThatWasRenewed) {
  ArrayDoor door;
  const uint32_t old = door.number();
  ASSERT_NE(old, 0u);
  int value = 7;
  std::array<std::byte, sizeof value> to{};
  ASSERT_EQ(read_remote(old, address_of(&value), to), RemoteCopy::kDone);
  door.renew();
  EXPECT_EQ(read_remote(old, address_of(&value), to), RemoteCopy::kGone);
  EXPECT_NE(door.number(), old);
  EXPECT_EQ(read_remote(door.number(), address_of(&value), to), RemoteCopy::kDone);
}

class ArrayReachTest : public ::testing::Test {
 protected:
  ArrayReachTest() {
    link_up(a_, b_, TransportKind::kSharedMemory);
    at_a_ = a_.sink.ups.at(0)->reach();
    at_b_ = b_.sink.ups.at(0)->reach();
  }

  Endpoint a_;
  Endpoint b_;
  ArrayReach* at_a_ = nullptr;
  ArrayReach* at_b_ = nullptr;
  std::vector<int> array_ = {1, 2, 3, 4};  // b's
  std::vector<int> here_ = {9, 9, 9, 9};
};

TEST_F(ArrayReachTest, TouchesWhatIsOpen) {
  ASSERT_TRUE(at_a_->reaches());
  ASSERT_TRUE(at_b_->reaches());
  const ArrayGrant grant = b_.transport->door()->claim();
  at_b_->open_arrays(grant);
  EXPECT_EQ(at_a_->read_array(grant, address_of(array_.data()), bytes_of(here_)), Touched::kDone);
  EXPECT_EQ(here_, array_);
  here_[0] = 50;
  EXPECT_EQ(at_a_->write_array(grant, address_of(array_.data()), bytes_of(here_)), Touched::kDone);
  EXPECT_EQ(array_[0], 50);
}

TEST_F(ArrayReachTest, TouchesNothingThatIsClosedOrOfAnotherCall) {
  const ArrayGrant grant = b_.transport->door()->claim();
  const uint64_t at = address_of(array_.data());
  EXPECT_EQ(at_a_->write_array(grant, at, bytes_of(here_)), Touched::kNotNow) << "not yet open";
  at_b_->open_arrays(grant);
  EXPECT_EQ(at_a_->write_array({grant.slot, grant.key + 1}, at, bytes_of(here_)), Touched::kNotNow);
  EXPECT_EQ(at_a_->write_array({grant.slot + 1, grant.key}, at, bytes_of(here_)), Touched::kNotNow);
  EXPECT_EQ(at_a_->write_array({kArrayGrantsMax, grant.key}, at, bytes_of(here_)),
            Touched::kRefused);
  at_b_->close_arrays(grant);
  EXPECT_EQ(at_a_->write_array(grant, at, bytes_of(here_)), Touched::kNotNow) << "closed";
  EXPECT_EQ(at_a_->read_array(grant, at, bytes_of(here_)), Touched::kNotNow);
  EXPECT_EQ(array_[0], 1);
}

TEST_F(ArrayReachTest, SaysThatThereIsNoArray) {
  const ArrayGrant grant = b_.transport->door()->claim();
  at_b_->open_arrays(grant);
  EXPECT_EQ(at_a_->read_array(grant, 0x10, bytes_of(here_)), Touched::kRefused);
  at_b_->close_arrays(grant);
  EXPECT_EQ(at_a_->read_array(grant, 0x10, bytes_of(here_)), Touched::kNotNow);
}

TEST_F(ArrayReachTest, FindsThePeerByItsNewDoor) {
  const ArrayGrant grant = b_.transport->door()->claim();
  at_b_->open_arrays(grant);
  const uint64_t at = address_of(array_.data());
  ASSERT_EQ(at_a_->read_array(grant, at, bytes_of(here_)), Touched::kDone);
  b_.transport->door()->renew();
  here_ = {9, 9, 9, 9};
  EXPECT_EQ(at_a_->read_array(grant, at, bytes_of(here_)), Touched::kNotNow);
  b_.transport->poll();
  EXPECT_EQ(at_a_->read_array(grant, at, bytes_of(here_)), Touched::kDone);
  EXPECT_EQ(here_, array_);
}

TEST_F(ArrayReachTest, EndsWithTheLink) {
  const ArrayGrant grant = b_.transport->door()->claim();
  at_b_->open_arrays(grant);
  b_.sink.ups[0]->close();
  ASSERT_TRUE(poll_until({&a_, &b_}, [&] { return !a_.sink.downs.empty(); }));
  EXPECT_FALSE(at_a_->reaches());
  EXPECT_EQ(at_a_->write_array(grant, address_of(array_.data()), bytes_of(here_)),
            Touched::kNotNow);
  at_b_->close_arrays(grant);
  EXPECT_EQ(array_[0], 1);
}

// One that always writes, and one that opens and closes: what was closed keeps its bytes.
TEST_F(ArrayReachTest, NothingChangesOnceItIsClosed) {
  constexpr int kRounds = 300;
  std::vector<int> array(64 * 1024, 0);
  std::vector<int> ones(array.size(), 1);
  ASSERT_TRUE(at_a_->reaches());
  std::atomic<uint64_t> key{0};
  std::atomic<bool> ends{false};
  std::atomic<int> written{0};
  std::thread writer([&] {
    while (!ends) {
      const ArrayGrant grant{0, key.load()};
      if (grant.key == 0) continue;
      const Touched touched = at_a_->write_array(grant, address_of(array.data()), bytes_of(ones));
      written += touched == Touched::kDone ? 1 : 0;
    }
  });
  for (int round = 0; round < kRounds; ++round) {
    const ArrayGrant grant = b_.transport->door()->claim();
    ASSERT_EQ(grant.slot, 0u);
    at_b_->open_arrays(grant);
    key = grant.key;
    const int before = written;
    while (round % 2 == 0 && written == before) std::this_thread::yield();
    at_b_->close_arrays(grant);
    std::fill(array.begin(), array.end(), 0);
    std::this_thread::yield();
    EXPECT_EQ(array, std::vector<int>(array.size(), 0)) << "round " << round;
    b_.transport->door()->release(grant);
  }
  ends = true;
  writer.join();
  EXPECT_GE(written, kRounds / 2);
}

TEST(ArrayReachPolicyTest, OfOneSideThatIsOffReachesNeither) {
  Endpoint a;
  Endpoint b({}, true, nullptr, PayloadStores::kAuto, ArrayReachPolicy::kOff);
  ASSERT_NE(link_up(a, b, TransportKind::kSharedMemory), nullptr);
  EXPECT_EQ(b.transport->door(), nullptr);
  EXPECT_FALSE(a.sink.ups[0]->reach()->reaches());
  EXPECT_FALSE(b.sink.ups[0]->reach()->reaches());
}

TEST(ArrayReachPolicyTest, OfTcpThereIsNone) {
  Endpoint a;
  Endpoint b;
  Link* const link = link_up(a, b, TransportKind::kTcp);
  ASSERT_NE(link, nullptr);
  EXPECT_EQ(link->reach(), nullptr);
}

}  // namespace
}  // namespace tersum::testing
