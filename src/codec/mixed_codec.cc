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
  double gain[kBlocksMax];  // squared error that one bit more takes away
  double cost[kBlocksMax];  // that one bit less adds
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

// The squared error, summed in the order of the values; 0 where something is not finite, which no
// number of bits mends.
double squared_error(const float* values, const float* decoded, size_t count) {
  double sum = 0;
  for (size_t i = 0; i < count; ++i) {
    const double error = double{values[i]} - double{decoded[i]};
    sum += error * error;
  }
  return std::isfinite(sum) ? sum : 0;
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
  [[nodiscard]] double coding_error(Change change, const float* values, MixedMemory& memory,
                                    const SlicePlace& place) const;
  void choose(const float* values, size_t blocks, MixedMemory& memory,
              const SlicePlace& place) const;
  [[nodiscard]] bool is_written_map(const std::byte* map, size_t count) const;

  uint32_t block_;
  CodecsByChange codecs_;
  std::array<size_t, 3> block_bytes_{};
};

double MixedCodec::coding_error(Change change, const float* values, MixedMemory& memory,
                                const SlicePlace& place) const {
  codecs_[change]->encode(values, block_, memory.wire.data(), place);
  codecs_[change]->decode(memory.wire.data(), block_, memory.decoded.data(), place);
  return squared_error(values, memory.decoded.data(), block_);
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
  memory.wire.resize(block_bytes_[kMore]);
  memory.decoded.resize(block_);
  for (size_t b = 0; b < blocks; ++b) {
    const float* const from = values + b * block_;
    const SlicePlace at = place_of(b, place);
    const double same = coding_error(kSame, from, memory, at);
    memory.gain[b] = same - coding_error(kMore, from, memory, at);
    memory.cost[b] = coding_error(kLess, from, memory, at) - same;
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
