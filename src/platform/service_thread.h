// ServiceThread: a thread of the library's own, on which no signal handler of the program runs, and
// which `top -H` and debuggers show by name.
//
// Thread safety: start() and the destructor by one thread. Invariant: the destructor joins; whoever
// owns the object must have told the body to end.
#pragma once

#include <pthread.h>

#include "tersum/status.h"

namespace tersum {

// `name`: a literal of up to 15 characters, which is all that Linux keeps.
void name_this_thread(const char* name);

class ServiceThread {
 public:
  using Body = void (*)(void* context);

  ServiceThread() = default;
  ServiceThread(const ServiceThread&) = delete;
  ServiceThread& operator=(const ServiceThread&) = delete;
  ~ServiceThread() { join(); }

  // Runs `body` once on the new thread, under that name. kSystem when the system grants no further
  // thread.
  Status start(Body body, void* context, const char* name);
  void join();

 private:
  static void* run(void* self);

  pthread_t thread_{};
  bool started_ = false;
  Body body_ = nullptr;
  void* context_ = nullptr;
  const char* name_ = nullptr;
};

}  // namespace tersum
