// A DeviceWorld in one process that sums float32 on a thread of its own: what the tests of the FFI
// layer run against, so that they say nothing about the runtime.
//
// Thread safety: any thread. Invariants: a call ends when all members of its group have called with
// its key, or with the error that fail() armed; callbacks come from the fake's thread, one by one.
#pragma once

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "runtime/device_world.h"

namespace tersum::testing {

class FakeDeviceWorld final : public DeviceWorld {
 public:
  struct Seen {
    std::vector<int64_t> group;
    int64_t device;
    uint64_t key;
    Collective collective;
    size_t count;
    DataType type;
    std::string codec;
    PlanKind plan;
    int64_t timeout_ms;
    uint64_t site;
    double max_rel_error;
  };

  FakeDeviceWorld() : thread_([this] { work(); }) {}
  ~FakeDeviceWorld() override {
    {
      const std::scoped_lock lock(mutex_);
      stop_ = true;
    }
    wake_.notify_all();
    thread_.join();
  }

  void start(const KeyedCall& call, OnDone on_done, void* context) override {
    const std::scoped_lock lock(mutex_);
    seen_.push_back({{call.group.begin(), call.group.end()},
                     call.device,
                     call.key,
                     call.collective,
                     call.count,
                     call.type,
                     std::string(call.options.codec),
                     call.options.plan,
                     call.options.timeout_ms,
                     call.site,
                     call.options.max_rel_error});
    const std::pair name{std::vector<int64_t>(call.group.begin(), call.group.end()), call.key};
    auto& calls = waiting_[name];
    const auto rank = std::find(call.group.begin(), call.group.end(), call.device);
    calls.push_back({call, static_cast<size_t>(rank - call.group.begin()), call.group.size(),
                     on_done, context});
    if (calls.size() < call.group.size()) return;
    tasks_.push_back([calls = std::move(calls), error = error_] { finish(calls, error); });
    waiting_.erase(name);
    wake_.notify_all();
  }

  [[nodiscard]] bool is_local(std::span<const int64_t>) const override { return true; }
  [[nodiscard]] CommunicatorStats stats() const override {
    const std::scoped_lock lock(mutex_);
    CommunicatorStats stats;
    stats.calls = seen_.size();
    return stats;
  }
  [[nodiscard]] std::vector<SiteChoice> choices() const override { return {}; }
  [[nodiscard]] Result<std::vector<std::byte>> save_flatten() override {
    return std::vector<std::byte>();
  }
  Status load_flatten(std::span<const std::byte> /*saved*/) override { return {}; }
  Status reset_flatten() override { return {}; }
  [[nodiscard]] Result<std::vector<std::byte>> save_feedback() override {
    return std::vector<std::byte>();
  }
  Status load_feedback(std::span<const std::byte> /*saved*/) override { return {}; }
  Status reset_feedback() override { return {}; }
  void close() override { closed = true; }

  // Every call that completes from now on ends with this.
  void fail(Status error) {
    const std::scoped_lock lock(mutex_);
    error_ = std::move(error);
  }
  std::vector<Seen> seen() const {
    const std::scoped_lock lock(mutex_);
    return seen_;
  }
  std::thread::id thread_id() const { return thread_.get_id(); }

  std::atomic<bool> closed = false;

 private:
  struct Call {
    KeyedCall call;  // its spans are not used after start()
    size_t rank;
    size_t size;
    OnDone on_done;
    void* context;
  };

  static void finish(std::vector<Call> calls, const Status& error) {
    std::sort(calls.begin(), calls.end(),
              [](const Call& a, const Call& b) { return a.rank < b.rank; });
    const bool scatter = calls[0].call.collective == Collective::kReduceScatter;
    const size_t count = calls[0].call.count * (scatter ? calls[0].size : 1);
    std::vector<float> sum(count);
    for (const Call& call : calls) {
      const auto* values = static_cast<const float*>(call.call.input);
      for (size_t i = 0; i < count; ++i) sum[i] += values[i];
    }
    for (const Call& call : calls) {
      if (!error.ok() || call.call.count == 0) continue;
      const size_t begin = scatter ? call.rank * call.call.count : 0;
      std::memcpy(call.call.output, sum.data() + begin, call.call.count * sizeof(float));
    }
    for (const Call& call : calls) call.on_done(call.context, error);
  }

  void work() {
    std::unique_lock lock(mutex_);
    while (true) {
      wake_.wait(lock, [this] { return stop_ || !tasks_.empty(); });
      if (tasks_.empty()) return;
      const auto task = std::move(tasks_.front());
      tasks_.pop_front();
      lock.unlock();
      task();
      lock.lock();
    }
  }

  mutable std::mutex mutex_;
  std::condition_variable wake_;
  std::map<std::pair<std::vector<int64_t>, uint64_t>, std::vector<Call>> waiting_;
  std::deque<std::function<void()>> tasks_;
  std::vector<Seen> seen_;
  Status error_;
  bool stop_ = false;
  std::thread thread_;
};

}  // namespace tersum::testing
