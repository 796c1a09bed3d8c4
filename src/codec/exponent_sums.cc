#include "codec/exponent_sums.h"

#include <algorithm>
#include <array>
#include <bit>
#include <string>

#include "base/check.h"
#include "codec/combine_checks.h"
#include "codec/element_codec.h"
#include "codec/element_formats.h"
#include "codec/kernels/element_kernels.h"
#include "codec/kernels/exponent_codes.h"
#include "codec/pair_tree.h"
#include "codec/shared_codes.h"
#include "codec/shared_scale.h"
#include "codec/value_kind.h"

namespace tersum {
namespace {

// Of the random numbers of an owner's additions: number n has the owner's key and n times this. An
// odd constant; the values' own numbers are those of n = 0.
constexpr uint64_t kAdditionKey = 0x9e3779b97f4a7c15U;

uint8_t* bytes_of(std::byte* codes) { return reinterpret_cast<uint8_t*>(codes); }
const uint8_t* bytes_of(const std::byte* codes) { return reinterpret_cast<const uint8_t*>(codes); }

// Codes of `ranks` contributions, without scales: of one of them, or of all.
class ExponentCodec final : public SharedCodec {
 public:
  ExponentCodec(const PlainSpec& spec, const ElementFormat& format, DataType type, uint32_t ranks)
      : SharedCodec(spec, format, type, true),
        ranks_(ranks),
        headroom_(static_cast<uint32_t>(std::bit_width(ranks - 1))) {
    // The level of the code that stands for the scale itself is 1.
    for (uint32_t code = 0; code < levels_.size(); ++code) {
      const uint32_t exponent = code & kExponentMax;
      const float level = exponent == 0 ? 0.0F : float_from_bits((exponent + headroom_) << 23);
      levels_[code] = (code & kExponentSign) != 0 ? -level : level;
    }
  }

  [[nodiscard]] size_t wire_bytes(size_t count) const override { return count; }

  void encode(const void* values, size_t count, std::byte* wire,
              const SlicePlace& place) const override;
  void decode_part(const std::byte* wire, const SliceCut& cut, void* values,
                   const SlicePlace& place) const override;
  [[nodiscard]] Status check_wire(const std::byte* wire, size_t count) const override;
  // `wires` and `own` are the contributions of all ranks.
  void combine(std::span<const std::byte* const> wires, const void* own, size_t own_index,
               size_t count, const CombineFinish& finish, std::byte* wire_out, void* values_out,
               const SlicePlace& place) const override;
  // A value and what it becomes are at most the scale, a sum of R and its code at most R and 2R
  // scales.
  [[nodiscard]] double block_error_bound(double absmax) const override {
    return 3 * (absmax * (1 + 0x1p-7) + 0x1p-133);
  }

 private:
  // Codes of values first.. of a slice, to `wire`.
  void encode_tile(const void* values, size_t first, size_t count, const SlicePlace& place,
                   std::byte* wire) const;
  // What a tile's codes stand for, number `to`.. of an array.
  void store(const std::byte* wire, size_t count, uint32_t divisor, const SlicePlace& place,
             size_t to, void* values) const;

  uint32_t ranks_;
  uint32_t headroom_;  // powers of two between the scale and R of it
  std::array<float, 256> levels_;
};

void ExponentCodec::encode_tile(const void* values, size_t first, size_t count,
                                const SlicePlace& place, std::byte* wire) const {
  alignas(64) float tile[kTileMemory];
  load_shared_values(format_, values, first, count, place, tile);
  const float scale = shared_scale(place.scales[0]);
  const BlockScale by = make_block_scale(scale);
  std::array<BlockScale, kTileBlocksMax> scales;
  const size_t blocks = (count + format_.block - 1) / format_.block;
  std::fill_n(scales.begin(), blocks, by);
  limit_to_scales(format_, scales.data(), blocks, tile);
  // Of a scale that is NaN or 0 there is no reciprocal; all codes are 0.
  std::transform(tile, tile + count, tile, [=](float x) {
    const float scaled = x * by.pre * by.inverse;
    return std::clamp(scaled, -1.0F, 1.0F);
  });
  encode_exponents(tile, count, headroom_, rounding_place(place.rounding, place.first + first),
                   bytes_of(wire));
}

// A level is a power of two: what stands behind it is rounded where the value type is, and once
// more in an average of a number of ranks that is no power of two.
void ExponentCodec::store(const std::byte* wire, size_t count, uint32_t divisor,
                          const SlicePlace& place, size_t to, void* values) const {
  alignas(64) float tile[kTileMemory];
  const float scale = shared_scale(place.scales[0]);
  const auto parts = static_cast<float>(divisor);
  std::array<float, 256> stands_for;
  std::transform(levels_.begin(), levels_.end(), stands_for.begin(),
                 [=](float level) { return level * scale / parts; });
  std::transform(wire, wire + count, tile,
                 [&](std::byte code) { return stands_for[static_cast<uint8_t>(code)]; });
  element_kernels().store(format_.kind, tile, count, values, to);
}

void ExponentCodec::encode(const void* values, size_t count, std::byte* wire,
                           const SlicePlace& place) const {
  TERSUM_CHECK(place.scales != nullptr || count == 0);
  for (size_t first = 0; first < count; first += kTileValues) {
    encode_tile(values, first, std::min(kTileValues, count - first), place, wire + first);
  }
}

void ExponentCodec::decode_part(const std::byte* wire, const SliceCut& cut, void* values,
                                const SlicePlace& place) const {
  cut.check(format_.block);
  TERSUM_CHECK(place.scales != nullptr || cut.count == 0);
  for (size_t at = 0; at < cut.part; at += kTileValues) {
    const size_t here = std::min(kTileValues, cut.part - at);
    store(wire + cut.begin + at, here, place.divisor, place, at, values);
  }
}

Status ExponentCodec::check_wire(const std::byte* wire, size_t count) const {
  const auto* const minus_zero = std::find(wire, wire + count, std::byte{kExponentSign});
  if (minus_zero == wire + count) return {};
  return invalid_argument("the code of value " + std::to_string(minus_zero - wire) +
                          " is a zero with a sign, which no encoder writes");
}

void ExponentCodec::combine(std::span<const std::byte* const> wires, const void* own,
                            size_t own_index, size_t count, const CombineFinish& finish,
                            std::byte* wire_out, void* values_out, const SlicePlace& place) const {
  TERSUM_CHECK(finish.op == ReduceOp::kSum || finish.op == ReduceOp::kAverage);
  TERSUM_CHECK(place.scales != nullptr || count == 0);
  static_cast<void>(
      checked_combine_args(wires, own, own_index, count, finish, wire_out, values_out));
  TERSUM_CHECK(wires.size() + (own == nullptr ? 0 : 1) == ranks_);
  std::array<std::byte, kTileValues> mine;
  for (size_t first = 0; first < count; first += kTileValues) {
    const size_t here = std::min(kTileValues, count - first);
    if (own != nullptr) encode_tile(own, first, here, place, mine.data());
    PairTree<kTileValues> tree(here);
    uint64_t key = place.rounding;
    const auto join = [&](std::byte* to, const std::byte* other) {
      key += kAdditionKey;
      add_exponents(bytes_of(to), bytes_of(other), here, rounding_place(key, place.first + first));
    };
    size_t wire = 0;
    for (size_t i = 0; i < ranks_; ++i) {
      const bool is_own = own != nullptr && i == own_index;
      tree.add(is_own ? mine.data() : wires[wire++] + first, join);
    }
    const std::byte* const sum = tree.sum(join);
    if (wire_out != nullptr) std::copy_n(sum, here, wire_out + first);
    if (values_out != nullptr) store(sum, here, finish.divisor, place, first, values_out);
  }
}

// The format is that of the scale.
class ExponentSums final : public SideBySideSums<ExponentCodec> {
 public:
  using SideBySideSums::SideBySideSums;

  [[nodiscard]] std::string refusal(uint32_t ranks) const override {
    if (ranks <= 1U << kPairRoundsMax) return {};
    return "adds up the codes of at most 4096 ranks, and this group has " + std::to_string(ranks) +
           "; use int8, or sum within smaller groups";
  }
  [[nodiscard]] bool takes_replicas() const override { return false; }
  [[nodiscard]] bool is_random() const override { return true; }
  [[nodiscard]] uint32_t scale_block() const override { return 0; }
  void measure(const void* values, size_t count, uint32_t /*ranks*/, const SlicePlace& place,
               uint16_t* scales) const override {
    measure_scales(format_, values, count, place, true, scales);
  }
};

}  // namespace

std::unique_ptr<Codec> make_exponent_sums_codec(const PlainSpec& spec, DataType type) {
  ElementFormat format = unit_format();
  format.kind = value_kind(type);
  format.block = spec.block;
  complete_format(format);
  return make_element_codec(spec, integer_format<8>(), type,
                            std::make_unique<ExponentSums>(spec, format, type));
}

}  // namespace tersum
