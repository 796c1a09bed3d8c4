// SharedSums: what a codec has whose ranks agree on the scales of a sum before they encode, so that
// codes are added as they are, as integers or by a rule of the format, and no sum is coded again.
//
// Thread safety: any thread. Invariants: scales are bf16 bits of numbers that are not negative, or
// of NaN for what holds something not finite. As integers they are ordered as the numbers, NaN
// last, so a rank's own and those agreed on are found by maxima alone. Sums are the same bits
// whichever plan took them, of those that the format takes.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>

#include "codec/codec.h"

namespace tersum {

class SharedSums {
 public:
  virtual ~SharedSums() = default;

  // Why so many ranks (2 or more) cannot sum, and what to do; empty if they can.
  [[nodiscard]] virtual std::string refusal(uint32_t ranks) const = 0;
  // False where whoever adds up must have all contributions side by side, in the order of the
  // ranks: plans in which ranks add to what passes through them are refused.
  [[nodiscard]] virtual bool takes_partials() const = 0;
  // True where, all the same, ranks may add contributions up two by two in their order, each some
  // of them (plan/rank_blocks.h): SlicePlace::held says what their wires hold.
  [[nodiscard]] virtual bool takes_pairs() const { return false; }
  // False where whoever adds up does so by random numbers of its own: plans in which several ranks
  // add the same are refused.
  [[nodiscard]] virtual bool takes_replicas() const { return true; }
  // True where codes are random whether or not +sr is asked for.
  [[nodiscard]] virtual bool is_random() const { return false; }
  // Values that share a scale, counted from the begin of a rank's part of the array, or of a row of
  // it; 0: all of a call share one.
  [[nodiscard]] virtual uint32_t scale_block() const = 0;
  // Values of a row, at the end of which a block ends, however short it is; 0: there are no rows.
  [[nodiscard]] virtual uint32_t scale_row() const { return 0; }
  // Raises scales[0..] to what values[count], which begin at a block, need in a sum of `ranks`
  // ranks. Where there are rows, they begin at one, or are part of one. Of `place`: where they lie,
  // and what is added to them.
  virtual void measure(const void* values, size_t count, uint32_t ranks, const SlicePlace& place,
                       uint16_t* scales) const = 0;

  // The codecs of such sums use SlicePlace::scales and live as long as this. Of contributions on
  // their way to who adds up all of them; their gathered() has the sums.
  [[nodiscard]] virtual const Codec& contributions(uint32_t ranks) const = 0;
  // Of sums of some contributions, or of one, where ranks add to what passes through them.
  [[nodiscard]] virtual const Codec& partials(uint32_t ranks) const = 0;
};

// Scales of a row, where there are rows.
inline size_t scales_in_row(const SharedSums& sums) {
  return (sums.scale_row() + sums.scale_block() - 1) / sums.scale_block();
}

// Scales that the sum of an array, or of a rank's part of one, has.
inline size_t shared_scale_count(const SharedSums& sums, size_t values) {
  const size_t block = sums.scale_block();
  if (block == 0) return 1;
  const size_t row = sums.scale_row();
  if (row == 0) return (values + block - 1) / block;
  return values / row * scales_in_row(sums) + (values % row + block - 1) / block;
}

// Which of them is that of a value of the array, or of the part. scale_block() > 0.
inline size_t shared_scale_at(const SharedSums& sums, size_t value) {
  const size_t row = sums.scale_row();
  if (row == 0) return value / sums.scale_block();
  return value / row * scales_in_row(sums) + value % row / sums.scale_block();
}

// The first value under a scale.
inline size_t first_under_scale(const SharedSums& sums, size_t scale) {
  if (sums.scale_row() == 0) return scale * sums.scale_block();
  const size_t each = scales_in_row(sums);
  return scale / each * sums.scale_row() + scale % each * sums.scale_block();
}

// Values to a scale, at least: of blocks that rows do not cut short, all there are. 1 where all
// values share one.
inline size_t values_per_scale(const SharedSums& sums) {
  if (sums.scale_block() == 0) return 1;
  if (sums.scale_row() == 0) return sums.scale_block();
  return std::max<size_t>(sums.scale_row() / scales_in_row(sums), 1);
}

// What travels towards a sum of `ranks` contributions coded by `codec`; `partials`: sums of some of
// them do.
inline const Codec* summing_codec(const Codec& codec, uint32_t ranks, bool partials) {
  const SharedSums* const sums = codec.shared_sums();
  if (sums == nullptr || ranks < 2) return &codec;
  return partials ? &sums->partials(ranks) : &sums->contributions(ranks);
}

// kUnsupported: `codec` cannot sum for so many ranks.
inline Status check_sum_ranks(const Codec& codec, uint32_t ranks) {
  const SharedSums* const sums = codec.shared_sums();
  if (sums == nullptr || ranks < 2) return {};
  const std::string refusal = sums->refusal(ranks);
  return refusal.empty() ? Status()
                         : unsupported("codec " + codec.spec().to_string() + " " + refusal);
}

}  // namespace tersum
