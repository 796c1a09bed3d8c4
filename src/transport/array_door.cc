#include "transport/array_door.h"

#include "base/check.h"
#include "platform/cpu_relax.h"
#include "platform/remote_memory.h"

namespace tersum {

// Its members are those that the thread shares with its maker.
struct ArrayDoor::Keeper {
  std::mutex mutex;
  std::condition_variable changed;
  uint32_t number = 0;
  bool ends = false;
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

uint32_t ArrayDoor::number() {
  if (!asked_) renew();
  return number_;
}

void ArrayDoor::renew() {
  shut();
  asked_ = true;
  auto keeper = std::make_unique<Keeper>();
  if (!keeper->thread.start(&Keeper::run, keeper.get(), "tersum-door").ok()) return;
  std::unique_lock lock(keeper->mutex);
  keeper->changed.wait(lock, [&] { return keeper->number != 0; });
  number_ = keeper->number;
  lock.unlock();
  keeper_ = std::move(keeper);
}

void ArrayDoor::shut() {
  if (keeper_ == nullptr) return;
  {
    const std::lock_guard lock(keeper_->mutex);
    keeper_->ends = true;
  }
  keeper_->changed.notify_all();
  keeper_.reset();
  // A thread that has been joined can still be found for a moment.
  while (thread_state(number_) != ThreadState::kGone) yield_thread();
  number_ = 0;
}

ArrayGrant ArrayDoor::claim() {
  for (uint32_t slot = 0; number() != 0 && slot < kArrayGrantsMax; ++slot) {
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
