// A store in memory, for ranks that are threads of one test.
#pragma once

#include <chrono>
#include <condition_variable>
#include <map>
#include <mutex>
#include <string>

#include "tersum/store.h"

namespace tersum::testing {

class MemoryStore final : public Store {
 public:
  Status set(std::string_view key, std::string_view value) override {
    const std::lock_guard lock(mutex_);
    const auto [entry, fresh] = values_.emplace(key, value);
    if (!fresh && entry->second != value) return invalid_argument("key is set to something else");
    changed_.notify_all();
    return {};
  }

  Result<std::string> wait(std::string_view key, int64_t timeout_ms) override {
    std::unique_lock lock(mutex_);
    const std::string name(key);
    const bool found = changed_.wait_for(lock, std::chrono::milliseconds(timeout_ms),
                                         [&] { return values_.count(name) > 0; });
    if (!found) return Status(StatusCode::kTimeout, "key " + name + " was not set");
    return values_[name];
  }

  [[nodiscard]] std::string host() const override { return "127.0.0.1"; }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::string, std::string> values_;
};

}  // namespace tersum::testing
