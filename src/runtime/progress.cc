#include "runtime/progress.h"

#include <algorithm>
#include <chrono>

#include "base/check.h"
#include "platform/cpu_relax.h"
#include "platform/fp_control.h"

namespace tersum {
namespace {

constexpr int64_t kSleepNsMax = 50'000'000;
// A waiter that does not hold the role looks up this often, whatever it is told.
constexpr auto kRecheck = std::chrono::milliseconds(20);

}  // namespace

Progress::Progress(std::unique_ptr<Node> node, Thread thread)
    : node_(std::move(node)), thread_mode_(thread) {}

Progress::~Progress() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  async_work_.notify_all();
  node_->wake();
  thread_.join();
}

void Progress::idle(bool cpu_each, int64_t deadline_ns) {
  switch (patience_.next(cpu_each)) {
    case WaitStep::kSpin:
      spin_pause();
      break;
    case WaitStep::kYield: {
      const int64_t before = clock().now_ns();
      yield_thread();
      patience_.yielded(clock().now_ns() - before);
      break;
    }
    case WaitStep::kSleep: {
      const int64_t left = std::max<int64_t>(deadline_ns - clock().now_ns(), 0);
      node_->sleep(node_->sleep_ns(std::min(left, kSleepNsMax)));
      break;
    }
  }
}

template <typename Condition>
void Progress::drive(const Condition& stop, bool blocks, int64_t deadline_ns) {
  const FpControlGuard fp_control;
  const bool cpu_each = blocks && node_->has_cpu_each();
  patience_.ended();  // with the last holder's wait, however that ended
  uint64_t ended = node_->ended();
  while (!stop()) {
    if (node_->step()) {
      patience_.ended();
    } else {
      idle(cpu_each, deadline_ns);
    }
    // A waiter counts itself and then looks at its operation; here the operation, or the task,
    // has ended, then the waiters are counted. Both change the same atomic, so one of the two sees
    // the other.
    if (node_->ended() != ended && waiters_.fetch_add(0, std::memory_order_acq_rel) > 0) {
      // The lock orders this with a waiter that is about to sleep.
      {
        const std::lock_guard lock(mutex_);
      }
      role_free_.notify_all();
    }
    ended = node_->ended();
    if (clock().now_ns() >= deadline_ns) break;
  }
}

template <typename Condition>
bool Progress::wait_for_condition(const Condition& condition, int64_t timeout_ns) {
  const int64_t now = clock().now_ns();
  const int64_t deadline =
      timeout_ns > INT64_MAX - now ? INT64_MAX : now + std::max<int64_t>(timeout_ns, 0);
  std::unique_lock lock(mutex_);
  while (!condition()) {
    if (clock().now_ns() >= deadline) return false;
    if (role_taken_) {
      waiters_.fetch_add(1, std::memory_order_acq_rel);
      if (!condition()) role_free_.wait_for(lock, kRecheck);
      waiters_.fetch_sub(1, std::memory_order_relaxed);
      continue;
    }
    role_taken_ = true;
    lock.unlock();
    drive(condition, true, deadline);
    lock.lock();
    give_role_back();
  }
  return true;
}

bool Progress::wait_until(const std::function<bool()>& condition, int64_t timeout_ns) {
  return wait_for_condition(condition, timeout_ns);
}

bool Progress::wait_done(const Operation& operation, int64_t timeout_ns) {
  return wait_for_condition([&operation] { return operation.done(); }, timeout_ns);
}

void Progress::execute(const std::function<void(Node&)>& task) {
  std::atomic<bool> ran{false};
  node_->post([&](Node& node) {
    task(node);
    ran.store(true, std::memory_order_release);
  });
  const bool done = wait_until([&] { return ran.load(std::memory_order_acquire); }, INT64_MAX);
  TERSUM_CHECK(done);
}

void Progress::drain_all() {
  constexpr int64_t kPatienceNs = 2'000'000'000;
  constexpr int64_t kPollNs = 1'000'000;
  const int64_t deadline = clock().now_ns() + kPatienceNs;
  size_t left = 0;
  do {
    execute([&left](Node& node) { left = node.backlog_bytes(); });
    if (left > 0) wait_until([] { return false; }, kPollNs);
  } while (left > 0 && clock().now_ns() < deadline);
}

void Progress::drain(int64_t timeout_ns) {
  const int64_t deadline = clock().now_ns() + timeout_ns;
  std::unique_lock lock(mutex_);
  // Beside calls in the background something is left to leave until they end, and the thread that
  // drives those sees to it.
  const bool has_thread = thread_started_;
  const auto others_drive = [&] {
    return (has_thread && node_->busy()) || waiters_.load(std::memory_order_relaxed) > 0;
  };
  if (role_taken_ || others_drive()) return;
  role_taken_ = true;
  lock.unlock();
  drive([&] { return node_->backlog_bytes() == 0 || others_drive(); }, true, deadline);
  lock.lock();
  give_role_back();
  const bool leftover = leftover_;
  lock.unlock();
  if (leftover) rouse_thread();  // a slow peer: its bytes must not wait for our next call
}

// The progress thread is woken only for work that is left: a blocking caller alone costs no switch.
void Progress::give_role_back() {
  role_taken_ = false;
  leftover_ = node_->backlog_bytes() > 0;
  if (waiters_.load(std::memory_order_relaxed) > 0) role_free_.notify_all();
  if (node_->busy() || leftover_) async_work_.notify_one();
}

void Progress::submit_async(std::shared_ptr<Operation> operation) {
  node_->submit(std::move(operation));
  rouse_thread();
}

void Progress::post_async(std::function<void(Node&)> task) {
  node_->post(std::move(task));
  rouse_thread();
}

void Progress::rouse_thread() {
  if (thread_mode_ == Thread::kNone) return;
  {
    const std::lock_guard lock(mutex_);
    if (!thread_started_) {
      // Without a thread the call still advances whenever a caller waits.
      const auto body = [](void* self) { static_cast<Progress*>(self)->thread_main(); };
      thread_started_ = thread_.start(body, this, "tersum-progress").ok();
    }
  }
  async_work_.notify_one();
}

// Has the role while operations are in flight and no caller wants it.
void Progress::thread_main() {
  std::unique_lock lock(mutex_);
  while (!stopping_) {
    if (role_taken_ || waiters_.load(std::memory_order_relaxed) > 0 ||
        !(node_->busy() || leftover_)) {
      // Woken by submit_async() and by whoever gives the role back; the bound covers a submission
      // that found the role taken by a caller that was just leaving.
      async_work_.wait_for(
          lock, node_->busy() ? std::chrono::milliseconds(1) : std::chrono::milliseconds(500));
      continue;
    }
    role_taken_ = true;
    lock.unlock();
    drive(
        [this] {
          return (!node_->busy() && node_->backlog_bytes() == 0) ||
                 waiters_.load(std::memory_order_relaxed) > 0;
        },
        false, INT64_MAX);
    lock.lock();
    give_role_back();
  }
}

}  // namespace tersum
