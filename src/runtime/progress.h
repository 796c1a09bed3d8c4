// Progress: the one place of a process that waits.
//
// One thread at a time holds the *role* of driving the node. A caller that blocks takes it itself:
// it moves its own data (and everybody else's), spins briefly, yields, then sleeps on the poller.
// For asynchronous work one thread takes it whenever nobody else does; it sleeps while nothing is
// in flight. While the role is held the floating-point control word is the default one, so that
// denormals give the same bits on every thread.
//
// Thread safety: any thread may call everything.
// Invariants: between submit() and an operation's end somebody holds the role or is being woken to
// take it. The thread starts at the first asynchronous call and ends with the object.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>

#include "platform/service_thread.h"
#include "runtime/node.h"
#include "runtime/patience.h"

namespace tersum {

class Progress {
 public:
  // kNone: nobody but the owner steps the node (a simulation on a virtual clock).
  enum class Thread { kOnDemand, kNone };
  explicit Progress(std::unique_ptr<Node> node, Thread thread = Thread::kOnDemand);
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  [[nodiscard]] Node& node() { return *node_; }
  [[nodiscard]] const Clock& clock() const { return node_->clock(); }

  // Hands an operation to the node and sees to it that it advances without a waiter.
  void submit_async(std::shared_ptr<Operation> operation);
  // Runs `task` with the role held, some time soon; never blocks.
  void post_async(std::function<void(Node&)> task);
  // For a caller that will wait_until() right away.
  void submit(std::shared_ptr<Operation> operation) { node_->submit(std::move(operation)); }

  // Drives the node, or waits for whoever does, until `condition` holds (true) or `timeout_ns` has
  // passed (false). The condition is asked on this thread only, between rounds.
  bool wait_until(const std::function<bool()>& condition, int64_t timeout_ns);
  // The same for the end of one operation, without allocating.
  bool wait_done(const Operation& operation, int64_t timeout_ns);

  // Runs `task` with the role held, on this or another thread, before it returns.
  void execute(const std::function<void(Node&)>& task);

  // After a caller's operation has ended: lets its last bytes leave, up to `timeout_ns`, unless
  // somebody else drives on.
  void drain(int64_t timeout_ns);
  // Before links are given up: until nothing is left to leave, whoever drives, up to 2 s.
  void drain_all();

 private:
  template <typename Condition>
  bool wait_for_condition(const Condition& condition, int64_t timeout_ns);
  // `blocks`: a caller waits, who has nothing else to do.
  template <typename Condition>
  void drive(const Condition& stop, bool blocks, int64_t deadline_ns);
  void rouse_thread();
  void give_role_back();  // requires mutex_
  void idle(bool cpu_each, int64_t deadline_ns);
  void thread_main();

  std::unique_ptr<Node> node_;
  const Thread thread_mode_;
  std::mutex mutex_;
  std::condition_variable role_free_;  // also: an operation has ended
  std::condition_variable async_work_;
  bool role_taken_ = false;
  bool leftover_ = false;  // bytes have still to leave, and nobody drives
  bool stopping_ = false;
  Patience patience_;            // of the role's holder
  std::atomic<int> waiters_{0};  // callers that wait for the role
  bool thread_started_ = false;
  ServiceThread thread_;
};

}  // namespace tersum
