// The part of ShmLink that touches the peer's arrays.
//
// Who touches says so in its own mailbox, then looks whether the grant is still open, and only then
// copies; who closes a grant says so in its own, then waits until nobody says that it touches. All
// four accesses are sequentially consistent, so one of the two sees the other.
#include <array>
#include <cstring>

#include "base/check.h"
#include "platform/cpu_relax.h"
#include "platform/remote_memory.h"
#include "transport/shm/shm_link.h"

namespace tersum {
namespace {

// Looks between two questions whether a peer that still copies has been stopped: the copy of a
// slice takes some 20 us, and looking up a thread as long.
constexpr int kLooksPerState = 64;
// From here on it is not let begin another.
constexpr int kLooksPatient = 4096;

}  // namespace

bool ShmLink::reaches() {
  if (down_ || context_.door == nullptr || context_.door->number() == 0) return false;
  show_door();
  const uint32_t door = theirs_->door.load(std::memory_order_acquire);
  // Asked anew for each call: what a process allows others may change.
  reached_door_ = door != 0 && proves_itself(door) ? door : 0;
  return reached_door_ != 0;
}

// Numbers of threads mean something else in another namespace: what is found there must be what the
// mapped mailbox holds.
bool ShmLink::proves_itself(uint32_t door) const {
  std::array<std::byte, 16> found;
  const uint64_t self_at = theirs_->self_at.load(std::memory_order_relaxed);
  if (read_remote(door, self_at + offsetof(MailboxLayout, self_at), found) != RemoteCopy::kDone) {
    return false;
  }
  const std::array<uint64_t, 2> wanted = {self_at, theirs_->proof.load(std::memory_order_relaxed)};
  return std::memcmp(found.data(), wanted.data(), found.size()) == 0;
}

void ShmLink::show_door() {
  if (own_ == nullptr || context_.door == nullptr) return;
  const uint32_t door = context_.door->number();
  if (own_->door.load(std::memory_order_relaxed) == door) return;
  own_->door.store(door, std::memory_order_release);
}

void ShmLink::open_arrays(const ArrayGrant& grant) {
  TERSUM_CHECK(grant.key != 0 && grant.slot < kArrayGrantsMax);
  if (own_ != nullptr) own_->open[grant.slot].store(grant.key, std::memory_order_seq_cst);
}

// The peer's thread that may be touching what was granted; 0: none.
uint32_t ShmLink::toucher(const ArrayGrant& grant) const {
  return theirs_ == nullptr || peer_done_
             ? 0
             : theirs_->touching[grant.slot].load(std::memory_order_seq_cst);
}

void ShmLink::close_arrays(const ArrayGrant& grant) {
  if (own_ == nullptr) return;
  own_->open[grant.slot].store(0, std::memory_order_seq_cst);
  bool renewed = false;
  for (int look = 1; toucher(grant) != 0; ++look) {
    yield_thread();
    if (look % kLooksPerState != 0) continue;
    read_socket_bytes();  // a peer that has died touches nothing
    const uint32_t thread = toucher(grant);
    if (thread == 0) return;
    const ThreadState state = thread_state(thread);
    const bool is_copying = state == ThreadState::kRuns || state == ThreadState::kUnknown;
    // Once what it would name is gone, one that is in no copy begins none.
    if (renewed && !is_copying) return;
    if (is_copying && look < kLooksPatient) continue;
    if (!renewed) context_.door->renew();
    renewed = true;
    show_door();
  }
}

template <typename Copy>
Touched ShmLink::touch(const ArrayGrant& theirs, const Copy& copy) {
  if (theirs.slot >= kArrayGrantsMax || theirs.key == 0) return Touched::kRefused;
  if (down_ || peer_ended_) return Touched::kNotNow;
  if (theirs_->door.load(std::memory_order_acquire) != reached_door_ && !reaches()) {
    return Touched::kNotNow;
  }
  const auto open = [&] {
    return theirs_->open[theirs.slot].load(std::memory_order_seq_cst) == theirs.key;
  };
  std::atomic<uint32_t>& touching = own_->touching[theirs.slot];
  touching.store(thread_number(), std::memory_order_seq_cst);
  const RemoteCopy copied = open() ? copy(reached_door_) : RemoteCopy::kGone;
  touching.store(0, std::memory_order_release);
  if (copied == RemoteCopy::kDone) return Touched::kDone;
  // By a door that was renewed nobody is found; where the arrays are is not to be judged by one
  // whose call has ended.
  return copied == RemoteCopy::kRefused && open() ? Touched::kRefused : Touched::kNotNow;
}

Touched ShmLink::read_array(const ArrayGrant& theirs, uint64_t from, std::span<std::byte> to) {
  return touch(theirs, [&](uint32_t door) { return read_remote(door, from, to); });
}

Touched ShmLink::write_array(const ArrayGrant& theirs, uint64_t to,
                             std::span<const std::byte> from) {
  return touch(theirs, [&](uint32_t door) { return write_remote(door, to, from); });
}

}  // namespace tersum
