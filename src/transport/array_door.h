// ArrayDoor: how peers name this process when they touch its memory, and which calls let them.
//
// The name is the number of a thread that does nothing else. A peer that is stopped between having
// looked whether it may still touch an array and doing so could do it a day later; when that may be
// the case the thread ends, and with it what the peer would name.
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

  // Begins the thread when it is first asked for. 0: the system grants none.
  [[nodiscard]] uint32_t number();
  // When this returns nobody can touch anything by the old number.
  void renew();

  // A grant of no key when all are taken, or there is no number. Counts as taken until release().
  [[nodiscard]] ArrayGrant claim();
  void release(const ArrayGrant& grant);

 private:
  struct Keeper;

  void shut();

  std::unique_ptr<Keeper> keeper_;
  uint32_t number_ = 0;
  bool asked_ = false;
  uint64_t claims_ = 0;
  std::array<bool, kArrayGrantsMax> taken_{};
};

}  // namespace tersum
