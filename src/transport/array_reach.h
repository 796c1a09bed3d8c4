// ArrayReach: a peer process's arrays of a call, read and written where they are, for as long as
// that call lets them be.
//
// Whoever opens its arrays names them by a grant; the peer touches them only while the grant is
// open, and no later than close_arrays() returns. So nothing is written to a caller's memory after
// its call has ended, whatever becomes of either process.
//
// Thread safety: none (progress role).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace tersum {

// So many calls of a process may have their arrays open at a time.
inline constexpr size_t kArrayGrantsMax = 4;

struct ArrayGrant {
  uint32_t slot = 0;  // below kArrayGrantsMax
  uint64_t key = 0;   // 0: none; never used twice by a process
};

enum class Touched {
  kDone,
  kNotNow,   // the grant is closed, or the peer is gone: what ends the call is on its way
  kRefused,  // the system does not allow it, or no such memory is there
};

class ArrayReach {
 public:
  virtual ~ArrayReach() = default;

  // Whether the peer's memory can be reached from here; asked before a grant is exchanged.
  virtual bool reaches() = 0;

  // From here on the peer may touch what it is told to belong to `grant`.
  virtual void open_arrays(const ArrayGrant& grant) = 0;
  // Returns when the peer no longer does: at once but while it copies just then, or has been put to
  // sleep by the system doing so.
  virtual void close_arrays(const ArrayGrant& grant) = 0;

  // Of arrays that the peer has opened as `theirs`; after anything but kDone some bytes may have
  // been copied.
  virtual Touched read_array(const ArrayGrant& theirs, uint64_t from, std::span<std::byte> to) = 0;
  virtual Touched write_array(const ArrayGrant& theirs, uint64_t to,
                              std::span<const std::byte> from) = 0;
};

}  // namespace tersum
