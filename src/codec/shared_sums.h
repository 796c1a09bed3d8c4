// SharedSums: what a codec has whose ranks agree on the scales of a sum before they encode, so that
// codes are added as they are, as integers or by a rule of the format, and no sum is coded again.
//
// Thread safety: any thread. Invariants: scales are bf16 bits of numbers that are not negative, or
// of NaN for what holds something not finite. As integers they are ordered as the numbers, NaN
// last, so a rank's own and those agreed on are found by maxima alone. Sums are the same bits
// whichever plan took them, of those that the format takes.
#pragma once

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
  // Values that share a scale, counted from the begin of a rank's part of the array; 0: all of a
  // call share one.
  [[nodiscard]] virtual uint32_t scale_block() const = 0;
  // Raises scales[0..] to what values[count], which begin at a block, need in a sum of `ranks`
  // ranks. Of `place`: where they lie, and what is added to them.
  virtual void measure(const void* values, size_t count, uint32_t ranks, const SlicePlace& place,
                       uint16_t* scales) const = 0;

  // The codecs of such sums use SlicePlace::scales and live as long as this. Of contributions on
  // their way to who adds up all of them; their gathered() has the sums.
  [[nodiscard]] virtual const Codec& contributions(uint32_t ranks) const = 0;
  // Of sums of some contributions, or of one, where ranks add to what passes through them.
  [[nodiscard]] virtual const Codec& partials(uint32_t ranks) const = 0;
};

// Scales that the sum of an array, or of a rank's part of one, has.
inline size_t shared_scale_count(const SharedSums& sums, size_t values) {
  const size_t block = sums.scale_block();
  return block == 0 ? 1 : (values + block - 1) / block;
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
