// Sealed bytes: what is kept outside tersum and comes back from there, so that damage is noticed.
//
//   8 bytes that say what it is, the number of entries (8, little-endian), the entries, and XXH3-64
//   of all before (8)
//
// Thread safety: a writer and a reader belong to one thread. Invariant: a reader gives no byte
// before it has seen that the whole is what a writer wrote.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "tersum/status.h"

namespace tersum {

class SealedWriter {
 public:
  // `magic`: 8 characters.
  SealedWriter(std::string_view magic, uint64_t entries);
  void add(uint64_t number);
  // Room for so many bytes, valid until the next call.
  std::span<std::byte> add_room(size_t bytes);
  [[nodiscard]] std::vector<std::byte> seal() &&;

 private:
  std::vector<std::byte> bytes_;
};

class SealedReader {
 public:
  // kInvalidArgument, saying what "they" (the bytes) have wrong: another magic, or damage.
  static Result<SealedReader> open(std::span<const std::byte> sealed, std::string_view magic);

  [[nodiscard]] uint64_t entries() const { return entries_; }
  [[nodiscard]] size_t left() const { return rest_.size(); }
  // Both require left() >= what is taken.
  uint64_t take_number();
  std::span<const std::byte> take(size_t bytes);

 private:
  SealedReader(uint64_t entries, std::span<const std::byte> rest)
      : entries_(entries), rest_(rest) {}

  uint64_t entries_;
  std::span<const std::byte> rest_;
};

}  // namespace tersum
