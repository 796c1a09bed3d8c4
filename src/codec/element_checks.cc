#include "codec/element_checks.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <string>

#include "codec/kernels/element_reference.h"

namespace tersum {
namespace {

constexpr uint8_t kE4M3Nan = 0x7f;

bool is_written_scale(const ElementFormat& format, const std::byte* wire) {
  switch (format.rule) {
    case ScaleRule::kBf16Up:
    case ScaleRule::kBf16Mean: {
      const auto bits = load_unaligned<uint16_t>(wire);
      return bits == kBf16Nan || bits < (kFloatInfinity >> 16);
    }
    case ScaleRule::kE8M0Up:
    case ScaleRule::kE8M0Floor:
      return true;
    case ScaleRule::kE4M3Tensor:
      return static_cast<uint8_t>(*wire) <= kE4M3Nan;
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

Status check_scales(const ElementFormat& format, const std::byte* wire, size_t count) {
  if (format.rule == ScaleRule::kE4M3Tensor && std::isnan(read_tensor_scale(wire))) {
    return invalid_argument("the slice's tensor scale is negative or not finite");
  }
  const std::byte* scale = wire + scales_offset(format);
  for (size_t b = 0; b < block_count(format, count); ++b, scale += scale_bytes(format.rule)) {
    if (is_written_scale(format, scale)) continue;
    return invalid_argument("the scale of block " + std::to_string(b) +
                            " is negative, infinite or an unknown NaN");
  }
  return {};
}

}  // namespace

Status check_elements(const ElementFormat& format, const std::byte* wire, size_t count) {
  TERSUM_RETURN_IF_ERROR(check_scales(format, wire, count));
  const std::byte* const codes = wire + codes_offset(format, count);
  const size_t group = group_values(format.packing);
  for (size_t at = 0; at < count; at += group) {
    const size_t in_group = std::min(group, count - at);
    std::array<uint8_t, kTripleGroup> unpacked{};
    unpack_group(format, codes + code_bytes(format, at), in_group, unpacked.data());
    for (size_t i = 0; i < in_group; ++i) {
      if (is_written_code(format, unpacked[i])) continue;
      return invalid_argument("the code of value " + std::to_string(at + i) + " is " +
                              std::to_string(unpacked[i]) + ", which no encoder writes");
    }
  }
  return {};
}

}  // namespace tersum
