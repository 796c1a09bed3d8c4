#include "platform/service_thread.h"

#include <csignal>

#include "base/check.h"
#include "platform/system_error.h"

namespace tersum {

void name_this_thread(const char* name) { pthread_setname_np(pthread_self(), name); }

Status ServiceThread::start(Body body, void* context, const char* name) {
  TERSUM_CHECK(!started_);
  body_ = body;
  context_ = context;
  name_ = name;
  // A thread inherits its maker's mask: with all signals blocked, Python's handlers and a program's
  // sigwait loops never find this thread.
  sigset_t all;
  sigset_t old;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &old);
  const int error_number = pthread_create(&thread_, nullptr, &ServiceThread::run, this);
  pthread_sigmask(SIG_SETMASK, &old, nullptr);
  if (error_number != 0) {
    return system_error(StatusCode::kSystem, "cannot start a thread", error_number);
  }
  started_ = true;
  return ok_status();
}

void ServiceThread::join() {
  if (!started_) return;
  TERSUM_CHECK(pthread_join(thread_, nullptr) == 0);
  started_ = false;
}

void* ServiceThread::run(void* self) {
  const auto* thread = static_cast<ServiceThread*>(self);
  name_this_thread(thread->name_);
  thread->body_(thread->context_);
  return nullptr;
}

}  // namespace tersum
