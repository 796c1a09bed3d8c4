#include "codec/mixed_codec.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "base/check.h"
#include "codec/kernels/element_kernels.h"
#include "codec/kernels/element_slice.h"
#include "codec/sectioned_codec.h"

namespace tersum {
namespace {

using CodecsByChange = std::array<std::unique_ptr<const Codec>, 3>;

enum Change : uint8_t { kSame = 0, kMore = 1, kLess = 2 };

constexpr size_t kBlockLeast = 32;
constexpr size_t kBlocksMax = kLayoutValues / kBlockLeast;
constexpr size_t kCopyPad = 16;
// Any that many have kCopyPad bytes: a block of one bit a value has 6.
constexpr size_t kPadBlocks = 3;

// A block and what a change of its bits gains, or loses.
struct Candidate {
  double value;
  uint16_t block;
};

struct MapCounts {
  size_t more = 0;
  size_t less = 0;
  bool known = true;  // else the numbers mean nothing
};

// How many of the 32 even bits are set; the instruction for it is not in every x86-64.
size_t count_even_bits(uint64_t bits) {
  constexpr uint64_t kPairs = 0x3333'3333'3333'3333;
  constexpr uint64_t kNibbles = 0x0f0f'0f0f'0f0f'0f0f;
  const uint64_t pairs = (bits & kPairs) + ((bits >> 2) & kPairs);
  return (((pairs + (pairs >> 4)) & kNibbles) * 0x0101'0101'0101'0101) >> 56;
}

// Of the first `blocks` of a map: bits 01 are more, 10 less, 11 nothing. 32 blocks at once.
MapCounts count_changes(const std::byte* map, size_t blocks) {
  constexpr size_t kAtOnce = 32;
  constexpr uint64_t kLowBits = 0x5555'5555'5555'5555;
  MapCounts counts;
  for (size_t b = 0; b < blocks; b += kAtOnce) {
    const size_t here = std::min(blocks - b, kAtOnce);
    uint64_t changes = 0;
    std::memcpy(&changes, map + b / 4, (here + 3) / 4);
    changes &= ~uint64_t{0} >> (64 - 2 * here);
    const uint64_t low = changes & kLowBits;
    const uint64_t high = (changes >> 1) & kLowBits;
    counts.known &= (low & high) == 0;
    counts.more += count_even_bits(low);
    counts.less += count_even_bits(high);
  }
  return counts;
}

// With `padded` up to kCopyPad bytes more than these, which needs no call for the few of a block.
void copy_codes(std::byte* to, const std::byte* from, size_t bytes, bool padded) {
  if (!padded) {
    std::memcpy(to, from, bytes);
    return;
  }
  for (size_t i = 0; i < bytes; i += kCopyPad) std::memcpy(to + i, from + i, kCopyPad);
}

// What a section's blocks would lose by each coding, and the choice.
struct MixedMemory {
  double error[3][kBlocksMax];   // by change
  double gain[kBlocksMax];       // what one bit more takes away
  double loss[kBlocksMax];       // what one bit less adds
  Candidate gains[kBlocksMax];   // those that may be in pairs
  Candidate losses[kBlocksMax];  // likewise, negated
  uint8_t change[kBlocksMax];
  std::vector<std::byte> wire[3];  // the section by each coding
  alignas(64) float decoded[kTileMemory];
  // Of a tile: its blocks of each coding.
  std::byte slices[3][kTileMemory + kScaleBytes * kTileBlocksMax + kCopyPad];
};

MixedMemory& mixed_memory() {
  thread_local const std::unique_ptr<MixedMemory> memory(new MixedMemory);
  return *memory;
}

class MixedCodec final : public SectionedCodec {
 public:
  MixedCodec(const PlainSpec& spec, CodecsByChange by_change, DataType type)
      : SectionedCodec(spec, type),
        block_(spec.block),
        codecs_(std::move(by_change)),
        turns_(spec.transforms()) {
    for (size_t change = 0; change < codecs_.size(); ++change) {
      TERSUM_CHECK(codecs_[change]->value_type() == DataType::kFloat32);
      TERSUM_CHECK(codecs_[change]->block() == block_);
      TERSUM_CHECK(codecs_[change]->element_format() != nullptr);
      block_bytes_[change] = codecs_[change]->wire_bytes(block_);
      TERSUM_CHECK(codecs_[change]->wire_bytes(size_t{3} * block_) == 3 * block_bytes_[change]);
    }
    TERSUM_CHECK(block_bytes_[kMore] - block_bytes_[kSame] ==
                 block_bytes_[kSame] - block_bytes_[kLess]);
  }

  [[nodiscard]] uint32_t block() const override { return block_; }
  [[nodiscard]] bool flattens() const override { return codecs_[kSame]->flattens(); }
  [[nodiscard]] double block_error_bound(double absmax) const override {
    if (absmax == 0) return 0;
    return stored_error_bound(absmax, codecs_[kLess]->block_error_bound(absmax));
  }

 protected:
  [[nodiscard]] size_t section_bytes(size_t count) const override {
    return map_bytes(count) + count / block_ * block_bytes_[kSame] +
           codecs_[kSame]->wire_bytes(count % block_);
  }
  void encode_section(const float* values, size_t count, std::byte* wire,
                      const SlicePlace& place) const override;
  void decode_section(const std::byte* wire, size_t count, size_t begin, size_t part, float* values,
                      const SlicePlace& place) const override;
  [[nodiscard]] Status check_section(const std::byte* wire, size_t count) const override;

 private:
  [[nodiscard]] size_t blocks_of(size_t count) const { return (count + block_ - 1) / block_; }
  [[nodiscard]] size_t map_bytes(size_t count) const { return (blocks_of(count) + 3) / 4; }
  static Change change_of(const std::byte* map, size_t block) {
    return static_cast<Change>(static_cast<uint8_t>(map[block / 4]) >> (2 * (block % 4)) & 3U);
  }
  [[nodiscard]] SlicePlace place_of(size_t block, const SlicePlace& section) const {
    SlicePlace place = section;
    place.first += block * block_;
    return place;
  }
  void try_all(const float* values, size_t blocks, MixedMemory& memory,
               const SlicePlace& place) const;
  void choose(const float* values, size_t blocks, MixedMemory& memory,
              const SlicePlace& place) const;
  const std::byte* decode_whole(const std::byte* map, const std::byte* from, size_t first,
                                size_t blocks, float* values) const;
  const std::byte* decode_turned(const std::byte* map, const std::byte* from, size_t first,
                                 size_t blocks, float* values, const SlicePlace& place) const;
  const std::byte* decode_tile(const std::byte* map, const std::byte* from, size_t first,
                               size_t here, float* values, const SlicePlace& place) const;
  std::byte* put_blocks(const MixedMemory& memory, size_t blocks, std::byte* map,
                        std::byte* to) const;
  [[nodiscard]] bool is_written_map(const std::byte* map, size_t count) const;

  uint32_t block_;
  CodecsByChange codecs_;
  std::array<size_t, 3> block_bytes_{};
  bool turns_;  // blocks are rotated, or multiplied, before they are coded
};

// memory.wire and memory.error of `blocks` whole blocks by each coding.
void MixedCodec::try_all(const float* values, size_t blocks, MixedMemory& memory,
                         const SlicePlace& place) const {
  TileTransform transform;
  codecs_[kSame]->put_transform(place, transform);
  const auto trial = [&](Change change) {
    const SliceCoding coding{*codecs_[change]->element_format(), element_kernels(), transform,
                             place.first};
    return SliceTrial{coding, memory.wire[change].data(), memory.error[change]};
  };
  const std::array<SliceTrial, 3> trials{trial(kSame), trial(kMore), trial(kLess)};
  try_elements(trials, values, blocks * block_);
}

// Where gains, in their order, stop being above losses, in theirs: more gains are above `low` than
// losses are below it, and no more above `high`.
struct Crossing {
  double low = -std::numeric_limits<double>::infinity();
  double high = std::numeric_limits<double>::infinity();
};

// To within a 256th of what lies between: all are counted once, and few are left to sort. A guess,
// as numbers are rounded to their bin; pair_within() tells when it does not hold.
Crossing find_crossing(size_t blocks, const MixedMemory& memory, double least, double most) {
  constexpr int kBins = 256;
  const double per_bin = (most - least) / kBins;
  if (!std::isnormal(per_bin)) return {};
  const auto bin_of = [&, bins_per = 1 / per_bin](double value) {
    const double at = (value - least) * bins_per;
    if (!(at < kBins)) return size_t{kBins - 1};
    return at > 0 ? static_cast<size_t>(at) : 0;
  };
  std::array<uint32_t, kBins> gains{};
  std::array<uint32_t, kBins> losses{};
  for (size_t b = 0; b < blocks; ++b) {
    ++gains[bin_of(memory.gain[b])];
    ++losses[bin_of(memory.loss[b])];
  }
  size_t above = blocks;
  size_t below = 0;
  size_t bin = 0;
  for (; bin < kBins && above > below; ++bin) {
    above -= gains[bin];
    below += losses[bin];
  }
  // They cross within the last bin that was counted; one more on either side is for the rounding.
  const auto edge = [&](double index) { return least + index * per_bin; };
  return {edge(static_cast<double>(bin) - 2), edge(static_cast<double>(bin) + 1)};
}

// The largest first, of equals the first in the array.
void sort_candidates(Candidate* candidates, size_t count) {
  std::sort(candidates, candidates + count, [](const Candidate& a, const Candidate& b) {
    return a.value != b.value ? a.value > b.value : a.block < b.block;
  });
}

// Pairs the block that gains the most with the one that loses the least, as long as that pays, of
// gains above and losses below the crossing. False: others may be in pairs, too, because blocks
// that would have been taken for both left room.
bool pair_within(const Crossing& crossing, size_t blocks, MixedMemory& memory) {
  std::fill_n(memory.change, blocks, uint8_t{kSame});
  size_t gains = 0;
  size_t losses = 0;
  for (size_t b = 0; b < blocks; ++b) {
    memory.gains[gains] = {memory.gain[b], static_cast<uint16_t>(b)};
    gains += memory.gain[b] > crossing.low ? 1 : 0;
    memory.losses[losses] = {-memory.loss[b], static_cast<uint16_t>(b)};
    losses += memory.loss[b] < crossing.high ? 1 : 0;
  }
  sort_candidates(memory.gains, gains);
  sort_candidates(memory.losses, losses);
  const auto is_free = [&](const Candidate& candidate) {
    return memory.change[candidate.block] == kSame;
  };
  size_t first = 0;
  for (size_t g = 0; g < gains; ++g) {
    const Candidate& more = memory.gains[g];
    if (!is_free(more)) continue;
    while (first < losses && !is_free(memory.losses[first])) ++first;
    size_t less = first;
    while (less < losses &&
           (!is_free(memory.losses[less]) || memory.losses[less].block == more.block)) {
      ++less;
    }
    // What was left out loses `high` or more, and gains `low` or less.
    if (less == losses) return more.value <= crossing.high;
    if (!(more.value > -memory.losses[less].value)) return true;
    memory.change[more.block] = kMore;
    memory.change[memory.losses[less].block] = kLess;
  }
  while (first < losses && !is_free(memory.losses[first])) ++first;
  return first == losses || -memory.losses[first].value >= crossing.low;
}

// The change of each of `blocks` whole blocks.
void pair_blocks(size_t blocks, MixedMemory& memory) {
  double most = -std::numeric_limits<double>::infinity();
  double least = -most;
  for (size_t b = 0; b < blocks; ++b) {
    memory.gain[b] = memory.error[kSame][b] - memory.error[kMore][b];
    memory.loss[b] = memory.error[kLess][b] - memory.error[kSame][b];
    most = std::max(most, memory.gain[b]);
    least = std::min(least, memory.loss[b]);
  }
  if (!(most > least)) {
    std::fill_n(memory.change, blocks, uint8_t{kSame});
  } else if (!pair_within(find_crossing(blocks, memory, least, most), blocks, memory)) {
    pair_within({}, blocks, memory);
  }
}

void MixedCodec::choose(const float* values, size_t blocks, MixedMemory& memory,
                        const SlicePlace& place) const {
  for (size_t change = 0; change < codecs_.size(); ++change) {
    memory.wire[change].resize(codecs_[change]->wire_bytes(kLayoutValues) + kCopyPad);
  }
  try_all(values, blocks, memory, place);
  pair_blocks(blocks, memory);
}

// Blocks as slices of their own, each from its scale and its codes in its section's slice: they are
// the same bytes, as blocks are whole groups of codes. Returns where they end.
std::byte* MixedCodec::put_blocks(const MixedMemory& memory, size_t blocks, std::byte* map,
                                  std::byte* to) const {
  for (size_t b = 0; b < blocks; ++b) {
    const uint8_t change = memory.change[b];
    map[b / 4] |= static_cast<std::byte>(change << (2 * (b % 4)));
    const size_t code_bytes = block_bytes_[change] - kScaleBytes;
    const std::byte* const scales = memory.wire[change].data();
    const std::byte* const codes = scales + blocks * kScaleBytes + b * code_bytes;
    std::memcpy(to, scales + b * kScaleBytes, kScaleBytes);
    copy_codes(to + kScaleBytes, codes, code_bytes, b + kPadBlocks < blocks);
    to += block_bytes_[change];
  }
  return to;
}

void MixedCodec::encode_section(const float* values, size_t count, std::byte* wire,
                                const SlicePlace& place) const {
  MixedMemory& memory = mixed_memory();
  const size_t whole = count / block_;
  choose(values, whole, memory, place);
  std::fill_n(wire, map_bytes(count), std::byte{0});
  std::byte* const to = put_blocks(memory, whole, wire, wire + map_bytes(count));
  if (whole * block_ == count) return;
  codecs_[kSame]->encode(values + whole * block_, count - whole * block_, to,
                         place_of(whole, place));
}

// With another map the blocks would end elsewhere than the section.
bool MixedCodec::is_written_map(const std::byte* map, size_t count) const {
  const size_t blocks = blocks_of(count);
  const MapCounts counts = count_changes(map, blocks);
  const bool short_is_same = count % block_ == 0 || change_of(map, blocks - 1) == kSame;
  return counts.known && counts.more == counts.less && short_is_same;
}

// Blocks first..first+blocks-1, which are not turned: `from` is where their bytes begin. Returns
// where they end.
const std::byte* MixedCodec::decode_whole(const std::byte* map, const std::byte* from, size_t first,
                                          size_t blocks, float* values) const {
  const ElementKernels& kernels = element_kernels();
  BlockScale scale;
  for (size_t b = first; b < first + blocks; ++b, values += block_) {
    const Change change = change_of(map, b);
    const ElementFormat& format = *codecs_[change]->element_format();
    kernels.read_scales(format, from, 1, 0, &scale);
    kernels.dequantize_wire(format, from + kScaleBytes, block_, &scale, nullptr, values);
    from += block_bytes_[change];
  }
  return from;
}

// Blocks first..first+here-1, a tile that is turned: those of each coding as one slice, so that
// many are turned back at once. Where it matters which channels a block holds each is where it
// stands, and the others are zeros. Returns where they end.
const std::byte* MixedCodec::decode_tile(const std::byte* map, const std::byte* from, size_t first,
                                         size_t here, float* values,
                                         const SlicePlace& place) const {
  MixedMemory& memory = mixed_memory();
  TileTransform transform;
  codecs_[kSame]->put_transform(place, transform);
  const bool stands = transform.diagonal != nullptr;
  std::array<size_t, 3> own{};
  for (size_t b = 0; b < here; ++b) ++own[change_of(map, first + b)];
  const auto size_of = [&](size_t change) { return stands ? here : own[change]; };
  for (size_t change = 0; stands && change < own.size(); ++change) {
    std::memset(memory.slices[change], 0, here * block_bytes_[change]);
  }
  std::array<size_t, 3> put{};
  for (size_t b = 0; b < here; ++b) {
    const Change change = change_of(map, first + b);
    const size_t at = stands ? b : put[change]++;
    const size_t code_bytes = block_bytes_[change] - kScaleBytes;
    std::byte* const slice = memory.slices[change];
    std::memcpy(slice + at * kScaleBytes, from, kScaleBytes);
    copy_codes(slice + size_of(change) * kScaleBytes + at * code_bytes, from + kScaleBytes,
               code_bytes, !stands && b + kPadBlocks < here);
    from += block_bytes_[change];
  }
  for (size_t change = 0; change < own.size(); ++change) {
    if (own[change] == 0) continue;
    float* const to = own[change] == here ? values : memory.decoded;
    codecs_[change]->decode(memory.slices[change], size_of(change) * block_, to,
                            place_of(first, place));
    for (size_t b = 0, packed = 0; to != values && b < here; ++b) {
      if (change_of(map, first + b) != change) continue;
      const size_t at = stands ? b : packed++;
      std::memcpy(values + b * block_, to + at * block_, block_ * sizeof(float));
    }
  }
  return from;
}

// As decode_whole(), of blocks that are turned.
const std::byte* MixedCodec::decode_turned(const std::byte* map, const std::byte* from,
                                           size_t first, size_t blocks, float* values,
                                           const SlicePlace& place) const {
  const size_t at_once = kTileValues / block_;
  for (size_t done = 0; done < blocks; done += at_once) {
    const size_t here = std::min(at_once, blocks - done);
    from = decode_tile(map, from, first + done, here, values + done * block_, place);
  }
  return from;
}

void MixedCodec::decode_section(const std::byte* wire, size_t count, size_t begin, size_t part,
                                float* values, const SlicePlace& place) const {
  if (!is_written_map(wire, count)) {
    std::fill_n(values, part, float_from_bits(kFloatNan));
    return;
  }
  const std::byte* from = wire + map_bytes(count);
  const size_t first = begin / block_;
  const MapCounts before = count_changes(wire, first);
  from += (first - before.more - before.less) * block_bytes_[kSame] +
          before.more * block_bytes_[kMore] + before.less * block_bytes_[kLess];
  const size_t whole = part / block_;
  from = turns_ ? decode_turned(wire, from, first, whole, values, place)
                : decode_whole(wire, from, first, whole, values);
  if (whole * block_ == part) return;
  codecs_[kSame]->decode(from, part - whole * block_, values + whole * block_,
                         place_of(first + whole, place));
}

Status MixedCodec::check_section(const std::byte* wire, size_t count) const {
  if (!is_written_map(wire, count)) {
    return invalid_argument(
        "its map does not widen and narrow as many blocks, or touches a short one");
  }
  const std::byte* from = wire + map_bytes(count);
  for (size_t b = 0; b < blocks_of(count); ++b) {
    const Change change = change_of(wire, b);
    const size_t here = std::min<size_t>(block_, count - b * block_);
    const Status block = codecs_[change]->check_wire(from, here);
    if (!block.ok()) {
      return invalid_argument("block " + std::to_string(b) +
                              " as a slice of its own: " + std::string(block.message()));
    }
    from += block_bytes_[change];
  }
  return {};
}

}  // namespace

std::unique_ptr<Codec> make_mixed_codec(const PlainSpec& spec, CodecsByChange by_change,
                                        DataType type) {
  return std::make_unique<MixedCodec>(spec, std::move(by_change), type);
}

}  // namespace tersum
