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
// Where slots of a page and more begin in theirs. Large arrays begin with a page, or 16 or 64 bytes
// behind one, as do most slices of them, and between ends that lie so close a copy is slow
// (base/copy_bytes.h): exact sums of two ranks, 4 and 16 MiB, take 1.2 times as long (AMD, Zen 3).
constexpr size_t kSkewBytes = kPageBytes / 2;
constexpr size_t kSmallestCapacityBytes = size_t{64} << 20;
// What a process gives back of slots that peers have read, between two uses of one of them, itself
// among it: one of as much need not rest. A core whose first cache holds 48 KiB takes 14.5 us to
// combine 150 KB of int8 that went through 40 or 80 KiB of slots so, 4.7 us through 160; of exact
// values 95 KB take 9.5 us through 96 KiB, 4.7 through 192.
constexpr size_t kRestBytes = size_t{192} * 1024;

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
  arena->shelves_.resize(class_of(kLargestSlotBytes) + 1);
  return arena;
}

Arena::~Arena() {
  // A reference that outlives its arena would write to freed memory later.
  TERSUM_CHECK(used_bytes_ == 0);
}

Result<SlotRef> Arena::reserve(size_t bytes) {
  TERSUM_CHECK(bytes <= kLargestSlotBytes);
  const Result<uint32_t> taken = take_slot(class_of(bytes));
  if (!taken.ok()) return taken.status();
  Slot& slot = slots_[taken.value()];
  slot.references = 1;
  used_bytes_ += slot.bytes;
  high_water_bytes_ = std::max(high_water_bytes_, used_bytes_);
  return SlotRef(this, taken.value());
}

Result<uint32_t> Arena::take_slot(size_t size_class) {
  Shelf& shelf = shelves_[size_class];
  while (shelf.oldest_resting != kNoSlot) {
    const Slot& oldest = slots_[shelf.oldest_resting];
    if (rested_bytes_ - oldest.rests_from < kRestBytes) break;
    wake_oldest(shelf);
  }
  if (shelf.newest == kNoSlot && has_room(size_class)) return make_slot(size_class);
  // Where there is no room for another the oldest has to do.
  if (shelf.newest == kNoSlot && shelf.oldest_resting != kNoSlot) wake_oldest(shelf);
  if (shelf.newest == kNoSlot) {
    return Status(StatusCode::kSystem,
                  "the transport's memory is full: " + std::to_string(used_bytes_) +
                      " bytes in use of " + std::to_string(capacity_bytes()) +
                      " bytes of address space; lower window_bytes or the calls in flight");
  }
  // The last one given back, or of those that rested, is the likeliest to be in cache.
  return std::exchange(shelf.newest, slots_[shelf.newest].next);
}

size_t Arena::next_offset(size_t size_class) const {
  if (class_bytes(size_class) < kPageBytes) return align_up(next_offset_, 64);
  return align_up(next_offset_ + kPageBytes - kSkewBytes, kPageBytes) - kPageBytes + kSkewBytes;
}

bool Arena::has_room(size_t size_class) const {
  return next_offset(size_class) + class_bytes(size_class) <= capacity_bytes();
}

uint32_t Arena::make_slot(size_t size_class) {
  const size_t slot_bytes = class_bytes(size_class);
  const size_t offset = next_offset(size_class);
  next_offset_ = offset + slot_bytes;
  slots_.push_back({.offset = offset,
                    .bytes = static_cast<uint32_t>(slot_bytes),
                    .size_class = static_cast<uint8_t>(size_class)});
  return static_cast<uint32_t>(slots_.size() - 1);
}

void Arena::wake_oldest(Shelf& shelf) {
  const uint32_t index = shelf.oldest_resting;
  shelf.oldest_resting = slots_[index].next;
  slots_[index].next = std::exchange(shelf.newest, index);
}

void Arena::put_to_rest(uint32_t index) {
  Slot& slot = slots_[index];
  Shelf& shelf = shelves_[slot.size_class];
  slot.is_lent = false;
  slot.rests_from = rested_bytes_;
  rested_bytes_ += slot.bytes;
  slot.next = kNoSlot;
  if (shelf.oldest_resting == kNoSlot) {
    shelf.oldest_resting = index;
  } else {
    slots_[shelf.newest_resting].next = index;
  }
  shelf.newest_resting = index;
}

void Arena::lend(const SlotRef& slot) {
  TERSUM_CHECK(slot.arena() == this);
  slots_[slot.index()].is_lent = true;
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
  if (slot.is_lent) return put_to_rest(index);
  slot.next = std::exchange(shelves_[slot.size_class].newest, index);
}

}  // namespace tersum
