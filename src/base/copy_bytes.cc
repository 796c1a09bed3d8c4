#include "base/copy_bytes.h"

#include <algorithm>
#include <cstdint>
#include <cstring>

namespace tersum {
namespace {

constexpr size_t kPageBytes = 4096;
constexpr size_t kSlowBytes = 32;
// The C library takes `rep movsb` from 2,112 bytes on where processors say that it is fast for
// short copies, and from 4,096 on elsewhere.
constexpr size_t kPartBytes = 2048;

// Read anew for each part, so that it stays a call: a compiler that knows how few bytes a part has
// puts `rep movsq` there instead.
void* (*const volatile kCLibraryCopy)(void*, const void*, size_t) = std::memcpy;

bool lies_just_beyond(const void* to, const void* from) {
  return (reinterpret_cast<uintptr_t>(to) - reinterpret_cast<uintptr_t>(from)) % kPageBytes <
         kSlowBytes;
}

}  // namespace

void copy_bytes(void* to, const void* from, size_t bytes) {
  if (bytes == 0) return;
  if (bytes <= kPartBytes || !lies_just_beyond(to, from)) {
    std::memcpy(to, from, bytes);
    return;
  }
  auto* const to_bytes = static_cast<std::byte*>(to);
  const auto* const from_bytes = static_cast<const std::byte*>(from);
  for (size_t at = 0; at < bytes; at += kPartBytes) {
    kCLibraryCopy(to_bytes + at, from_bytes + at, std::min(kPartBytes, bytes - at));
  }
}

}  // namespace tersum
