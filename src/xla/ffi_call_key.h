// Call keys: which collective of which launch a handler's call is, without any arrival order.
//
// XLA starts independent calls in different orders on different devices, and repeats them inside
// loops. What all members of a group derive alike is: the groups, the module's fingerprint, the
// operation's number in it, the launch's run id, how often this device has called this operation in
// this launch (the occurrence), and the operand's index. Their hash names the call.
//
// Thread safety: call_key is pure; OccurrenceCounter may be used from any thread.
// Invariants: within one launch the calls of one operation on one device are sequential (a loop's
// body runs once per iteration), so the n-th call here pairs with the n-th call on every other
// member.
#pragma once

#include <cstddef>
#include <cstdint>
#include <list>
#include <mutex>
#include <span>
#include <unordered_map>
#include <vector>

namespace tersum::xla_ffi {

// One operation of one compiled module.
struct OperationId {
  uint64_t fingerprint = 0;
  int64_t operation = 0;
  friend bool operator==(const OperationId&, const OperationId&) = default;
};

struct CallIdentity {
  std::span<const int64_t> groups;  // all groups of the operation, concatenated
  int64_t group_size = 0;
  OperationId operation;
  int64_t run_id = 0;
  uint32_t occurrence = 0;
  uint32_t operand = 0;
};

// 64 bits of XXH3 over the fields as little-endian integers. Two calls that are live together
// collide with probability 2^-64.
[[nodiscard]] uint64_t call_key(const CallIdentity& identity);

// Counts the calls of each (device, operation) per run id. Memory is bounded: a table per (device,
// operation) keeps the kRunsPerTable run ids used last, of which XLA has at most 32 in flight per
// device; the kTablesMax tables used last are kept.
class OccurrenceCounter {
 public:
  static constexpr size_t kRunsPerTable = 64;
  static constexpr size_t kTablesMax = 16 * 1024;

  explicit OccurrenceCounter(size_t tables_max = kTablesMax) : tables_max_(tables_max) {}

  // 0 for the first call of this device, operation and run id, then 1, 2, …
  [[nodiscard]] uint32_t next(int64_t device, const OperationId& operation, int64_t run_id);

  [[nodiscard]] size_t table_count() const;

 private:
  struct Place {
    int64_t device;
    OperationId operation;
    friend bool operator==(const Place&, const Place&) = default;
  };
  struct PlaceHash {
    size_t operator()(const Place& place) const;
  };
  struct Run {
    int64_t run_id;
    uint32_t calls;
  };
  struct Table {
    Place place;
    std::vector<Run> runs;  // least recently used first
  };
  Table& table_of(const Place& place);

  const size_t tables_max_;
  mutable std::mutex mutex_;
  std::list<Table> tables_;  // least recently used first
  std::unordered_map<Place, std::list<Table>::iterator, PlaceHash> index_;
};

}  // namespace tersum::xla_ffi
