#include "codec/kernels/block_reference.h"

#include <algorithm>
#include <array>
#include <cmath>

namespace tersum {
namespace {

void put_code(const BlockFormat& format, std::byte* codes, size_t count, size_t index,
              int32_t code) {
  if (format.bits == 8) {
    codes[index] = static_cast<std::byte>(code);
    return;
  }
  const size_t group = index / kNibbleGroup;
  const size_t in_group = index % kNibbleGroup;
  const size_t half = (std::min(kNibbleGroup, count - group * kNibbleGroup) + 1) / 2;
  std::byte& byte = codes[group * kNibbleGroupBytes + in_group % half];
  // The low nibble comes first and clears the byte, which is how the last high one becomes 0.
  if (in_group < half) {
    byte = static_cast<std::byte>(code & 0x0f);
  } else {
    byte |= static_cast<std::byte>((code & 0x0f) << 4);
  }
}

int32_t get_code(const BlockFormat& format, const std::byte* codes, size_t count, size_t index) {
  if (format.bits == 8) return static_cast<int8_t>(codes[index]);
  const size_t group = index / kNibbleGroup;
  const size_t in_group = index % kNibbleGroup;
  const size_t half = (std::min(kNibbleGroup, count - group * kNibbleGroup) + 1) / 2;
  const auto byte = static_cast<int32_t>(codes[group * kNibbleGroupBytes + in_group % half]);
  const int32_t nibble = in_group < half ? byte & 0x0f : byte >> 4;
  return nibble < 8 ? nibble : nibble - 16;
}

struct BlockPlace {
  size_t count;  // values in this block
  size_t scale_at;
  size_t codes_at;
};

BlockPlace place_of(const BlockFormat& format, size_t count, size_t index) {
  return {std::min<size_t>(format.block, count - index * format.block), index * kScaleBytes,
          code_offset(format, count, index)};
}

}  // namespace

float load_value(ValueKind kind, const void* values, size_t index) {
  const auto* const bytes = static_cast<const std::byte*>(values) + index * value_bytes(kind);
  switch (kind) {
    case ValueKind::kFloat32:
      return load_unaligned<float>(bytes);
    case ValueKind::kBFloat16:
      return bf16_to_float(load_unaligned<uint16_t>(bytes));
    case ValueKind::kFloat16:
      return half_to_float(load_unaligned<uint16_t>(bytes));
  }
  return 0;
}

void store_value(ValueKind kind, void* values, size_t index, float value) {
  auto* const bytes = static_cast<std::byte*>(values) + index * value_bytes(kind);
  switch (kind) {
    case ValueKind::kFloat32:
      store_unaligned(bytes, canonical_nan(value));
      return;
    case ValueKind::kBFloat16:
      store_unaligned(bytes, float_to_bf16(value));
      return;
    case ValueKind::kFloat16:
      store_unaligned(bytes, float_to_half(value));
      return;
  }
}

void quantize_block(const BlockFormat& format, const float* values, size_t count, float scale,
                    std::byte* codes) {
  const bool coded = scale > 0;  // neither 0 nor NaN
  const bool tiny = scale < float_from_bits(kLeastNormalBits);
  const float factor = tiny ? kTinyBlockFactor : 1.0f;
  const float inverse = coded ? 1.0f / (scale * factor) : 0.0f;
  for (size_t i = 0; i < count; ++i) {
    // Above code_max + 1/2 only where the scale was clamped. lrint rounds ties to even.
    const long code = coded ? std::lrint(load_unaligned<float>(values + i) * factor * inverse) : 0;
    const long limit = format.code_max;
    put_code(format, codes, count, i, static_cast<int32_t>(std::clamp(code, -limit, limit)));
  }
}

void encode_block(const BlockFormat& format, const float* values, size_t count, std::byte* scale,
                  std::byte* codes) {
  uint32_t absmax_bits = 0;
  for (size_t i = 0; i < count; ++i) {
    absmax_bits = std::max(absmax_bits, load_unaligned<uint32_t>(values + i) & ~kFloatSignBit);
  }
  const float block = block_scale(format, absmax_bits);
  store_unaligned(scale, static_cast<uint16_t>(float_bits(block) >> 16));
  quantize_block(format, values, count, block, codes);
}

float decode_one(const BlockFormat& format, const std::byte* scale, const std::byte* codes,
                 size_t count, size_t index) {
  // Exact: at most 7 + 8 bits, and a denormal scale is a multiple of 2^-133.
  return static_cast<float>(get_code(format, codes, count, index)) * load_scale(scale);
}

void encode_lone_block(const BlockFormat& format, const void* values, size_t count, size_t index,
                       std::byte* wire) {
  const BlockPlace place = place_of(format, count, index);
  std::array<float, kBlockMax> block;
  for (size_t i = 0; i < place.count; ++i) block[i] = load_value(format.kind, values, i);
  encode_block(format, block.data(), place.count, wire + place.scale_at, wire + place.codes_at);
}

void encode_slice_block(const BlockFormat& format, const void* values, size_t count, size_t index,
                        std::byte* wire) {
  const size_t at = index * format.block * value_bytes(format.kind);
  encode_lone_block(format, static_cast<const std::byte*>(values) + at, count, index, wire);
}

void decode_lone_block(const BlockFormat& format, const std::byte* wire, size_t count, size_t index,
                       void* values) {
  const BlockPlace place = place_of(format, count, index);
  for (size_t i = 0; i < place.count; ++i) {
    store_value(format.kind, values, i,
                decode_one(format, wire + place.scale_at, wire + place.codes_at, place.count, i));
  }
}

void decode_slice_block(const BlockFormat& format, const std::byte* wire, size_t count,
                        size_t index, void* values) {
  const size_t at = index * format.block * value_bytes(format.kind);
  decode_lone_block(format, wire, count, index, static_cast<std::byte*>(values) + at);
}

float load_own(ValueKind kind, const CombineArgs& args, size_t index) {
  const AddedTerms& added = args.added;
  const size_t i = args.added_first + index;
  float value = load_value(kind, args.own, index);
  if (added.residual != nullptr) value += load_value(kind, added.residual, i);
  if (added.bias != nullptr) value += load_value(kind, added.bias, i % added.bias_values);
  return value;
}

void combine_slice_block(const BlockFormat& format, const CombineArgs& args, size_t index) {
  const size_t slice_block = first_slice_block(format, args) + index;
  const BlockPlace place = place_of(format, args.slice_count, slice_block);
  const size_t begin = index * format.block;
  std::array<float, kBlockMax> block;
  for (size_t i = 0; i < place.count; ++i) {
    float sum = 0;
    bool first = true;
    const auto add = [&](float value) {
      sum = first ? value : sum + value;
      first = false;
    };
    for (size_t w = 0; w <= args.wire_count; ++w) {
      if (args.own != nullptr && w == args.own_index) {
        add(load_own(format.kind, args, begin + i));
      }
      if (w == args.wire_count) break;
      add(decode_one(format, args.wires[w] + place.scale_at, args.wires[w] + place.codes_at,
                     place.count, i));
    }
    block[i] = args.finish.divides() ? sum / static_cast<float>(args.finish.divisor) : sum;
  }
  if (args.wire_out == nullptr) {
    for (size_t i = 0; i < place.count; ++i) {
      store_value(format.kind, args.values_out, begin + i, block[i]);
    }
    return;
  }
  encode_block(format, block.data(), place.count, args.wire_out + place.scale_at,
               args.wire_out + place.codes_at);
  if (args.values_out != nullptr) {
    decode_lone_block(format, args.wire_out, args.slice_count, slice_block,
                      static_cast<std::byte*>(args.values_out) + begin * value_bytes(format.kind));
  }
}

void reference_encode(const BlockFormat& format, const void* values, size_t count,
                      std::byte* wire) {
  for (size_t b = 0; b < block_count(format, count); ++b) {
    encode_slice_block(format, values, count, b, wire);
  }
}

void reference_encode_blocks(const BlockFormat& format, const void* values, size_t count,
                             size_t first, size_t blocks, std::byte* wire) {
  const auto* from = static_cast<const std::byte*>(values);
  for (size_t b = first; b < first + blocks; ++b) {
    encode_lone_block(format, from, count, b, wire);
    from += format.block * value_bytes(format.kind);
  }
}

void reference_decode(const BlockFormat& format, const std::byte* wire, size_t count,
                      void* values) {
  for (size_t b = 0; b < block_count(format, count); ++b) {
    decode_slice_block(format, wire, count, b, values);
  }
}

void reference_decode_blocks(const BlockFormat& format, const std::byte* wire, size_t count,
                             size_t first, size_t blocks, void* values) {
  auto* to = static_cast<std::byte*>(values);
  for (size_t b = first; b < first + blocks; ++b) {
    decode_lone_block(format, wire, count, b, to);
    to += format.block * value_bytes(format.kind);
  }
}

void reference_combine(const BlockFormat& format, const CombineArgs& args) {
  for (size_t b = 0; b < block_count(format, args.count); ++b) combine_slice_block(format, args, b);
}

}  // namespace tersum
