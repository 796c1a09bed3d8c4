#include "codec/kernels/stream_copy.h"

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "codec/kernels/dispatch.h"
#include "hwy/cache_control.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "codec/kernels/stream_copy.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
// Must come after foreach_target.h.
#include "hwy/highway.h"

#ifndef TERSUM_CODEC_KERNELS_STREAM_COPY_ONCE_
#define TERSUM_CODEC_KERNELS_STREAM_COPY_ONCE_
namespace tersum {
struct LineCopy {
  void (*copy)(uint8_t* to, const uint8_t* from, size_t lines);
};
}  // namespace tersum
#endif  // TERSUM_CODEC_KERNELS_STREAM_COPY_ONCE_

HWY_BEFORE_NAMESPACE();
namespace tersum {
namespace HWY_NAMESPACE {

#if HWY_TARGET == HWY_SCALAR
const LineCopy* line_copy_table() { return nullptr; }
#else

// `to` is aligned to lines of 64 bytes.
void stream_lines(uint8_t* HWY_RESTRICT to, const uint8_t* HWY_RESTRICT from, size_t lines) {
  namespace hn = hwy::HWY_NAMESPACE;
  // At most a line: a vector length that divides it.
  const hn::CappedTag<uint8_t, 64> d;
  const size_t step = hn::Lanes(d);
  for (size_t at = 0; at < 64 * lines; at += step) hn::Stream(hn::LoadU(d, from + at), d, to + at);
}

const LineCopy* line_copy_table() {
  static constexpr LineCopy kTable = {stream_lines};
  return &kTable;
}
#endif  // HWY_TARGET

}  // namespace HWY_NAMESPACE
}  // namespace tersum
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tersum {
namespace {

constexpr size_t kLine = 64;

void copy_lines(uint8_t* to, const uint8_t* from, size_t lines) {
  std::memcpy(to, from, kLine * lines);
}

}  // namespace

void stream_copy(std::byte* to, const std::byte* from, size_t bytes) {
  // No bytes may come with no pointers, which memcpy may not be given.
  if (bytes == 0) return;
  static constexpr LineCopy kReference = {copy_lines};
  static constexpr TableFunction<LineCopy> kTables[] = {HWY_CHOOSE_TARGET_LIST(line_copy_table),
                                                        HWY_CHOOSE_FALLBACK(line_copy_table)};
  const LineCopy& lines_of = table_of(active_target(), kTables, &kReference);
  const size_t past_line = reinterpret_cast<uintptr_t>(to) % kLine;
  const size_t head = std::min(bytes, past_line == 0 ? 0 : kLine - past_line);
  const size_t lines = (bytes - head) / kLine;
  const size_t tail = head + lines * kLine;
  std::memcpy(to, from, head);
  lines_of.copy(reinterpret_cast<uint8_t*>(to + head),
                reinterpret_cast<const uint8_t*>(from + head), lines);
  std::memcpy(to + tail, from + tail, bytes - tail);
}

// Streamed bytes are not ordered by an ordinary release.
void stream_fence() { hwy::FlushStream(); }

}  // namespace tersum
#endif  // HWY_ONCE
