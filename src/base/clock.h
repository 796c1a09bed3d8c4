// Clock and Random: time and randomness as parameters, so that a simulator can own both.
//
// Thread safety: implementations allow concurrent calls.
#pragma once

#include <cstdint>

namespace tersum {

class Clock {
 public:
  virtual ~Clock() = default;
  // Nanoseconds from an arbitrary start, never going back.
  [[nodiscard]] virtual int64_t now_ns() const = 0;
};

class Random {
 public:
  virtual ~Random() = default;
  virtual uint64_t next() = 0;
};

}  // namespace tersum
