#include "transport/arena.h"

#include <algorithm>
#include <bit>
#include <string>

#include "base/bytes.h"
#include "base/check.h"

namespace tersum {
namespace {

// Four classes per doubling, so that at most a fifth of a slot lies idle (and idle tails of large
// slots are never touched, so they cost address space only).
constexpr size_t kSmallestSlotBytes = 256;
constexpr size_t kLargestSlotBytes = kPayloadBytesMax + 64 * 1024;
constexpr size_t kPageBytes = 4096;
constexpr size_t kSmallestCapacityBytes = size_t{64} << 20;

// Class c = 4 * e + q stands for (4 + q) << (e + 6) bytes: 256, 320, 384, 448, 512, 640, …
size_t class_bytes(size_t size_class) { return (4 + size_class % 4) << (size_class / 4 + 6); }

size_t class_of(size_t bytes) {
  if (bytes <= kSmallestSlotBytes) return 0;
  // With 2^k < bytes <= 2^(k+1), quarters of 2^k above 2^k, rounded up; a fifth one is the next
  // 2^k.
  const size_t exponent = static_cast<size_t>(std::bit_width(bytes - 1)) - 1;
  const size_t quarter = size_t{1} << (exponent - 2);
  const size_t quarters = (bytes - (size_t{1} << exponent) + quarter - 1) / quarter;
  return 4 * (exponent - 8) + quarters;
}

}  // namespace

SlotRef::SlotRef(const SlotRef& other) : arena_(other.arena_), index_(other.index_) {
  if (arena_ != nullptr) arena_->add_reference(index_);
}

SlotRef::~SlotRef() {
  if (arena_ != nullptr) arena_->drop_reference(index_);
}

std::span<std::byte> SlotRef::bytes() const {
  TERSUM_CHECK(arena_ != nullptr);
  const Arena::Slot& slot = arena_->slots_[index_];
  return {arena_->base() + slot.offset, slot.bytes};
}

Result<std::unique_ptr<Arena>> Arena::create(bool shared, size_t capacity_bytes) {
  std::unique_ptr<Arena> arena(new Arena());
  size_t bytes = align_up(std::max(capacity_bytes, kLargestSlotBytes), kPageBytes);
  for (;;) {
    Result<SharedMemory> memory =
        shared ? SharedMemory::create("tersum-arena", bytes) : SharedMemory::anonymous(bytes);
    if (memory.ok()) {
      arena->memory_ = std::move(memory).value();
      break;
    }
    // Address space may be limited (ulimit -v, strict overcommit): less of it serves most programs.
    if (bytes / 2 < kSmallestCapacityBytes) return memory.status();
    bytes = align_up(bytes / 2, kPageBytes);
  }
  arena->free_.resize(class_of(kLargestSlotBytes) + 1);
  return arena;
}

Arena::~Arena() {
  // A reference that outlives its arena would write to freed memory later.
  TERSUM_CHECK(used_bytes_ == 0);
}

Result<SlotRef> Arena::reserve(size_t bytes) {
  TERSUM_CHECK(bytes <= kLargestSlotBytes);
  const size_t size_class = class_of(bytes);
  std::vector<uint32_t>& free_slots = free_[size_class];
  uint32_t index = 0;
  if (!free_slots.empty()) {
    index = free_slots.back();  // the last one freed is the likeliest to be in cache
    free_slots.pop_back();
  } else {
    const size_t slot_bytes = class_bytes(size_class);
    const size_t offset =
        align_up(next_offset_, slot_bytes >= kPageBytes ? kPageBytes : size_t{64});
    if (offset + slot_bytes > capacity_bytes()) {
      return Status(StatusCode::kSystem,
                    "the transport's memory is full: " + std::to_string(used_bytes_) +
                        " bytes in use of " + std::to_string(capacity_bytes()) +
                        " bytes of address space; lower window_bytes or the calls in flight");
    }
    next_offset_ = offset + slot_bytes;
    index = static_cast<uint32_t>(slots_.size());
    slots_.push_back({.offset = offset,
                      .bytes = static_cast<uint32_t>(slot_bytes),
                      .references = 0,
                      .size_class = static_cast<uint8_t>(size_class)});
    // So that drop_reference never allocates.
    const size_t count = ++slots_of_class_[size_class];
    if (free_slots.capacity() < count) free_slots.reserve(2 * count);
  }
  Slot& slot = slots_[index];
  slot.references = 1;
  used_bytes_ += slot.bytes;
  high_water_bytes_ = std::max(high_water_bytes_, used_bytes_);
  return SlotRef(this, index);
}

size_t Arena::offset(const SlotRef& slot) const {
  TERSUM_CHECK(slot.arena() == this);
  return slots_[slot.index()].offset;
}

void Arena::drop_reference(uint32_t index) {
  Slot& slot = slots_[index];
  TERSUM_CHECK(slot.references > 0);
  if (--slot.references > 0) return;
  used_bytes_ -= slot.bytes;
  free_[slot.size_class].push_back(index);
}

}  // namespace tersum
