// ClipReport: what codings say of a learned clip, for the call after; it travels behind a slice's
// codes.
//
// Thread safety: plain values, pure functions. Invariant: adding reports gives the same whatever
// the order, as long as there are fewer than 2^22 of them. Layout, 32 bytes for each part:
//
//   0   terms    uint32   contributions that were added up; of sums: how many were coded, 0 or 1
//   4   absmax   float32  the largest magnitude coded; NaN if something was not finite
//   8   pull     int64    256 times the sum of (u - k) k, u the value in steps of the clip, k its
//                         code: a larger clip is better where it is positive
//   16  clipped  int64    256 times the squared error under the clip, in steps
//   24  blocks   int64    the same under the scales of blocks
#pragma once

#include <cstddef>
#include <cstdint>

#include "codec/kernels/clip_measure.h"
#include "tersum/status.h"

namespace tersum {

// Of contributions, or of sums.
struct ClipPart {
  uint32_t terms = 0;
  uint32_t absmax_bits = 0;  // as float32; kFloatNan is above all numbers
  int64_t pull = 0;
  int64_t clipped = 0;
  int64_t blocks = 0;

  // Limits pull, clipped and blocks to kClipSumMax in magnitude where `is_limited`: what travels
  // is.
  void add(const ClipPart& other, bool is_limited);
  friend bool operator==(const ClipPart&, const ClipPart&) = default;
};

struct ClipReport {
  ClipPart contributions;
  ClipPart sums;

  friend bool operator==(const ClipReport&, const ClipReport&) = default;
};

inline constexpr size_t kClipReportBytes = 64;
inline constexpr int64_t kClipSumMax = int64_t{1} << 40;
inline constexpr uint32_t kClipTermsMax = 65'535;

// What was measured of one coding.
ClipPart clip_part(const ClipMeasure& measure);

void write_clip_report(const ClipReport& report, std::byte* wire);
// What no encoder writes is read as the nearest that one does.
ClipReport read_clip_report(const std::byte* wire);
// kInvalidArgument for bytes that no encoder writes.
Status check_clip_report(const std::byte* wire);

}  // namespace tersum
