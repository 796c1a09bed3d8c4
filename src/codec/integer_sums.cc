#include "codec/integer_sums.h"

#include <algorithm>
#include <bit>
#include <map>
#include <mutex>
#include <string>
#include <utility>

#include "base/check.h"
#include "codec/combine_checks.h"
#include "codec/element_codec.h"
#include "codec/element_formats.h"
#include "codec/hadamard_signs.h"
#include "codec/kernels/element_kernels.h"
#include "codec/kernels/wide_codes.h"
#include "codec/shared_codes.h"
#include "codec/shared_scale.h"
#include "codec/value_kind.h"

namespace tersum {
namespace {

constexpr int32_t kLevels = 127;

// What one tile is worked on in.
struct TileMemory {
  alignas(64) float values[kTileMemory];
  alignas(64) int32_t sums[kTileMemory];
  alignas(64) uint8_t codes[kTileMemory];
  alignas(64) float factors[kTileMemory];
  BlockScale scales[kTileBlocksMax];
  float units[kTileBlocksMax];
};

BlockTurn turn_of(const PlainSpec& spec, bool one_scale) {
  if (!spec.hadamard) return {};
  constexpr uint32_t kRoot = 32;  // of the one size of blocks under one scale
  TERSUM_CHECK(!one_scale || spec.block == kRoot * kRoot);
  return {&hadamard_signs(spec.block), one_scale ? 1.0F / kRoot : 1.0F};
}

// What is on the wire for some number of ranks: codes, without scales.
class IntegerCodec final : public SharedCodec {
 public:
  // `format`: complete. `width`: bits of a code, whose magnitude is at most `largest`. `gathered`:
  // that of sums; null: this one. `one_scale`: of all blocks.
  IntegerCodec(const PlainSpec& spec, const ElementFormat& format, DataType type, bool one_scale,
               int32_t largest, uint32_t width, const Codec* gathered)
      : SharedCodec(spec, format, type, spec.sr),
        wide_(width),
        largest_(largest),
        one_scale_(one_scale),
        turn_(turn_of(spec, one_scale)),
        gathered_(gathered == nullptr ? this : gathered) {}

  [[nodiscard]] size_t wire_bytes(size_t count) const override { return wide_.slice_bytes(count); }
  [[nodiscard]] const Codec& gathered(uint32_t /*ranks*/) const override { return *gathered_; }

  void encode(const void* values, size_t count, std::byte* wire,
              const SlicePlace& place) const override;
  void decode_part(const std::byte* wire, const SliceCut& cut, void* values,
                   const SlicePlace& place) const override;
  [[nodiscard]] Status check_wire(const std::byte* wire, size_t count) const override;
  void combine(std::span<const std::byte* const> wires, const void* own, size_t own_index,
               size_t count, const CombineFinish& finish, std::byte* wire_out, void* values_out,
               const SlicePlace& place) const override;
  [[nodiscard]] double block_error_bound(double absmax) const override;

 private:
  static size_t values_in(size_t count, size_t first) {
    return std::min(kTileValues, count - first);
  }
  [[nodiscard]] const uint16_t* scale_at(const SlicePlace& place, size_t value,
                                         size_t block) const {
    return place.scales + (one_scale_ ? 0 : value / format_.block + block);
  }
  // Codes of values first.. of a slice, added to memory.sums.
  void add_values(const void* values, size_t first, size_t count, const SlicePlace& place,
                  TileMemory& memory) const;
  // What memory.sums stand for: values first.. of a slice, number `to`.. of an array.
  void store(size_t first, size_t count, const Finish& finish, const SlicePlace& place, size_t to,
             void* values, TileMemory& memory) const;

  WideCodes wide_;
  int32_t largest_;  // magnitude of a code
  bool one_scale_;
  BlockTurn turn_;
  const Codec* gathered_;
};

void IntegerCodec::add_values(const void* values, size_t first, size_t count,
                              const SlicePlace& place, TileMemory& memory) const {
  const ElementKernels& kernels = element_kernels();
  const size_t padded = round_up(count, format_.block);
  load_shared_values(format_, values, first, count, place, memory.values);
  turn_blocks(format_, turn_, count, memory.values);
  for (size_t b = 0; b < padded / format_.block; ++b) {
    const float scale = shared_scale(*scale_at(place, first, b));
    memory.scales[b] = make_block_scale(scale);
  }
  limit_to_scales(format_, memory.scales, padded / format_.block, memory.values);
  if (is_random()) {
    const RoundingPlace numbers = rounding_place(place.rounding, place.first + first);
    kernels.quantize_random(format_, numbers, memory.values, padded, memory.scales, memory.codes);
  } else {
    kernels.quantize(format_, memory.values, padded, memory.scales, memory.codes);
  }
  for (size_t i = 0; i < count; ++i) memory.sums[i] += static_cast<int8_t>(memory.codes[i]);
}

// A sum of R codes has at most 14 bits beside its sign and a scale has 8: their product is exact in
// float32, and what follows rounds once. Sums that are turned back are added up to numbers of at
// most 24 bits, exact as well; so these meet their scale behind that.
void IntegerCodec::store(size_t first, size_t count, const Finish& finish, const SlicePlace& place,
                         size_t to, void* values, TileMemory& memory) const {
  const ElementKernels& kernels = element_kernels();
  const size_t block = format_.block;
  const size_t padded = round_up(count, block);
  const size_t turned = turn_.signs == nullptr ? 0 : count / block * block;
  std::fill(memory.sums + count, memory.sums + padded, 0);
  for (size_t b = 0; b < padded / block; ++b) {
    const float scale = shared_scale(*scale_at(place, first, b));
    const bool is_turned = b * block < turned;
    memory.units[b] = is_turned ? 1.0F : scale;
    if (is_turned) std::fill_n(memory.factors + b * block, block, scale);
  }
  kernels.scale_sums(memory.sums, padded, block, memory.units, memory.values);
  if (turned > 0) {
    const RotationEnds ends{turn_.signs->undo.data(), memory.factors};
    kernels.unrotate(ends, memory.values, block, turned, memory.values);
  }
  if (turn_.rest != 1) {
    for (size_t i = turned; i < count; ++i) memory.values[i] /= turn_.rest;
  }
  kernels.finish(finish, round_up(count, kTilePad), memory.values);
  // An average is no larger than the largest value; with the errors of a block's codes it may be.
  if (turn_.signs != nullptr && finish.divides()) {
    kernels.limit(float_from_bits(format_.overflow_bits - 1), round_up(count, kTilePad),
                  memory.values);
  }
  kernels.store(format_.kind, memory.values, count, values, to);
}

void IntegerCodec::encode(const void* values, size_t count, std::byte* wire,
                          const SlicePlace& place) const {
  TERSUM_CHECK(place.scales != nullptr || count == 0);
  TileMemory memory;
  for (size_t first = 0; first < count; first += kTileValues) {
    const size_t here = values_in(count, first);
    std::fill_n(memory.sums, here, 0);
    add_values(values, first, here, place, memory);
    wide_.write(memory.sums, first, here, count, wire);
  }
}

void IntegerCodec::decode_part(const std::byte* wire, const SliceCut& cut, void* values,
                               const SlicePlace& place) const {
  cut.check(format_.block);
  TERSUM_CHECK(place.scales != nullptr || cut.count == 0);
  TileMemory memory;
  const Finish finish{ReduceOp::kAverage, place.divisor};
  for (size_t at = 0; at < cut.part; at += kTileValues) {
    const size_t here = values_in(cut.part, at);
    std::fill_n(memory.sums, here, 0);
    wide_.add(wire, cut.count, cut.begin + at, here, memory.sums);
    store(cut.begin + at, here, finish, place, at, values, memory);
  }
}

Status IntegerCodec::check_wire(const std::byte* wire, size_t count) const {
  TileMemory memory;
  for (size_t first = 0; first < count; first += kTileValues) {
    const size_t here = values_in(count, first);
    std::fill_n(memory.sums, here, 0);
    wide_.add(wire, count, first, here, memory.sums);
    for (size_t i = 0; i < here; ++i) {
      const int32_t code = memory.sums[i];
      if (code <= largest_ && code >= -largest_) continue;
      return invalid_argument("the code of value " + std::to_string(first + i) + " is " +
                              std::to_string(code) + ", which no encoder writes");
    }
  }
  return {};
}

// Sums travel as they are, undivided: a quotient would be no integer.
void IntegerCodec::combine(std::span<const std::byte* const> wires, const void* own,
                           size_t own_index, size_t count, const CombineFinish& finish,
                           std::byte* wire_out, void* values_out, const SlicePlace& place) const {
  TERSUM_CHECK(finish.op == ReduceOp::kSum || finish.op == ReduceOp::kAverage);
  TERSUM_CHECK(place.scales != nullptr || count == 0);
  static_cast<void>(
      checked_combine_args(wires, own, own_index, count, finish, wire_out, values_out));
  const bool is_final = finish.gathered_ranks > 1;
  const IntegerCodec& out = is_final ? static_cast<const IntegerCodec&>(*gathered_) : *this;
  TileMemory memory;
  for (size_t first = 0; first < count; first += kTileValues) {
    const size_t here = values_in(count, first);
    std::fill_n(memory.sums, here, 0);
    if (own != nullptr) add_values(own, first, here, place, memory);
    for (const std::byte* wire : wires) wide_.add(wire, count, first, here, memory.sums);
    if (wire_out != nullptr) {
      // Codes that no peer should send add up to more than the wire has room for; this rank must
      // not keep another sum than it sends.
      std::transform(memory.sums, memory.sums + here, memory.sums,
                     [&](int32_t sum) { return std::clamp(sum, -out.largest_, out.largest_); });
      out.wide_.write(memory.sums, first, here, count, wire_out);
    }
    if (values_out == nullptr) continue;
    store(first, here, {finish.op, finish.divisor}, place, first, values_out, memory);
  }
}

double IntegerCodec::block_error_bound(double absmax) const {
  PlainSpec plain;
  plain.block = format_.block;
  plain.sr = is_random();
  plain.hadamard = turn_.signs != nullptr;
  return make_element_codec(plain, format_, type_)->block_error_bound(absmax);
}

class IntegerSums final : public SharedSums {
 public:
  IntegerSums(const PlainSpec& spec, DataType type, bool one_scale)
      : spec_(spec), type_(type), one_scale_(one_scale) {}

  [[nodiscard]] std::string refusal(uint32_t ranks) const override {
    if (ranks <= kLevels) return {};
    return "adds up the integers of at most " + std::to_string(kLevels) +
           " ranks, and this group has " + std::to_string(ranks) +
           "; use int8, or sum within smaller groups";
  }
  [[nodiscard]] bool takes_partials() const override { return true; }
  [[nodiscard]] uint32_t scale_block() const override { return one_scale_ ? 0 : spec_.block; }
  void measure(const void* values, size_t count, uint32_t ranks, const SlicePlace& place,
               uint16_t* scales) const override {
    measure_scales(codecs(ranks).format, values, count, place, one_scale_, scales,
                   turn_of(spec_, one_scale_));
  }
  [[nodiscard]] const Codec& contributions(uint32_t ranks) const override {
    return *codecs(ranks).contributions;
  }
  [[nodiscard]] const Codec& partials(uint32_t ranks) const override {
    return *codecs(ranks).partials;
  }

 private:
  struct Codecs {
    ElementFormat format;
    std::unique_ptr<const IntegerCodec> partials;
    std::unique_ptr<const IntegerCodec> contributions;
  };

  [[nodiscard]] const Codecs& codecs(uint32_t ranks) const;

  PlainSpec spec_;
  DataType type_;
  bool one_scale_;
  mutable std::mutex mutex_;
  mutable std::map<uint32_t, Codecs> codecs_;
};

const IntegerSums::Codecs& IntegerSums::codecs(uint32_t ranks) const {
  TERSUM_CHECK(ranks >= 2 && refusal(ranks).empty());
  const std::lock_guard lock(mutex_);
  const auto [entry, is_new] = codecs_.try_emplace(ranks);
  Codecs& made = entry->second;
  if (!is_new) return made;
  const auto ranks_int = static_cast<int32_t>(ranks);
  const int32_t levels = one_scale_ ? kLevels / ranks_int : kLevels;
  made.format = integer_format<8>();
  made.format.kind = value_kind(type_);
  made.format.block = spec_.block;
  made.format.code_max = levels;
  made.format.level_max = static_cast<float>(levels);
  complete_format(made.format);
  const uint32_t width = one_scale_ ? 8 : 8 + static_cast<uint32_t>(std::bit_width(ranks - 1));
  made.partials = std::make_unique<IntegerCodec>(spec_, made.format, type_, one_scale_,
                                                 levels * ranks_int, width, nullptr);
  made.contributions = std::make_unique<IntegerCodec>(spec_, made.format, type_, one_scale_, levels,
                                                      8, made.partials.get());
  return made;
}

}  // namespace

std::unique_ptr<Codec> make_integer_sums_codec(const PlainSpec& spec, DataType type) {
  return make_element_codec(spec, integer_format<8>(), type,
                            std::make_unique<IntegerSums>(spec, type, false));
}

std::unique_ptr<Codec> make_tensor_sums_codec(const PlainSpec& spec, DataType type) {
  return make_element_codec(spec, integer_format<8>(), type,
                            std::make_unique<IntegerSums>(spec, type, true));
}

}  // namespace tersum
