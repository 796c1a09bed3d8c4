// Which spec the input steers to: a row of the registry, a block, and modifiers.
//
// Thread safety: one thread. Tables and matrices are registered, and a process keeps all it ever
// knew, so those drawn are few.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "codec/codec_modifiers.h"
#include "codec/format_registry.h"
#include "codec/kernels/block_product.h"
#include "fuzz_input.h"
#include "tersum/codec_info.h"

namespace tersum {

// Levels with and without a zero, up to all of one sign.
inline std::string choose_table(FuzzInput& input) {
  static constexpr std::array kLevels = {-1.0F, -0.5F, -0.2F, -0.1F, 0.1F, 0.3F, 0.6F, 0.9F};
  const uint8_t way = input.byte();
  const size_t count = size_t{2} << (way & 3U);
  if ((way & 4U) != 0) {
    return register_table(std::span(kLevels).first(std::min(count, kLevels.size()))).value();
  }
  std::array<float, 16> levels{};
  for (size_t i = 0; i < count; ++i) {
    levels[i] = static_cast<float>(i) / 16 - static_cast<float>(way >> 5U) / 8;
  }
  return register_table(std::span(levels).first(count)).value();
}

inline const FormatRow& choose_row(FuzzInput& input) {
  static const char* const aim = std::getenv("TERSUM_FUZZ_FORMAT");
  const FormatRow& chosen = input.one_of(format_rows());
  if (aim == nullptr) return chosen;
  for (const FormatRow& row : format_rows()) {
    if (row.name == aim) return row;
  }
  std::fprintf(stderr, "TERSUM_FUZZ_FORMAT: there is no format %s\n", aim);
  std::abort();
}

// Shears and turns for such blocks, well and badly conditioned, with and without channels.
inline std::string choose_transform(FuzzInput& input, size_t block) {
  const uint8_t way = input.byte();
  size_t rows = size_t{1} << (way & 7U);
  while (rows > block || block / rows > kProductSideMax) rows = rows > block ? rows / 2 : rows * 2;
  const float slope = (way & 8U) != 0 ? 0.5F : 1.0F / 16;
  const auto matrix = [&](size_t side) {
    std::vector<float> values(side * side);
    for (size_t i = 0; i < side; ++i) {
      values[i * side + i] = (i + way) % 3 == 0 ? -1.0F : 1.0F;
      if (i > 0) values[i * side + (way * i) % i] = slope;
    }
    return values;
  };
  static constexpr std::array kFactors = {1.0F, -0.3F, 2.0F, 1e-2F, 7.0F};
  const std::span<const float> factors(kFactors.data(), (way & 16U) != 0 ? kFactors.size() : 0);
  const Result<std::string> made = register_kronecker(matrix(rows), matrix(block / rows), factors);
  return made.ok() ? "+" + made.value() : "+hadamard";
}

// A row of codec_modifiers.h as it is written, with a parameter that the input chooses.
inline std::string choose_modifier(FuzzInput& input, std::string_view name, size_t block) {
  if (name == "kronecker") return choose_transform(input, block);
  std::string text = "+" + std::string(name);
  if (name == "rows") text += ":" + std::to_string(2 + input.below(400));
  if (name == "sparse") {
    const uint32_t hundredths = 1 + input.below(1000);
    text += ":" + std::to_string(hundredths / 100) + "." + std::to_string(hundredths / 10 % 10) +
            std::to_string(hundredths % 10) + "%";
  }
  if (name == "clip") text += ":learned";
  return text;
}

// A bit for every modifier there is. One that is refused beside those drawn before is left out.
inline std::string choose_modifiers(FuzzInput& input, std::string spec, size_t block) {
  const uint32_t low = input.byte();
  uint32_t bits = low | uint32_t{input.byte()} << 8U;
  for (const ModifierRow& row : modifier_rows()) {
    if ((bits & 1U) != 0) {
      const Result<std::string> more =
          normalize_codec(spec + choose_modifier(input, row.name, block));
      if (more.ok()) spec = more.value();
    }
    bits >>= 1U;
  }
  return spec;
}

// In the way that most seeds are written in: of the modifiers a few.
inline std::string choose_usual(uint8_t choice, FuzzInput& input, const FormatRow& row,
                                std::string spec, size_t block) {
  if (row.shares && (choice & 8U) != 0 && normalize_codec(spec + "+sr").ok()) spec += "+sr";
  if (!row.rotates) return spec;
  if ((choice & 8U) != 0) {
    spec += (choice & 16U) != 0 ? choose_transform(input, block) : "+hadamard";
  } else if ((choice & 16U) != 0) {
    static constexpr const char* kClipped[] = {"+clip:learned", "+hadamard+clip:learned"};
    const Result<std::string> clipped = normalize_codec(spec + kClipped[choice >> 7U]);
    if (clipped.ok()) return clipped.value();
  }
  static constexpr const char* kOthers[] = {"",
                                            "+shiftadd",
                                            "+adaptive",
                                            "+sparse:2%+sr",
                                            "+rows:37",
                                            "+rows:300+mixed",
                                            "+feedback+rows:37+sparse:3%",
                                            "+sparse:10%+adaptive"};
  const Result<std::string> wider = normalize_codec(spec + kOthers[choice >> 5U]);
  return wider.ok() ? wider.value() : spec;
}

inline std::string choose_spec(FuzzInput& input) {
  const FormatRow& row = choose_row(input);
  std::string spec(row.name);
  if (!row.has_blocks()) return spec;
  const uint8_t choice = input.byte();
  // A table takes nf4's place, with which it shares its blocks.
  if (row.name == "nf4" && (choice & 32U) != 0) spec = choose_table(input);
  const uint32_t size = choice & 7U;
  // No format has so many sizes of blocks.
  const bool by_bits = size >= 6;
  uint32_t block = row.block_min << (by_bits ? choice >> 6U : size);
  if (block > row.block_max) block = row.default_block;
  spec += "/" + std::to_string(block);
  return by_bits ? choose_modifiers(input, std::move(spec), block)
                 : choose_usual(choice, input, row, std::move(spec), block);
}

}  // namespace tersum
