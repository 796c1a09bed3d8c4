#include "codec/block_codec.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>

#include "base/check.h"
#include "codec/combine_checks.h"
#include "codec/element_codec.h"
#include "codec/element_formats.h"
#include "codec/kernels/block_kernels.h"
#include "codec/kernels/block_reference.h"
#include "codec/value_kind.h"

namespace tersum {
namespace {

std::unique_ptr<const Codec> make_general(int bits, uint32_t block, DataType type) {
  PlainSpec spec;
  spec.block = block;
  return make_element_codec(spec, bits == 8 ? integer_format<8>() : integer_format<4>(), type);
}

class BlockCodec final : public Codec {
 public:
  BlockCodec(int bits, uint32_t block, DataType type)
      : spec_{bits == 8 ? "int8" : "int4", block, {}},
        type_(type),
        format_(make_block_format(value_kind(type), bits, block)),
        general_(make_general(bits, block, type)) {}

  [[nodiscard]] const CodecSpec& spec() const override { return spec_; }
  [[nodiscard]] DataType value_type() const override { return type_; }
  [[nodiscard]] uint32_t block() const override { return format_.block; }
  [[nodiscard]] bool lossless() const override { return false; }
  [[nodiscard]] bool takes_parts() const override { return true; }
  [[nodiscard]] size_t wire_bytes(size_t count) const override {
    return slice_bytes(format_, count);
  }
  void encode(const void* values, size_t count, std::byte* wire,
              const SlicePlace& place) const override {
    if (count > 0 && place.added.is_any()) {
      return combine({}, values, 0, count, {}, wire, nullptr, place);
    }
    if (has_long_rest(count)) return general_->encode(values, count, wire, place);
    block_kernels(format_).encode(format_, values, count, wire);
  }
  void decode(const std::byte* wire, size_t count, void* values,
              const SlicePlace& place) const override {
    if (has_long_rest(count)) return decode_part(wire, {count, 0, count}, values, place);
    block_kernels(format_).decode(format_, wire, count, values);
  }
  void decode_part(const std::byte* wire, const SliceCut& cut, void* values,
                   const SlicePlace& place) const override;
  void encode_part(const void* values, const SliceCut& cut, std::byte* wire,
                   const SlicePlace& place) const override;
  void combine_part(std::span<const std::byte* const> wires, const void* own, size_t own_index,
                    const SliceCut& cut, const CombineFinish& finish, std::byte* wire_out,
                    void* values_out, const SlicePlace& place) const override;
  bool stream(const std::byte* wire, size_t count, void* values) const override;
  [[nodiscard]] const ElementFormat* element_format() const override {
    return general_->element_format();
  }
  [[nodiscard]] Status check_wire(const std::byte* wire, size_t count) const override {
    return general_->check_wire(wire, count);
  }
  void combine(std::span<const std::byte* const> wires, const void* own, size_t own_index,
               size_t count, const CombineFinish& finish, std::byte* wire_out, void* values_out,
               const SlicePlace& place) const override {
    TERSUM_CHECK(finish.op == ReduceOp::kSum || finish.op == ReduceOp::kAverage);
    if (has_long_rest(count) || !reads_terms(format_, place.added, place.first)) {
      return general_->combine(wires, own, own_index, count, finish, wire_out, values_out, place);
    }
    CombineArgs args =
        checked_combine_args(wires, own, own_index, count, finish, wire_out, values_out);
    args.added = place.added;
    args.added_first = place.first;
    block_kernels(format_).combine(format_, args);
  }
  [[nodiscard]] double block_error_bound(double absmax) const override;

 private:
  // The kernels of whole blocks leave what is behind the last one to scalar code: 5 ns a value to
  // encode, 14 to combine, 3 to decode. The general ones fill that block up, for 0.1 us, and take a
  // tenth of a nanosecond more for each other value (AMD EPYC, Zen 4).
  [[nodiscard]] bool has_long_rest(size_t count) const {
    return count % format_.block > 12 + count / 128;
  }
  void check_cut(const SliceCut& cut, const SlicePlace& place) const {
    cut.check(format_.block);
    TERSUM_CHECK(cut.count % format_.block == 0 && !place.added.is_any());
  }
  // decode_part() by a kernel for the whole blocks.
  void decode_by(decltype(BlockKernels::decode_blocks) decode_blocks, const std::byte* wire,
                 const SliceCut& cut, void* values) const;

  CodecSpec spec_;
  DataType type_;
  BlockFormat format_;
  // The same bytes by the general kernels, which can add any bias to what they read and know how to
  // deal with part of a block, and its checks.
  std::unique_ptr<const Codec> general_;
};

void BlockCodec::decode_part(const std::byte* wire, const SliceCut& cut, void* values,
                             const SlicePlace& /*place*/) const {
  cut.check(format_.block);
  decode_by(block_kernels(format_).decode_blocks, wire, cut, values);
}

void BlockCodec::encode_part(const void* values, const SliceCut& cut, std::byte* wire,
                             const SlicePlace& place) const {
  check_cut(cut, place);
  block_kernels(format_).encode_blocks(format_, values, cut.count, cut.begin / format_.block,
                                       cut.part / format_.block, wire);
}

void BlockCodec::combine_part(std::span<const std::byte* const> wires, const void* own,
                              size_t own_index, const SliceCut& cut, const CombineFinish& finish,
                              std::byte* wire_out, void* values_out,
                              const SlicePlace& place) const {
  check_cut(cut, place);
  CombineArgs args =
      checked_combine_args(wires, own, own_index, cut.part, finish, wire_out, values_out);
  args.slice_count = cut.count;
  args.slice_begin = cut.begin;
  block_kernels(format_).combine(format_, args);
}

bool BlockCodec::stream(const std::byte* wire, size_t count, void* values) const {
  constexpr uintptr_t kLineBytes = 64;
  if (type_ != DataType::kFloat32 || reinterpret_cast<uintptr_t>(values) % kLineBytes != 0) {
    return false;
  }
  decode_by(block_kernels(format_).stream_blocks, wire, {count, 0, count}, values);
  return true;
}

void BlockCodec::decode_by(decltype(BlockKernels::decode_blocks) decode_blocks,
                           const std::byte* wire, const SliceCut& cut, void* values) const {
  const size_t first = cut.begin / format_.block;
  const size_t whole = cut.part / format_.block;
  decode_blocks(format_, wire, cut.count, first, whole, values);
  const size_t done = whole * format_.block;
  if (done == cut.part) return;
  auto* const rest = static_cast<std::byte*>(values) + done * element_bytes(type_);
  // By the length of the slice alone, so that it is the same values however it is cut.
  if (has_long_rest(cut.count)) {
    general_->decode_part(wire, {cut.count, cut.begin + done, cut.part - done}, rest, {});
  } else {
    decode_lone_block(format_, wire, cut.count, first + whole, rest);
  }
}

// A code is the nearest integer to x * inverse, where inverse and product are each rounded once:
//   |x * inverse - x / scale| <= 2^-23 code_max, so |x - code * scale| <= scale (1/2 + 2^-23
//   code_max).
// Where the scale was clamped the code may be, too; then the largest value is off by what is
// missing.
double BlockCodec::block_error_bound(double absmax) const {
  if (absmax == 0) return 0;
  const auto code_max = static_cast<double>(format_.code_max);
  // The scale of the next float32 up, so that any double is covered.
  auto above = static_cast<float>(absmax);
  if (double{above} < absmax) {
    above = std::nextafter(above, std::numeric_limits<float>::infinity());
  }
  const double scale = block_scale(format_, float_bits(above));
  if (!(scale < std::numeric_limits<double>::infinity())) {
    return std::numeric_limits<double>::infinity();
  }
  const double reach = code_max * scale;
  const double coded = std::max(scale * (0.5 + std::ldexp(code_max, -23)), absmax - reach);
  return coded + rounding_error(format_.kind, reach);
}

}  // namespace

std::unique_ptr<Codec> make_block_codec(int bits, uint32_t block, DataType type) {
  return std::make_unique<BlockCodec>(bits, block, type);
}

}  // namespace tersum
