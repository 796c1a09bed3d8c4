// Mailbox: the memory through which one process speaks to one peer of the same host.
//
// Each side of a link has one, writes it alone, and maps the peer's read-only; so neither can spoil
// what the other wrote, and every number read from the peer's is checked before use.
//
//   offset 0    posted   u64  units that the owner has written to `units`, ever
//   offset 64   taken    u64  units that the owner has read from the peer's mailbox, ever
//   offset 128  sleeping u32  1: the owner sleeps and wants its doorbell rung after a post
//   offset 192  self_at  u64  where the owner has mapped this
//   offset 200  proof    u64  a random number: who finds it at self_at looks at the owner's memory
//   offset 208  door     u32  the thread by which the owner is found there; 0: it cannot be
//   offset 256  open     kArrayGrantsMax u64: keys of the grants that the peer may use
//   offset 320  touching kArrayGrantsMax u32: by which thread the owner uses the peer's grants now
//   offset 384  units    kUnits of 64 bytes; unit n lies at n modulo kUnits
//
// A unit is a message, the bytes of a short message, or a batch of releases; see
// docs/wire-format.md.
//
// Thread safety: one writer process, one reader process.
// Invariant: 0 <= posted - (the peer's) taken <= kUnits.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "platform/shared_memory.h"
#include "tersum/status.h"
#include "transport/array_reach.h"
#include "wire/message.h"

namespace tersum {

inline constexpr size_t kUnitBytes = 64;
inline constexpr size_t kUnits = 1024;

enum class UnitKind : uint32_t {
  kMessage = 1,   // the payload lies in the sender's arena, until it is released
  kInline = 2,    // the payload follows in the next units
  kReleases = 3,  // payloads of the reader's arena that the writer needs no more
};

// Payloads up to this size travel in the mailbox itself.
inline constexpr size_t kInlineBytesMax = 256;
inline constexpr size_t kReleasesPerUnit = 14;

// kMessage and kInline: kind 0, ticket 4, arena offset 8, zero 16, header 24.
// kReleases: kind 0, count 4, tickets 8 (u32 each).
struct alignas(kUnitBytes) Unit {
  std::array<std::byte, kUnitBytes> bytes;
};
static_assert(sizeof(Unit) == kUnitBytes);
static_assert(24 + kMessageHeaderBytes == kUnitBytes);
static_assert(8 + 4 * kReleasesPerUnit == kUnitBytes);

struct MailboxLayout {
  alignas(64) std::atomic<uint64_t> posted;
  alignas(64) std::atomic<uint64_t> taken;
  alignas(64) std::atomic<uint32_t> sleeping;
  alignas(64) std::atomic<uint64_t> self_at;
  std::atomic<uint64_t> proof;
  std::atomic<uint32_t> door;
  alignas(64) std::array<std::atomic<uint64_t>, kArrayGrantsMax> open;
  alignas(64) std::array<std::atomic<uint32_t>, kArrayGrantsMax> touching;
  alignas(64) std::array<Unit, kUnits> units;
};
static_assert(std::atomic<uint64_t>::is_always_lock_free);
static_assert(std::atomic<uint32_t>::is_always_lock_free);
static_assert(offsetof(MailboxLayout, taken) == 64);
static_assert(offsetof(MailboxLayout, sleeping) == 128);
static_assert(offsetof(MailboxLayout, self_at) == 192);
static_assert(offsetof(MailboxLayout, door) == 208);
static_assert(offsetof(MailboxLayout, open) == 256);
static_assert(offsetof(MailboxLayout, touching) == 320);
static_assert(offsetof(MailboxLayout, units) == 384);

inline constexpr size_t kMailboxBytes = (sizeof(MailboxLayout) + 4095) / 4096 * 4096;

Result<SharedMemory> make_mailbox(uint64_t proof);

}  // namespace tersum
