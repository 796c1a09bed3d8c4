// ArrayDoor: how peers name this process when they touch its memory, and which calls let them.
//
// The name is the number of a thread that does nothing else. A peer that is stopped between having
// looked whether it may still touch an array and doing so could do it a day later; when that may be
// the case the thread ends, and with it what the peer would name. (Numbers come again when the
// system has been through all others: who stays stopped in those few instructions until then would
// find the next one that has it.)
//
// Thread safety: none (progress role). Invariant: a key is claimed once.
#pragma once

#include <array>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>

#include "platform/service_thread.h"
#include "transport/array_reach.h"

namespace tersum {

class ArrayDoor {
 public:
  ArrayDoor();
  ~ArrayDoor();
  ArrayDoor(const ArrayDoor&) = delete;
  ArrayDoor& operator=(const ArrayDoor&) = delete;

  // Begins the thread, once. Programs that never need it have none.
  void start();
  // 0: it has not begun, or this system grants none, or does not let memory be reached.
  [[nodiscard]] uint32_t number() const { return number_; }
  // When this returns no copy can begin by the old number; one that has begun goes on to its end.
  void renew();

  // A grant of no key when all are taken, or there is no number. Counts as taken until release().
  [[nodiscard]] ArrayGrant claim();
  void release(const ArrayGrant& grant);

 private:
  struct Keeper;

  void shut();

  std::unique_ptr<Keeper> keeper_;
  uint32_t number_ = 0;
  bool started_ = false;
  uint64_t claims_ = 0;
  std::array<bool, kArrayGrantsMax> taken_{};
};

}  // namespace tersum
