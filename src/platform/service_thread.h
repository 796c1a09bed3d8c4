// ServiceThread: a thread of the library's own, on which no signal handler of the program runs.
//
// Thread safety: start() and the destructor by one thread. Invariant: the destructor joins; whoever
// owns the object must have told the body to end.
#pragma once

#include <pthread.h>

#include "tersum/status.h"

namespace tersum {

class ServiceThread {
 public:
  using Body = void (*)(void* context);

  ServiceThread() = default;
  ServiceThread(const ServiceThread&) = delete;
  ServiceThread& operator=(const ServiceThread&) = delete;
  ~ServiceThread() { join(); }

  // Runs `body` once on the new thread. kSystem when the system grants no further thread.
  Status start(Body body, void* context);
  void join();

 private:
  static void* run(void* self);

  pthread_t thread_{};
  bool started_ = false;
  Body body_ = nullptr;
  void* context_ = nullptr;
};

}  // namespace tersum
