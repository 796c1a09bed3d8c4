#include "codec/clip_report.h"

#include <algorithm>
#include <cmath>

#include "base/bytes.h"
#include "codec/kernels/numbers.h"

namespace tersum {
namespace {

constexpr size_t kPartBytes = kClipReportBytes / 2;
constexpr double kSteps = 256;  // of a squared step, in what travels

int64_t limited(int64_t sum) { return std::clamp(sum, -kClipSumMax, kClipSumMax); }

int64_t fixed(double sum) {
  const auto most = static_cast<double>(kClipSumMax);
  if (!std::isfinite(sum)) return sum < 0 ? -kClipSumMax : kClipSumMax;
  return static_cast<int64_t>(std::clamp(std::nearbyint(sum * kSteps), -most, most));
}

bool is_magnitude(uint32_t bits) { return bits < kFloatInfinity || bits == kFloatNan; }

void write_part(const ClipPart& part, std::byte* wire) {
  store_le(wire, part.terms);
  store_le(wire + 4, part.absmax_bits);
  store_le(wire + 8, part.pull);
  store_le(wire + 16, part.clipped);
  store_le(wire + 24, part.blocks);
}

ClipPart raw_part(const std::byte* wire) {
  return {load_le<uint32_t>(wire), load_le<uint32_t>(wire + 4), load_le<int64_t>(wire + 8),
          load_le<int64_t>(wire + 16), load_le<int64_t>(wire + 24)};
}

ClipPart read_part(const std::byte* wire) {
  ClipPart part = raw_part(wire);
  part.terms = std::min(part.terms, kClipTermsMax);
  if (!is_magnitude(part.absmax_bits)) part.absmax_bits = kFloatNan;
  part.pull = limited(part.pull);
  part.clipped = std::max<int64_t>(limited(part.clipped), 0);
  part.blocks = std::max<int64_t>(limited(part.blocks), 0);
  return part;
}

}  // namespace

void ClipPart::add(const ClipPart& other, bool is_limited) {
  terms += other.terms;
  absmax_bits = std::max(absmax_bits, other.absmax_bits);
  pull += other.pull;
  clipped += other.clipped;
  blocks += other.blocks;
  if (!is_limited) return;
  terms = std::min(terms, kClipTermsMax);
  pull = limited(pull);
  clipped = limited(clipped);
  blocks = limited(blocks);
}

ClipPart clip_part(const ClipMeasure& measure) {
  if (!measure.is_finite) return {1, kFloatNan, 0, 0, 0};
  return {1, measure.absmax_bits, fixed(measure.pull), fixed(measure.clipped),
          fixed(measure.blocks)};
}

void write_clip_report(const ClipReport& report, std::byte* wire) {
  write_part(report.contributions, wire);
  write_part(report.sums, wire + kPartBytes);
}

ClipReport read_clip_report(const std::byte* wire) {
  return {read_part(wire), read_part(wire + kPartBytes)};
}

Status check_clip_report(const std::byte* wire) {
  if (raw_part(wire) != read_part(wire)) {
    return invalid_argument("the slice's report of contributions is none that an encoder writes");
  }
  const ClipPart sums = raw_part(wire + kPartBytes);
  if (sums != read_part(wire + kPartBytes) || sums.terms > 1) {
    return invalid_argument("the slice's report of sums is none that an encoder writes");
  }
  return {};
}

}  // namespace tersum
