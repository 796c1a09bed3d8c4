#include "codec/learned_clip.h"

#include <xxhash.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "base/bytes.h"
#include "base/check.h"
#include "codec/kernels/numbers.h"

namespace tersum {
namespace {

constexpr size_t kSideBytes = LearnedClip::kSavedBytes / 2;

// A float32 as near as there is; a clip beyond float32's range is the largest number.
float narrow(double clip) {
  return static_cast<float>(std::min(clip, double{std::numeric_limits<float>::max()}));
}

}  // namespace

void LearnedClip::Side::begin(double absmax) {
  clip = absmax;
  rate = kRateFirst;
  direction = 0;
  trusted = false;
}

void LearnedClip::Side::learn(const ClipPart& part) {
  const double absmax = float_from_bits(part.absmax_bits);
  if (part.terms == 0 || !std::isfinite(absmax) || absmax == 0) return;
  ++calls;
  if (clip == 0) return begin(absmax);
  if (part.clipped / kLostTimes > part.blocks || 2 * absmax < clip) return begin(absmax);
  trusted = calls >= kCallsMin && part.clipped <= part.blocks;
  step(part.pull);
  // Nothing was beyond it.
  clip = std::min(clip, absmax);
}

void LearnedClip::Side::step(int64_t pull) {
  const int64_t way = pull > 0 ? 1 : (pull < 0 ? -1 : 0);
  if (way != 0 && way == direction) rate = 1.5 * rate;
  if (way != 0 && way == -direction) rate = std::max(rate / 2, kRateLeast);
  rate = std::min(rate, trusted ? kRateTrusted : kRateMost);
  direction = way;
  if (way > 0) clip *= 1 + rate;
  if (way < 0) clip /= 1 + rate;
}

void LearnedClip::learn(const ClipReport& report) {
  contributions_.learn(report.contributions);
  sums_.learn(report.sums);
}

ClipFactors LearnedClip::factors(uint32_t ranks) const {
  return {narrow(contributions_.clip), narrow(sums_.clip), ranks};
}

uint64_t LearnedClip::digest() const {
  std::array<std::byte, kSavedBytes> saved{};
  save(saved);
  return XXH3_64bits(saved.data(), saved.size());
}

void LearnedClip::save_side(const Side& side, std::byte* to) {
  store_le(to, side.clip);
  store_le(to + 8, side.rate);
  store_le(to + 16, side.direction);
  store_le(to + 24, side.calls);
  store_le(to + 32, static_cast<uint64_t>(side.trusted ? 1 : 0));
}

void LearnedClip::save(std::span<std::byte> to) const {
  TERSUM_CHECK(to.size() == kSavedBytes);
  save_side(contributions_, to.data());
  save_side(sums_, to.data() + kSideBytes);
}

bool LearnedClip::load_side(const std::byte* from, Side& side) {
  side.clip = load_le<double>(from);
  side.rate = load_le<double>(from + 8);
  side.direction = load_le<int64_t>(from + 16);
  side.calls = load_le<uint64_t>(from + 24);
  const auto trusted = load_le<uint64_t>(from + 32);
  side.trusted = trusted == 1;
  const bool is_new = side.calls == 0 && side.clip == 0 && side.rate == 0 && side.direction == 0;
  const bool has_clip = side.calls > 0 && side.clip > 0 && std::isfinite(side.clip) &&
                        side.rate >= kRateLeast && side.rate <= kRateMost;
  const bool has_way = side.direction >= -1 && side.direction <= 1;
  const bool may_trust = trusted == 0 || (trusted == 1 && side.calls >= kCallsMin);
  return (is_new || has_clip) && has_way && may_trust;
}

bool LearnedClip::load(std::span<const std::byte> from) {
  if (from.size() != kSavedBytes) return false;
  Side contributions;
  Side sums;
  if (!load_side(from.data(), contributions)) return false;
  if (!load_side(from.data() + kSideBytes, sums)) return false;
  contributions_ = contributions;
  sums_ = sums;
  return true;
}

}  // namespace tersum
