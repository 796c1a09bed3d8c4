// Arena: the memory from which a process sends, and into which it receives; slots with reference
// counts.
//
// One per process. Backed by a memfd when shared memory is on, so that peers of the same host can
// map it and read a slot in place ("one writer, many readers"); by plain memory otherwise. The file
// is sparse: pages exist from their first use and are kept.
//
// What a peer has read in place rests before it is written again: its lines are in the reader's
// nearest cache, from which each would have to be fetched back.
//
// Thread safety: none; only the holder of the progress role touches it (remote readers touch
// payload bytes only, between the commit of a slot and their release message). Invariants: a slot's
// bytes are written by this process only before its first send. A slot is free when the last
// SlotRef has gone. No allocation from the heap after a size class has been used to the same depth
// once, and, of slots that peers read, until 192 KiB of them have been given back. So a size class
// keeps up to 192 KiB and a slot more than was ever in use at once.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "platform/shared_memory.h"
#include "tersum/status.h"
#include "wire/message.h"

namespace tersum {

class Arena;

// Shared ownership of one slot. Copying adds a reference.
class SlotRef {
 public:
  SlotRef() = default;
  SlotRef(const SlotRef& other);
  SlotRef(SlotRef&& other) noexcept
      : arena_(std::exchange(other.arena_, nullptr)), index_(other.index_) {}
  SlotRef& operator=(SlotRef other) noexcept {
    std::swap(arena_, other.arena_);
    std::swap(index_, other.index_);
    return *this;
  }
  ~SlotRef();

  explicit operator bool() const { return arena_ != nullptr; }
  // The whole slot: its size class, at least the bytes asked for. 64-byte aligned.
  [[nodiscard]] std::span<std::byte> bytes() const;
  [[nodiscard]] uint32_t index() const { return index_; }
  [[nodiscard]] Arena* arena() const { return arena_; }

 private:
  friend class Arena;
  SlotRef(Arena* arena, uint32_t index) : arena_(arena), index_(index) {}
  Arena* arena_ = nullptr;
  uint32_t index_ = 0;
};

class Arena {
 public:
  // `shared` asks for a memfd. `capacity_bytes` is address space, not memory; where the system
  // limits that, less is taken.
  static Result<std::unique_ptr<Arena>> create(bool shared, size_t capacity_bytes);
  ~Arena();

  // A slot of at least `bytes` (up to kPayloadBytesMax + 64 KiB) with one reference; kSystem when
  // the arena is full.
  Result<SlotRef> reserve(size_t bytes);

  [[nodiscard]] int memfd() const { return memory_.fd(); }  // -1 when not shared
  [[nodiscard]] size_t capacity_bytes() const { return memory_.bytes(); }
  [[nodiscard]] std::byte* base() const { return memory_.base(); }
  // Says that a peer reads this slot in place, until it is free again.
  void lend(const SlotRef& slot);

  // Byte offset of a slot from base(): what a shared-memory peer is told.
  [[nodiscard]] size_t offset(const SlotRef& slot) const;
  // Bytes ever handed out at once: what "bounded memory" tests look at.
  [[nodiscard]] size_t high_water_bytes() const { return high_water_bytes_; }
  [[nodiscard]] size_t used_bytes() const { return used_bytes_; }

 private:
  friend class SlotRef;
  static constexpr uint32_t kNoSlot = std::numeric_limits<uint32_t>::max();
  struct Slot {
    size_t offset = 0;
    uint32_t bytes = 0;
    uint32_t references = 0;
    uint32_t next = kNoSlot;  // while it is free: of those like it
    uint8_t size_class = 0;
    bool is_lent = false;
    uint64_t rests_from = 0;  // rested_bytes_ when it was given back
  };
  // The free slots of a size class.
  struct Shelf {
    uint32_t newest = kNoSlot;  // the first to be taken; others follow
    uint32_t oldest_resting = kNoSlot;
    uint32_t newest_resting = kNoSlot;
  };
  Arena() = default;
  Result<uint32_t> take_slot(size_t size_class);
  [[nodiscard]] size_t next_offset(size_t size_class) const;
  [[nodiscard]] bool has_room(size_t size_class) const;
  uint32_t make_slot(size_t size_class);
  void wake_oldest(Shelf& shelf);
  void put_to_rest(uint32_t index);
  void add_reference(uint32_t index) { ++slots_[index].references; }
  void drop_reference(uint32_t index);

  SharedMemory memory_;
  size_t next_offset_ = 0;
  size_t used_bytes_ = 0;
  size_t high_water_bytes_ = 0;
  std::vector<Slot> slots_;
  uint64_t rested_bytes_ = 0;   // of all slots that were put to rest, ever
  std::vector<Shelf> shelves_;  // per size class
};

}  // namespace tersum
