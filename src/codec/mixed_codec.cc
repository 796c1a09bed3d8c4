#include "codec/mixed_codec.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "base/check.h"
#include "codec/kernels/block_format.h"
#include "codec/sectioned_codec.h"

namespace tersum {
namespace {

using CodecsByChange = std::array<std::unique_ptr<const Codec>, 3>;

enum Change : uint8_t { kSame = 0, kMore = 1, kLess = 2 };

constexpr size_t kBlockLeast = 32;
constexpr size_t kBlocksMax = kLayoutValues / kBlockLeast;

// What a section's blocks would lose by each coding, and the choice.
struct MixedMemory {
  double error[3][kBlocksMax];  // by change
  double gain[kBlocksMax];      // what one bit more takes away
  double cost[kBlocksMax];      // what one bit less adds
  uint16_t by_gain[kBlocksMax];
  uint16_t by_cost[kBlocksMax];
  uint8_t change[kBlocksMax];
  std::vector<std::byte> wire;
  std::vector<float> decoded;
};

MixedMemory& mixed_memory() {
  thread_local const std::unique_ptr<MixedMemory> memory(new MixedMemory);
  return *memory;
}

// Values that are tried at once: whole blocks that stay in L1.
constexpr size_t kTrialValues = 4096;
constexpr size_t kChains = 4;

// The squared error of `kBlocks` blocks that follow each other, each summed in the order of its
// values; 0 where something is not finite, which no number of bits mends. Several at once, because
// one sum waits for every addition.
template <size_t kBlocks>
void squared_errors(const float* values, const float* decoded, size_t block, double* errors) {
  double sums[kBlocks] = {};
  for (size_t i = 0; i < block; ++i) {
    for (size_t b = 0; b < kBlocks; ++b) {
      const size_t at = b * block + i;
      const double error = double{values[at]} - double{decoded[at]};
      sums[b] += error * error;
    }
  }
  for (size_t b = 0; b < kBlocks; ++b) errors[b] = std::isfinite(sums[b]) ? sums[b] : 0;
}

class MixedCodec final : public SectionedCodec {
 public:
  MixedCodec(const PlainSpec& spec, CodecsByChange by_change, DataType type)
      : SectionedCodec(spec, type), block_(spec.block), codecs_(std::move(by_change)) {
    for (size_t change = 0; change < codecs_.size(); ++change) {
      TERSUM_CHECK(codecs_[change]->value_type() == DataType::kFloat32);
      TERSUM_CHECK(codecs_[change]->block() == block_);
      block_bytes_[change] = codecs_[change]->wire_bytes(block_);
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
  void try_change(Change change, const float* values, size_t blocks, MixedMemory& memory,
                  const SlicePlace& place) const;
  void choose(const float* values, size_t blocks, MixedMemory& memory,
              const SlicePlace& place) const;
  [[nodiscard]] bool is_written_map(const std::byte* map, size_t count) const;

  uint32_t block_;
  CodecsByChange codecs_;
  std::array<size_t, 3> block_bytes_{};
};

// memory.error[change] of `blocks` whole blocks.
void MixedCodec::try_change(Change change, const float* values, size_t blocks, MixedMemory& memory,
                            const SlicePlace& place) const {
  const Codec& codec = *codecs_[change];
  const size_t at_once = kTrialValues / block_;
  memory.wire.resize(codec.wire_bytes(kTrialValues));
  memory.decoded.resize(kTrialValues);
  for (size_t first = 0; first < blocks; first += at_once) {
    const size_t here = std::min(at_once, blocks - first);
    const float* const from = values + first * block_;
    const float* const decoded = memory.decoded.data();
    double* const errors = memory.error[change] + first;
    codec.encode(from, here * block_, memory.wire.data(), place_of(first, place));
    codec.decode(memory.wire.data(), here * block_, memory.decoded.data(), place_of(first, place));
    size_t b = 0;
    for (; b + kChains <= here; b += kChains) {
      squared_errors<kChains>(from + b * block_, decoded + b * block_, block_, errors + b);
    }
    for (; b < here; ++b) {
      squared_errors<1>(from + b * block_, decoded + b * block_, block_, errors + b);
    }
  }
}

// Pairs the block that gains the most with the one that loses the least, as long as that pays.
// `blocks`: whole ones.
void pair_blocks(size_t blocks, MixedMemory& memory) {
  std::fill_n(memory.change, blocks, uint8_t{kSame});
  std::iota(memory.by_gain, memory.by_gain + blocks, uint16_t{0});
  std::iota(memory.by_cost, memory.by_cost + blocks, uint16_t{0});
  std::sort(memory.by_gain, memory.by_gain + blocks, [&](uint16_t a, uint16_t b) {
    return memory.gain[a] != memory.gain[b] ? memory.gain[a] > memory.gain[b] : a < b;
  });
  std::sort(memory.by_cost, memory.by_cost + blocks, [&](uint16_t a, uint16_t b) {
    return memory.cost[a] != memory.cost[b] ? memory.cost[a] < memory.cost[b] : a < b;
  });
  const auto next = [&](const uint16_t* order, size_t at, size_t except) {
    while (at < blocks && (memory.change[order[at]] != kSame || order[at] == except)) ++at;
    return at;
  };
  size_t gains = 0;
  size_t costs = 0;
  while (true) {
    gains = next(memory.by_gain, gains, blocks);
    if (gains == blocks) return;
    const uint16_t more = memory.by_gain[gains];
    costs = next(memory.by_cost, costs, blocks);
    const size_t found = next(memory.by_cost, costs, more);
    if (found == blocks) return;
    const uint16_t less = memory.by_cost[found];
    if (!(memory.gain[more] > memory.cost[less])) return;
    memory.change[more] = kMore;
    memory.change[less] = kLess;
  }
}

void MixedCodec::choose(const float* values, size_t blocks, MixedMemory& memory,
                        const SlicePlace& place) const {
  for (const Change change : {kSame, kMore, kLess}) {
    try_change(change, values, blocks, memory, place);
  }
  for (size_t b = 0; b < blocks; ++b) {
    memory.gain[b] = memory.error[kSame][b] - memory.error[kMore][b];
    memory.cost[b] = memory.error[kLess][b] - memory.error[kSame][b];
  }
  pair_blocks(blocks, memory);
}

void MixedCodec::encode_section(const float* values, size_t count, std::byte* wire,
                                const SlicePlace& place) const {
  MixedMemory& memory = mixed_memory();
  const size_t whole = count / block_;
  choose(values, whole, memory, place);
  std::fill_n(wire, map_bytes(count), std::byte{0});
  std::byte* to = wire + map_bytes(count);
  for (size_t b = 0; b < whole; ++b) {
    const uint8_t change = memory.change[b];
    wire[b / 4] |= static_cast<std::byte>(change << (2 * (b % 4)));
    codecs_[change]->encode(values + b * block_, block_, to, place_of(b, place));
    to += block_bytes_[change];
  }
  if (whole * block_ == count) return;
  codecs_[kSame]->encode(values + whole * block_, count - whole * block_, to,
                         place_of(whole, place));
}

// With another map the blocks would end elsewhere than the section.
bool MixedCodec::is_written_map(const std::byte* map, size_t count) const {
  size_t numbers[4] = {};
  for (size_t b = 0; b < blocks_of(count); ++b) ++numbers[change_of(map, b)];
  const bool short_is_same = count % block_ == 0 || change_of(map, blocks_of(count) - 1) == kSame;
  return numbers[kMore] == numbers[kLess] && numbers[3] == 0 && short_is_same;
}

void MixedCodec::decode_section(const std::byte* wire, size_t count, size_t begin, size_t part,
                                float* values, const SlicePlace& place) const {
  if (!is_written_map(wire, count)) {
    std::fill_n(values, part, float_from_bits(kFloatNan));
    return;
  }
  const std::byte* from = wire + map_bytes(count);
  const size_t first = begin / block_;
  for (size_t b = 0; b < first; ++b) from += block_bytes_[change_of(wire, b)];
  for (size_t b = first, at = 0; at < part; ++b) {
    const Change change = change_of(wire, b);
    const size_t here = std::min<size_t>(block_, part - at);
    codecs_[change]->decode(from, here, values + at, place_of(b, place));
    from += block_bytes_[change];
    at += here;
  }
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
