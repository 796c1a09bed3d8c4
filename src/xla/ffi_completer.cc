#include "xla/ffi_completer.h"

#include <thread>

#include "runtime/thread_name.h"

namespace tersum::xla_ffi {

Completer& Completer::instance() {
  static auto* const completer = new Completer;
  return *completer;
}

void Completer::run(const CompletionTask& task) {
  bool grow = false;
  {
    const std::scoped_lock lock(mutex_);
    tasks_.push_back(task);
    // Every waiting task needs an idle thread of its own.
    grow = tasks_.size() > idle_;
    if (grow) {
      ++threads_;
      ++idle_;  // counted before it starts, so that two tasks do not share one newcomer
    }
  }
  if (grow) std::thread([this] { work(); }).detach();
  wake_.notify_one();
}

size_t Completer::thread_count() const {
  const std::scoped_lock lock(mutex_);
  return threads_;
}

void Completer::work() {
  name_thread("tersum-xla");
  std::unique_lock lock(mutex_);
  while (true) {
    wake_.wait(lock, [this] { return !tasks_.empty(); });
    const CompletionTask task = tasks_.front();
    tasks_.pop_front();
    --idle_;
    lock.unlock();
    std::fesetenv(&task.environment);
    task.run(task.context);
    lock.lock();
    ++idle_;
  }
}

}  // namespace tersum::xla_ffi
