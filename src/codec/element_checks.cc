#include "codec/element_checks.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <string>

#include "codec/kernels/code_groups.h"

namespace tersum {
namespace {

constexpr uint8_t kE4M3Nan = 0x7f;

bool is_written_scale(const ElementFormat& format, const std::byte* wire, float tensor_scale) {
  switch (format.rule) {
    case ScaleRule::kBf16Up:
    case ScaleRule::kBf16Mean: {
      const auto bits = load_unaligned<uint16_t>(wire);
      return bits == kBf16Nan || bits < (kFloatInfinity >> 16);
    }
    case ScaleRule::kE8M0Up:
    case ScaleRule::kE8M0Floor:
      return true;
    case ScaleRule::kE4M3Tensor: {
      const auto bits = static_cast<uint8_t>(*wire);
      return bits == kE4M3Nan ||
             (bits < kE4M3Nan && std::isfinite(read_scale(format, wire, tensor_scale)));
    }
    case ScaleRule::kSlice:
      return true;
  }
  return false;
}

// A level of a code that is not finite stands for nothing that was encoded.
bool is_written_code(const ElementFormat& format, uint8_t code) {
  const float level = format.levels[code];
  const bool is_integer = format.family == ElementFamily::kInteger;
  const bool beyond = is_integer && std::abs(level) > format.level_max;
  return std::isfinite(level) && !beyond;
}

Status check_scales(const ElementFormat& format, const std::byte* wire, size_t count,
                    float tensor_scale) {
  // A slice under one scale that holds something not finite is NaN.
  const bool may_be_nan = format.rule == ScaleRule::kSlice;
  if (std::isnan(tensor_scale) && !(may_be_nan && load_unaligned<uint32_t>(wire) == kFloatNan)) {
    return invalid_argument(std::string("the slice's ") + (may_be_nan ? "scale" : "tensor scale") +
                            " is negative or not finite");
  }
  const std::byte* scale = wire + scales_offset(format);
  for (size_t b = 0; b < block_count(format, count); ++b, scale += scale_bytes(format.rule)) {
    if (is_written_scale(format, scale, tensor_scale)) continue;
    return invalid_argument("the scale of block " + std::to_string(b) +
                            " is negative, infinite or an unknown NaN");
  }
  return {};
}

Status check_code(const ElementFormat& format, uint8_t code, float scale, size_t index) {
  if (!is_written_code(format, code)) {
    return invalid_argument("the code of value " + std::to_string(index) + " is " +
                            std::to_string(code) + ", which no encoder writes");
  }
  // Scales are limited so that no finite block comes back as an infinity. (A NaN's block is NaN.)
  const float magnitude = std::abs(format.levels[code] * scale);
  if (float_bits(magnitude) < format.overflow_bits || std::isnan(scale)) return {};
  return invalid_argument("value " + std::to_string(index) + " of block " +
                          std::to_string(index / format.block) +
                          " is beyond the largest number of the value type");
}

}  // namespace

Status check_elements(const ElementFormat& format, const std::byte* wire, size_t count) {
  if (count == 0) return {};
  const bool has_tensor_scale = tensor_scale_bytes(format.rule) > 0;
  const float tensor_scale = has_tensor_scale ? read_tensor_scale(wire) : 1.0F;
  TERSUM_RETURN_IF_ERROR(check_scales(format, wire, count, tensor_scale));
  const std::byte* const scales = wire + scales_offset(format);
  const std::byte* const codes = wire + codes_offset(format, count);
  const size_t group = group_values(format.packing);
  float scale = 0;
  for (size_t at = 0; at < count; at += group) {
    const size_t in_group = std::min(group, count - at);
    std::array<uint8_t, kTripleGroup> unpacked{};
    unpack_group(format, codes + code_bytes(format, at), in_group, unpacked.data());
    for (size_t i = 0; i < in_group; ++i) {
      if ((at + i) % format.block == 0) {
        const size_t block = (at + i) / format.block;
        scale = read_scale(format, scales + block * scale_bytes(format.rule), tensor_scale);
      }
      TERSUM_RETURN_IF_ERROR(check_code(format, unpacked[i], scale, at + i));
    }
  }
  return {};
}

}  // namespace tersum
