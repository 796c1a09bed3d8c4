// KnownNumbers: what users chose in numbers of their own and name in specs, level tables and
// transforms, by number from 1 on.
//
// A thing is found by its digest, or by the file that it was read from; a digest comes first, so
// that no file's name can stand for other numbers than its digest says. Thread safety: any thread.
// Invariants: what is known is never changed, moved or forgotten. Finding does not allocate.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <mutex>
#include <shared_mutex>
#include <string>
#include <string_view>

#include "base/check.h"
#include "tersum/status.h"

namespace tersum {

template <class Thing>
class KnownNumbers {
 public:
  // `plural`: what things are, for the error of too many.
  explicit KnownNumbers(std::string_view plural) : plural_(plural) {}

  // The number of `made`, or of one that is known by the same digest. kInvalidArgument: there are
  // as many as numbers.
  Result<uint16_t> add(std::string_view digest, std::unique_ptr<const Thing> made) {
    const std::unique_lock lock(mutex_);
    if (const auto found = digests_.find(digest); found != digests_.end()) return found->second;
    if (things_.size() == std::numeric_limits<uint16_t>::max()) {
      return invalid_argument("this process knows 65,535 " + plural_ + " already; use fewer");
    }
    things_.push_back(std::move(made));
    const auto number = static_cast<uint16_t>(things_.size());
    digests_.emplace(digest, number);
    return number;
  }
  void add_file(std::string_view name, uint16_t number) {
    const std::unique_lock lock(mutex_);
    files_.emplace(name, number);
  }

  // 0: none.
  uint16_t find(std::string_view name) {
    const std::shared_lock lock(mutex_);
    if (const auto found = digests_.find(name); found != digests_.end()) return found->second;
    const auto found = files_.find(name);
    return found == files_.end() ? uint16_t{0} : found->second;
  }
  const Thing& at(uint16_t number) {
    const std::shared_lock lock(mutex_);
    TERSUM_CHECK(number >= 1 && number <= things_.size());
    return *things_[number - size_t{1}];
  }

 private:
  std::string plural_;
  std::shared_mutex mutex_;
  std::deque<std::unique_ptr<const Thing>> things_;
  std::map<std::string, uint16_t, std::less<>> digests_;
  std::map<std::string, uint16_t, std::less<>> files_;
};

}  // namespace tersum
