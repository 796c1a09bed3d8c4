#include "transport/array_door.h"

#include "base/check.h"
#include "platform/cpu_relax.h"
#include "platform/host_identity.h"
#include "platform/remote_memory.h"

namespace tersum {
namespace {

// As peers will, of this process's own memory; and peers that have been stopped must be told from
// others.
bool is_usable(uint32_t number) {
  uint64_t word = 1;
  const auto bytes = std::as_writable_bytes(std::span(&word, 1));
  uint64_t other = 0;
  const auto there = reinterpret_cast<uintptr_t>(&other);
  return write_remote(number, there, bytes) == RemoteCopy::kDone &&
         read_remote(number, there, bytes) == RemoteCopy::kDone &&
         thread_state(number) == ThreadState::kRuns;
}

}  // namespace

// Its members are those that the thread shares with its maker.
struct ArrayDoor::Keeper {
  std::mutex mutex;
  std::condition_variable changed;
  uint32_t number = 0;
  bool ends = false;
  const int64_t process = process_number();
  ServiceThread thread;  // last: it is joined before the others go

  static void run(void* self) {
    auto* const keeper = static_cast<Keeper*>(self);
    std::unique_lock lock(keeper->mutex);
    keeper->number = thread_number();
    keeper->changed.notify_all();
    keeper->changed.wait(lock, [keeper] { return keeper->ends; });
  }
};

ArrayDoor::ArrayDoor() = default;

ArrayDoor::~ArrayDoor() { shut(); }

void ArrayDoor::start() {
  if (!started_) renew();
}

void ArrayDoor::renew() {
  shut();
  started_ = true;
  auto keeper = std::make_unique<Keeper>();
  if (!keeper->thread.start(&Keeper::run, keeper.get(), "tersum-door").ok()) return;
  std::unique_lock lock(keeper->mutex);
  keeper->changed.wait(lock, [&] { return keeper->number != 0; });
  number_ = keeper->number;
  lock.unlock();
  keeper_ = std::move(keeper);
  if (!is_usable(number_)) shut();
}

void ArrayDoor::shut() {
  if (keeper_ == nullptr) return;
  if (keeper_->process != process_number()) {
    // A forked child has no such thread, and what the thread waits on cannot be destroyed.
    [[maybe_unused]] Keeper* const parents = keeper_.release();
    number_ = 0;
    return;
  }
  {
    const std::lock_guard lock(keeper_->mutex);
    keeper_->ends = true;
  }
  keeper_->changed.notify_all();
  keeper_.reset();
  // A thread that has been joined can still be found for a moment.
  while (has_thread(number_)) yield_thread();
  number_ = 0;
}

ArrayGrant ArrayDoor::claim() {
  for (uint32_t slot = 0; number_ != 0 && slot < kArrayGrantsMax; ++slot) {
    if (taken_[slot]) continue;
    taken_[slot] = true;
    return {slot, ++claims_};
  }
  return {};
}

void ArrayDoor::release(const ArrayGrant& grant) {
  TERSUM_CHECK(grant.key != 0 && taken_[grant.slot]);
  taken_[grant.slot] = false;
}

}  // namespace tersum
