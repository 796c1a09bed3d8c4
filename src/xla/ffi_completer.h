// Completer: the threads on which XLA's programs go on after a collective.
//
// Whoever fulfils a handler's promise *becomes* the thread that runs the rest of the program: XLA
// continues inline, up to the next unfinished asynchronous call and through other people's blocking
// custom calls. The progress thread may not do that (nothing would move meanwhile), so a fulfilment
// is handed to a thread of this pool. The pool never queues behind a busy thread, since that one
// may wait for exactly the work in the queue (a local rendezvous of two devices): it grows by a
// thread when none is idle.
//
// Thread safety: any thread. Invariants: run() never blocks; a task runs exactly once, under the
// floating-point environment it was posted with. Threads are kept for reuse: as many as were ever
// busy at once, which XLA bounds by its programs in flight.
#pragma once

#include <cfenv>
#include <condition_variable>
#include <cstddef>
#include <deque>
#include <mutex>

namespace tersum::xla_ffi {

struct CompletionTask {
  void (*run)(void* context) = nullptr;
  void* context = nullptr;
  // XLA's threads flush denormals; code that goes on elsewhere must do as they do.
  std::fenv_t environment;
};

class Completer {
 public:
  // The process's pool; never destroyed, since XLA may be inside a task when the process exits.
  static Completer& instance();

  void run(const CompletionTask& task);
  [[nodiscard]] size_t thread_count() const;

 private:
  Completer() = default;
  void work();

  mutable std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<CompletionTask> tasks_;
  size_t idle_ = 0;
  size_t threads_ = 0;
};

}  // namespace tersum::xla_ffi
