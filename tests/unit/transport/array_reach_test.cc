// Peers' arrays touched where they are: what is open can be read and written, what is closed
// cannot, whoever closed it and when.
#include "transport/array_reach.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <chrono>
#include <memory>
#include <optional>
#include <thread>
#include <vector>

#include "endpoint.h"
#include "platform/doorbell.h"
#include "platform/remote_memory.h"
#include "transport/array_door.h"
#include "transport/shm/shm_link.h"

namespace tersum::testing {
namespace {

uint64_t address_of(const void* array) { return reinterpret_cast<uintptr_t>(array); }

std::span<std::byte> bytes_of(std::vector<int>& values) {
  return std::as_writable_bytes(std::span(values));
}

// Some sandboxes forbid the system calls altogether.
bool is_allowed() {
  ArrayDoor door;
  door.start();
  return door.number() != 0;
}
#define TERSUM_SKIP_IF_FORBIDDEN() \
  if (!is_allowed()) GTEST_SKIP() << "this system lets no memory be reached"

TEST(RemoteMemory, SaysWhoIsGoneAndWhatIsNoMemory) {
  TERSUM_SKIP_IF_FORBIDDEN();
  int value = 7;
  int copy = 0;
  const auto to = std::as_writable_bytes(std::span(&copy, 1));
  EXPECT_EQ(read_remote(thread_number(), address_of(&value), to), RemoteCopy::kDone);
  EXPECT_EQ(copy, 7);
  EXPECT_EQ(read_remote(thread_number(), 0x10, to), RemoteCopy::kRefused);
  uint32_t ended = 0;
  std::thread([&] { ended = thread_number(); }).join();
  while (has_thread(ended)) std::this_thread::yield();
  EXPECT_EQ(thread_state(ended), ThreadState::kGone);
  EXPECT_EQ(read_remote(ended, address_of(&value), to), RemoteCopy::kGone);
  EXPECT_EQ(thread_state(thread_number()), ThreadState::kRuns);
}

TEST(RemoteMemory, CopiesAsFarAsThereIsMemoryAndSaysThatItWasNotAll) {
  TERSUM_SKIP_IF_FORBIDDEN();
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
  TERSUM_SKIP_IF_FORBIDDEN();
  ArrayDoor door;
  EXPECT_EQ(door.claim().key, 0u) << "it has not begun";
  door.start();
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
  TERSUM_SKIP_IF_FORBIDDEN();
  ArrayDoor door;
  door.start();
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
  void SetUp() override {
    TERSUM_SKIP_IF_FORBIDDEN();
    ASSERT_NE(link_up(a_, b_, TransportKind::kSharedMemory), nullptr);
    at_a_ = a_.sink.ups.at(0)->reach();
    at_b_ = b_.sink.ups.at(0)->reach();
    EXPECT_FALSE(at_a_->reaches()) << "no door has begun";
    a_.transport->door()->start();
    EXPECT_FALSE(at_a_->reaches()) << "the peer has shown none";
    b_.transport->door()->start();
    EXPECT_TRUE(at_b_->reaches());
    EXPECT_TRUE(at_a_->reaches());
  }

  Endpoint a_;
  Endpoint b_;
  ArrayReach* at_a_ = nullptr;
  ArrayReach* at_b_ = nullptr;
  std::vector<int> array_ = {1, 2, 3, 4};  // b's
  std::vector<int> here_ = {9, 9, 9, 9};
};

TEST_F(ArrayReachTest, TouchesWhatIsOpen) {
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

// A link whose peer is a child process that says that it touches: the test plays its mailbox.
class StoppedToucher : public ::testing::Test {
 protected:
  void SetUp() override {
    TERSUM_SKIP_IF_FORBIDDEN();
    int ends[2];
    ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends), 0);
    peer_socket_ = UniqueFd(ends[1]);
    Established parts;
    parts.carrier = Carrier::kSharedMemory;
    parts.sockets.emplace_back(ends[0]);
    parts.own_mailbox = std::move(make_mailbox(1)).value();
    parts.peer_mailbox = std::move(make_mailbox(2)).value();
    parts.peer_arena = std::move(SharedMemory::anonymous(4096)).value();
    parts.peer_doorbell = std::move(make_doorbell()).value();
    theirs_ = reinterpret_cast<MailboxLayout*>(parts.peer_mailbox.base());
    door_.start();
    const LinkContext context{arena_.get(), poller_.get(),        &clock_, &sink_,
                              nullptr,      PayloadStores::kAuto, &door_};
    link_.emplace(context, std::move(parts));
    child_ = fork();
    if (child_ == 0) {
      peer_socket_ = UniqueFd();
      for (;;) pause();
    }
    grant_ = door_.claim();
    link_->reach()->open_arrays(grant_);
    theirs_->touching[grant_.slot] = static_cast<uint32_t>(child_);
  }
  void TearDown() override {
    if (child_ <= 0) return;
    kill(child_, SIGKILL);
    waitpid(child_, nullptr, 0);
    theirs_->touching[grant_.slot] = 0;
  }

  SystemClock clock_;
  std::unique_ptr<Poller> poller_ = std::move(Poller::create()).value();
  std::unique_ptr<Arena> arena_ = std::move(Arena::create(false, size_t{1} << 24)).value();
  ArrayDoor door_;
  TransportSink* sink_ = nullptr;
  UniqueFd peer_socket_;
  MailboxLayout* theirs_ = nullptr;
  std::optional<ShmLink> link_;
  pid_t child_ = -1;
  ArrayGrant grant_;
};

TEST_F(StoppedToucher, IsNotWaitedForAndFindsNobodyBehindTheDoor) {
  const uint32_t old = door_.number();
  kill(child_, SIGSTOP);
  waitpid(child_, nullptr, WUNTRACED);
  link_->reach()->close_arrays(grant_);
  EXPECT_NE(door_.number(), old);
  EXPECT_FALSE(has_thread(old));
}

TEST_F(StoppedToucher, IsWaitedForWhileItRunsButBeginsNothing) {
  const uint32_t old = door_.number();
  std::atomic<bool> closed{false};
  std::thread closer([&] {
    link_->reach()->close_arrays(grant_);
    closed = true;
  });
  while (has_thread(old)) std::this_thread::yield();
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  EXPECT_FALSE(closed) << "it may still copy";
  theirs_->touching[grant_.slot] = 0;
  closer.join();
}

TEST_F(StoppedToucher, IsNotWaitedForWhenItIsGone) {
  kill(child_, SIGKILL);
  waitpid(child_, nullptr, 0);
  link_->reach()->close_arrays(grant_);
  SUCCEED() << "it came back";
}

TEST_F(StoppedToucher, IsNotWaitedForWhenItsSocketIsClosed) {
  peer_socket_ = UniqueFd();
  link_->reach()->close_arrays(grant_);
  SUCCEED() << "it came back";
}

TEST(ArrayReachPolicyTest, OfOneSideThatIsOffReachesNeither) {
  Endpoint a;
  Endpoint b({}, true, nullptr, PayloadStores::kAuto, ArrayReachPolicy::kOff);
  ASSERT_NE(link_up(a, b, TransportKind::kSharedMemory), nullptr);
  a.transport->door()->start();
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
