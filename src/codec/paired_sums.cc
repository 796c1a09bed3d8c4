#include "codec/paired_sums.h"

#include <algorithm>
#include <array>
#include <bit>
#include <string>
#include <utility>

#include "base/bytes.h"
#include "base/check.h"
#include "codec/combine_checks.h"
#include "codec/element_codec.h"
#include "codec/element_formats.h"
#include "codec/kernels/element_kernels.h"
#include "codec/kernels/pair_sum.h"
#include "codec/pair_tree.h"
#include "codec/shared_codes.h"
#include "codec/shared_scale.h"
#include "codec/value_kind.h"

namespace tersum {
namespace {

constexpr size_t kTileBytes = kTileValues / kPairCodes;

size_t packed_bytes(size_t count) { return (count + kPairCodes - 1) / kPairCodes; }

uint32_t held_by(size_t wire, const SlicePlace& place) {
  return place.held == nullptr ? 1 : place.held[wire];
}

uint32_t ranks_held(size_t wires, const SlicePlace& place) {
  uint32_t ranks = 0;
  for (size_t i = 0; i < wires; ++i) ranks += held_by(i, place);
  return ranks;
}

// What one tile is worked on in.
struct TileMemory {
  alignas(64) float values[kTileMemory];
  alignas(64) uint8_t codes[kTileMemory];
  BlockScale scales[kTileBlocksMax];
};

// Codes that are worked on together: as many as bytes of a little-endian word.
constexpr size_t kWordCodes = 8;

void pack_codes(const uint8_t* codes, size_t count, std::byte* wire) {
  const size_t words = count / kWordCodes;
  for (size_t i = 0; i < words; ++i) {
    auto word = load_le<uint64_t>(codes + i * kWordCodes);
    word |= word >> 6;
    word |= word >> 12;
    store_le(wire + 2 * i, static_cast<uint16_t>((word & 0xffU) | (word >> 24 & 0xff00U)));
  }
  for (size_t i = words * kWordCodes; i < count; i += kPairCodes) {
    uint32_t last = 0;
    for (size_t k = 0; k < std::min(kPairCodes, count - i); ++k) {
      last |= static_cast<uint32_t>(codes[i + k]) << (2 * k);
    }
    wire[i / kPairCodes] = static_cast<std::byte>(last);
  }
}

void unpack_codes(const std::byte* wire, size_t count, uint8_t* codes) {
  const size_t words = count / kWordCodes;
  for (size_t i = 0; i < words; ++i) {
    const auto bytes = uint64_t{load_le<uint16_t>(wire + 2 * i)};
    uint64_t word = (bytes | bytes << 24) & 0x000000ff000000ffU;
    word |= word << 12;
    word |= word << 6;
    store_le(codes + i * kWordCodes, word & 0x0303030303030303U);
  }
  for (size_t i = words * kWordCodes; i < count; ++i) {
    const auto byte = static_cast<uint32_t>(wire[i / kPairCodes]);
    codes[i] = static_cast<uint8_t>(byte >> (2 * (i % kPairCodes)) & 3U);
  }
}

// Codes of a sum of `ranks` contributions, without scales: of one of them, or of all.
class PairCodec final : public SharedCodec {
 public:
  PairCodec(const PlainSpec& spec, const ElementFormat& format, DataType type, uint32_t ranks)
      : SharedCodec(spec, format, type, false), ranks_(ranks) {}

  [[nodiscard]] size_t wire_bytes(size_t count) const override { return packed_bytes(count); }

  void encode(const void* values, size_t count, std::byte* wire,
              const SlicePlace& place) const override;
  void decode_part(const std::byte* wire, const SliceCut& cut, void* values,
                   const SlicePlace& place) const override;
  [[nodiscard]] Status check_wire(const std::byte* wire, size_t count) const override;
  // `wires` and `own` hold the contributions of 2^k ranks that stand together; of all where there
  // are `values_out`.
  void combine(std::span<const std::byte* const> wires, const void* own, size_t own_index,
               size_t count, const CombineFinish& finish, std::byte* wire_out, void* values_out,
               const SlicePlace& place) const override;
  [[nodiscard]] double block_error_bound(double absmax) const override;

 private:
  [[nodiscard]] float scale_at(const SlicePlace& place, size_t value, size_t block) const {
    return shared_scale(place.scales[value / format_.block + block]);
  }
  [[nodiscard]] bool read_scales(const SlicePlace& place, size_t first, size_t blocks, float factor,
                                 BlockScale* scales) const;
  // Codes of values first.. of a slice, to `wire`.
  void encode_tile(const void* values, size_t first, size_t count, const SlicePlace& place,
                   TileMemory& memory, std::byte* wire) const;
  // What a tile's codes stand for: values first.. of a slice, number `to`.. of an array.
  void store(const std::byte* wire, size_t first, size_t count, uint32_t divisor,
             const SlicePlace& place, size_t to, void* values, TileMemory& memory) const;

  uint32_t ranks_;
};

void PairCodec::encode_tile(const void* values, size_t first, size_t count, const SlicePlace& place,
                            TileMemory& memory, std::byte* wire) const {
  const ElementKernels& kernels = element_kernels();
  const size_t padded = round_up(count, format_.block);
  load_shared_values(format_, values, first, count, place, memory.values);
  for (size_t b = 0; b < padded / format_.block; ++b) {
    const float scale = scale_at(place, first, b);
    memory.scales[b] = make_block_scale(scale);
  }
  limit_to_scales(format_, memory.scales, padded / format_.block, memory.values);
  kernels.quantize(format_, memory.values, padded, memory.scales, memory.codes);
  pack_codes(memory.codes, count, wire);
}

// The mean of all contributions is what a code stands for, and R is a power of two: an average is
// exact as it is, and a sum R times it.
void PairCodec::store(const std::byte* wire, size_t first, size_t count, uint32_t divisor,
                      const SlicePlace& place, size_t to, void* values, TileMemory& memory) const {
  const ElementKernels& kernels = element_kernels();
  const size_t padded = round_up(count, format_.block);
  unpack_codes(wire, count, memory.codes);
  std::fill(memory.codes + count, memory.codes + padded, format_.zero_code);
  const float factor = static_cast<float>(ranks_) / static_cast<float>(divisor);
  const bool is_scaled = read_scales(place, first, padded / format_.block, factor, memory.scales);
  kernels.dequantize(format_, memory.codes, padded, memory.scales, memory.values);
  if (!is_scaled) {
    std::transform(memory.values, memory.values + count, memory.values,
                   [=](float x) { return x * factor; });
  }
  kernels.store(format_.kind, memory.values, count, values, to);
}

// Multiplied by `factor`, a power of two, where products with them are the same either way: of
// numbers neither so small nor so large that one of them is rounded. False: as they are.
bool PairCodec::read_scales(const SlicePlace& place, size_t first, size_t blocks, float factor,
                            BlockScale* scales) const {
  constexpr float kLeast = 0x1p-120F;
  constexpr float kMost = 0x1p100F;
  bool is_plain = true;
  for (size_t b = 0; b < blocks; ++b) {
    const float scale = scale_at(place, first, b);
    is_plain &= !(scale < kLeast) && !(scale > kMost);
    scales[b].scale = scale;
  }
  if (!is_plain) return false;
  for (size_t b = 0; b < blocks; ++b) scales[b].scale *= factor;
  return true;
}

void PairCodec::encode(const void* values, size_t count, std::byte* wire,
                       const SlicePlace& place) const {
  TERSUM_CHECK(place.scales != nullptr || count == 0);
  TileMemory memory;
  for (size_t first = 0; first < count; first += kTileValues) {
    const size_t here = std::min(kTileValues, count - first);
    encode_tile(values, first, here, place, memory, wire + first / kPairCodes);
  }
}

void PairCodec::decode_part(const std::byte* wire, const SliceCut& cut, void* values,
                            const SlicePlace& place) const {
  cut.check(format_.block);
  TERSUM_CHECK(place.scales != nullptr || cut.count == 0);
  TileMemory memory;
  for (size_t at = 0; at < cut.part; at += kTileValues) {
    const size_t here = std::min(kTileValues, cut.part - at);
    store(wire + (cut.begin + at) / kPairCodes, cut.begin + at, here, place.divisor, place, at,
          values, memory);
  }
}

Status PairCodec::check_wire(const std::byte* wire, size_t count) const {
  const size_t rest = count % kPairCodes;
  if (rest == 0) return {};
  const auto last = static_cast<uint32_t>(wire[packed_bytes(count) - 1]);
  if (last >> (2 * rest) == 0) return {};
  return invalid_argument("bits are set behind the last code");
}

void PairCodec::combine(std::span<const std::byte* const> wires, const void* own, size_t own_index,
                        size_t count, const CombineFinish& finish, std::byte* wire_out,
                        void* values_out, const SlicePlace& place) const {
  TERSUM_CHECK(finish.op == ReduceOp::kSum || finish.op == ReduceOp::kAverage);
  TERSUM_CHECK(place.scales != nullptr || count == 0);
  static_cast<void>(
      checked_combine_args(wires, own, own_index, count, finish, wire_out, values_out));
  const uint32_t ranks = ranks_held(wires.size(), place) + (own == nullptr ? 0 : 1);
  TERSUM_CHECK(values_out == nullptr ? std::has_single_bit(ranks) : ranks == ranks_);
  TileMemory memory;
  std::array<std::byte, kTileBytes> mine;
  const PairTable table = mean_pair_table();
  for (size_t first = 0; first < count; first += kTileValues) {
    const size_t here = std::min(kTileValues, count - first);
    const size_t offset = first / kPairCodes;
    PairTree<kTileBytes> tree(packed_bytes(here));
    const auto join = [&](std::byte* to, const std::byte* other) {
      add_pairs(table, to, other, packed_bytes(here), to);
    };
    if (own != nullptr) encode_tile(own, first, here, place, memory, mine.data());
    for (size_t i = 0; i <= wires.size(); ++i) {
      if (own != nullptr && i == own_index) tree.add(mine.data(), join);
      if (i < wires.size()) tree.add(wires[i] + offset, join, held_by(i, place));
    }
    const std::byte* const sum = tree.sum(join);
    if (wire_out != nullptr) std::copy_n(sum, packed_bytes(here), wire_out + offset);
    if (values_out == nullptr) continue;
    store(sum, first, here, finish.divisor, place, first, values_out, memory);
  }
}

// Of each contribution's share: half a step when it is coded, and half a step of the mean in each
// round.
double PairCodec::block_error_bound(double absmax) const {
  PlainSpec plain;
  plain.block = format_.block;
  const double half = make_element_codec(plain, format_, type_)->block_error_bound(absmax);
  return half * (1 + std::countr_zero(ranks_));
}

class PairedSums final : public SideBySideSums<PairCodec> {
 public:
  using SideBySideSums::SideBySideSums;

  [[nodiscard]] std::string refusal(uint32_t ranks) const override {
    if (std::has_single_bit(ranks) && ranks <= 1U << kPairRoundsMax) return {};
    return "adds streams two by two, for 2, 4, 8, … 4096 ranks, and this group has " +
           std::to_string(ranks) + "; use int2, or groups of such a size";
  }
  [[nodiscard]] bool takes_pairs() const override { return true; }
  [[nodiscard]] uint32_t scale_block() const override { return spec_.block; }
  void measure(const void* values, size_t count, uint32_t /*ranks*/, const SlicePlace& place,
               uint16_t* scales) const override {
    measure_scales(format_, values, count, place, false, scales);
  }
};

}  // namespace

std::unique_ptr<Codec> make_paired_sums_codec(const PlainSpec& spec, DataType type) {
  ElementFormat format = halves_format();
  format.kind = value_kind(type);
  format.block = spec.block;
  complete_format(format);
  return make_element_codec(spec, halves_format(), type,
                            std::make_unique<PairedSums>(spec, format, type));
}

}  // namespace tersum
