#include "codec/kernels/element_reference.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "codec/kernels/block_reference.h"
#include "codec/kernels/code_groups.h"

namespace tersum {
namespace {

uint8_t integer_code(const ElementFormat& format, float scaled) {
  const long limit = format.code_max;
  const long code = std::clamp(std::lrint(scaled), -limit, limit);
  return static_cast<uint8_t>(code & ((1 << format.bits) - 1));
}

uint8_t minifloat_code(const ElementFormat& format, float scaled) {
  const uint32_t sign = float_bits(scaled) >> 31 << (format.bits - 1);
  const float magnitude = std::min(std::abs(scaled), format.level_max);
  const int mantissa = format.mantissa_bits;
  if (magnitude < std::ldexp(1.0F, format.least_exponent)) {
    const long code = std::lrint(std::ldexp(magnitude, mantissa - format.least_exponent));
    return static_cast<uint8_t>(sign | static_cast<uint32_t>(code));
  }
  const int shift = 23 - mantissa;
  const uint32_t bits = float_bits(magnitude);
  const uint32_t rounded = (bits + (1U << (shift - 1)) - 1 + ((bits >> shift) & 1U)) >> shift;
  // An exponent field of 1 is the least normal exponent.
  const auto rebias = static_cast<uint32_t>(126 + format.least_exponent) << mantissa;
  return static_cast<uint8_t>(sign | (rounded - rebias));
}

uint8_t table_code(const ElementFormat& format, float scaled) {
  uint32_t code = 0;
  for (uint32_t k = 0; k < format.threshold_count; ++k) {
    code += scaled >= format.thresholds[k] ? 1 : 0;
  }
  return static_cast<uint8_t>(code);
}

// floor(value), or one more as often as the value is on its way there, which is rounded to 2^-16.
long rounded_fixed(float value, uint32_t half) {
  const long fixed = std::lrint(value * 0x1p16F);
  return (fixed + static_cast<long>(half)) >> kRoundingHalf;
}

uint8_t random_integer_code(const ElementFormat& format, float scaled, uint32_t half) {
  const long limit = format.code_max;
  // Limited before it is an integer: a clamped scale leaves numbers of any size.
  const float near = std::clamp(scaled, -format.level_max, format.level_max);
  const long code = std::clamp(rounded_fixed(near, half), -limit, limit);
  return static_cast<uint8_t>(code & ((1 << format.bits) - 1));
}

uint8_t random_minifloat_code(const ElementFormat& format, float scaled, uint32_t half) {
  const uint32_t sign = float_bits(scaled) >> 31 << (format.bits - 1);
  const float magnitude = std::min(std::abs(scaled), format.level_max);
  const int mantissa = format.mantissa_bits;
  if (magnitude < std::ldexp(1.0F, format.least_exponent)) {
    const long code = rounded_fixed(std::ldexp(magnitude, mantissa - format.least_exponent), half);
    return static_cast<uint8_t>(sign | static_cast<uint32_t>(code));
  }
  const int shift = 23 - mantissa;
  const int finer = shift - kRoundingHalf;  // what is left below 2^-16 of a step rounds to nearest
  const uint32_t addend = (half << finer) + (1U << (finer - 1));
  const uint32_t rounded = (float_bits(magnitude) + addend) >> shift;
  const auto rebias = static_cast<uint32_t>(126 + format.least_exponent) << mantissa;
  return static_cast<uint8_t>(sign | (rounded - rebias));
}

uint8_t random_table_code(const ElementFormat& format, float scaled, uint32_t half) {
  uint32_t below = 0;
  for (uint32_t k = 1; k < format.threshold_count; ++k) {
    below += scaled >= format.levels[k] ? 1 : 0;
  }
  const float level = format.levels[below];
  const float gap = format.levels[below + 1] - level;
  const float share = (static_cast<float>(half) + 0.5F) * 0x1p-16F;
  const bool up = share * gap < scaled - level;
  return static_cast<uint8_t>(below + (up ? 1 : 0));
}

void load(ValueKind kind, const void* values, size_t first, size_t count, float* tile) {
  for (size_t i = 0; i < count; ++i) tile[i] = load_value(kind, values, first + i);
}

void store(ValueKind kind, const float* tile, size_t count, void* values, size_t first) {
  for (size_t i = 0; i < count; ++i) store_value(kind, values, first + i, tile[i]);
}

void add(const float* terms, size_t count, float* tile) {
  for (size_t i = 0; i < count; ++i) tile[i] += load_unaligned<float>(terms + i);
}

void add_values(ValueKind kind, const void* values, size_t first, size_t count, float* tile) {
  for (size_t i = 0; i < count; ++i) {
    store_unaligned(tile + i,
                    load_unaligned<float>(tile + i) + load_value(kind, values, first + i));
  }
}

float finite_or_zero(float value) { return std::isfinite(value) ? value : 0.0F; }

void add_owed(ValueKind kind, const void* values, size_t count, float largest, float* owed,
              float* sums) {
  for (size_t i = 0; i < count; ++i) {
    const float value = load_value(kind, values, i);
    const float sum = value + owed[i];
    const bool is_number = std::abs(value) <= largest;
    const float sent = is_number ? std::clamp(sum, -largest, largest) : canonical_nan(value);
    sums[i] = sent;
    owed[i] = finite_or_zero(sum - sent);
  }
}

void keep_lost(ValueKind kind, const float* sums, const void* back, size_t count, float factor,
               float* owed) {
  for (size_t i = 0; i < count; ++i) {
    const float lost = (sums[i] - load_value(kind, back, i)) * factor;
    owed[i] = finite_or_zero(owed[i] + lost);
  }
}

void finish_sum(const Finish& finish, size_t count, float* tile) {
  if (!finish.divides()) return;
  for (size_t i = 0; i < count; ++i) tile[i] /= static_cast<float>(finish.divisor);
}

void multiply(const float* factors, size_t count, float* tile) {
  for (size_t i = 0; i < count; ++i) tile[i] *= factors[i];
}

void limit(float largest, size_t count, float* tile) {
  for (size_t i = 0; i < count; ++i) {
    if (std::abs(tile[i]) > largest) tile[i] = std::copysign(largest, tile[i]);
  }
}

void maxima(const float* tile, size_t block, size_t blocks, uint32_t* maxima) {
  for (size_t b = 0; b < blocks; ++b) {
    uint32_t largest = 0;
    for (size_t i = 0; i < block; ++i) {
      largest = std::max(largest, load_unaligned<uint32_t>(tile + b * block + i) & ~kFloatSignBit);
    }
    maxima[b] = largest;
  }
}

uint32_t finite_maximum(const float* values, size_t count, uint32_t overflow_bits) {
  uint32_t largest = 0;
  for (size_t i = 0; i < count; ++i) {
    const uint32_t bits = load_unaligned<uint32_t>(values + i) & ~kFloatSignBit;
    if (bits < overflow_bits) largest = std::max(largest, bits);
  }
  return largest;
}

// Halved step by step: an order that no vector length changes.
template <class Number, size_t kLanes>
Number sum_of(std::array<Number, kLanes> lanes) {
  for (size_t half = kLanes / 2; half > 0; half /= 2) {
    for (size_t lane = 0; lane < half; ++lane) lanes[lane] += lanes[lane + half];
  }
  return lanes[0];
}

void squared_errors(const float* values, const float* decoded, size_t block, size_t blocks,
                    double* errors) {
  for (size_t b = 0; b < blocks; ++b) {
    std::array<double, kErrorLanes> lanes{};
    for (size_t i = 0; i < block; ++i) {
      const double off = load_unaligned<float>(values + b * block + i) -
                         load_unaligned<float>(decoded + b * block + i);
      lanes[i % kErrorLanes] += off * off;
    }
    const double sum = sum_of(lanes);
    errors[b] = std::isfinite(sum) ? sum : 0;
  }
}

void magnitudes(const float* tile, size_t block, size_t blocks, float* sums) {
  for (size_t b = 0; b < blocks; ++b) {
    std::array<float, kMeanLanes> lanes{};
    for (size_t i = 0; i < block; ++i) {
      lanes[i % kMeanLanes] += std::abs(load_unaligned<float>(tile + b * block + i)) * kMeanFactor;
    }
    sums[b] = sum_of(lanes);
  }
}

void quantize(const ElementFormat& format, const float* tile, size_t count,
              const BlockScale* scales, uint8_t* codes) {
  for (size_t i = 0; i < count; ++i) {
    codes[i] = quantize_element(format, load_unaligned<float>(tile + i), scales[i / format.block]);
  }
}

void quantize_random(const ElementFormat& format, const RoundingPlace& place, const float* tile,
                     size_t count, const BlockScale* scales, uint8_t* codes) {
  for (size_t i = 0; i < count; ++i) {
    codes[i] = round_element(format, load_unaligned<float>(tile + i), scales[i / format.block],
                             rounding_half(place, i));
  }
}

void dequantize(const ElementFormat& format, const uint8_t* codes, size_t count,
                const BlockScale* scales, float* tile) {
  for (size_t i = 0; i < count; ++i) {
    store_unaligned(tile + i, dequantize_element(format, codes[i], scales[i / format.block].scale));
  }
}

void dequantize_add(const ElementFormat& format, const uint8_t* codes, size_t count,
                    const BlockScale* scales, float* tile) {
  for (size_t i = 0; i < count; ++i) {
    tile[i] += dequantize_element(format, codes[i], scales[i / format.block].scale);
  }
}

void dequantize_sums(const ElementFormat& format, const uint8_t* codes, size_t count,
                     const BlockScale* scales, const float* terms, float* to) {
  for (size_t i = 0; i < count; ++i) {
    const float value = dequantize_element(format, codes[i], scales[i / format.block].scale);
    store_unaligned(to + i, canonical_nan(load_unaligned<float>(terms + i) + value));
  }
}

bool all_numbers(const ElementFormat& format, const uint8_t* codes, size_t count) {
  return std::all_of(codes, codes + count,
                     [&](uint8_t code) { return std::isfinite(format.levels[code]); });
}

int32_t shifted_code(int32_t code, int32_t shift) {
  if (shift >= 0) return code * (int32_t{1} << shift);
  // Of any code nothing is left long before this.
  const int32_t right = std::min(-shift, 20);
  const int32_t below = code >> right;
  const int32_t rest = code - below * (1 << right);
  const int32_t half = 1 << (right - 1);
  return below + (rest > half || (rest == half && below % 2 != 0) ? 1 : 0);
}

void add_shifted(const ElementFormat& format, const uint8_t* codes, size_t count,
                 const int32_t* shifts, int32_t* sums) {
  for (size_t i = 0; i < count; ++i) {
    const auto code = static_cast<int32_t>(format.levels[codes[i]]);
    sums[i] += shifted_code(code, shifts[i / format.block]);
  }
}

void scale_sums(const int32_t* sums, size_t count, size_t block, const float* units, float* tile) {
  for (size_t i = 0; i < count; ++i) tile[i] = static_cast<float>(sums[i]) * units[i / block];
}

void pack(const ElementFormat& format, const uint8_t* codes, size_t groups, std::byte* wire) {
  const size_t values = group_values(format.packing);
  for (size_t g = 0; g < groups; ++g) {
    pack_group(format, codes + g * values, values, wire + g * code_bytes(format, values));
  }
}

void unpack(const ElementFormat& format, const std::byte* wire, size_t groups, uint8_t* codes) {
  const size_t values = group_values(format.packing);
  for (size_t g = 0; g < groups; ++g) {
    unpack_group(format, wire + g * code_bytes(format, values), values, codes + g * values);
  }
}

void dequantize_wire(const ElementFormat& format, const std::byte* wire, size_t count,
                     const BlockScale* scales, const float* terms, float* to) {
  std::array<uint8_t, kTileMemory> codes;
  unpack(format, wire, count / group_values(format.packing), codes.data());
  if (terms == nullptr) {
    dequantize(format, codes.data(), count, scales, to);
  } else {
    dequantize_sums(format, codes.data(), count, scales, terms, to);
  }
}

// Steps of 1, 2, 4, …: the same sums and differences in the same order on every instruction set.
void transform(size_t block, size_t count, float* tile) {
  for (size_t begin = 0; begin < count; begin += block) {
    float* const x = tile + begin;
    for (size_t step = 1; step < block; step *= 2) {
      for (size_t i = 0; i < block; ++i) {
        if ((i & step) != 0) continue;
        const float a = x[i];
        const float b = x[i + step];
        x[i] = a + b;
        x[i + step] = a - b;
      }
    }
  }
}

void rotate(const RotationEnds& ends, const float* from, size_t block, size_t count, float* tile) {
  for (size_t i = 0; i < count; ++i) {
    float value = load_unaligned<float>(from + i);
    if (ends.diagonal != nullptr) value *= ends.diagonal[i];
    tile[i] = value * ends.signs[i % block];
  }
  transform(block, count, tile);
}

void unrotate(const RotationEnds& ends, float* tile, size_t block, size_t count, float* to) {
  transform(block, count, tile);
  for (size_t i = 0; i < count; ++i) {
    float value = tile[i] * ends.signs[i % block];
    if (ends.diagonal != nullptr) value *= ends.diagonal[i];
    if (ends.terms != nullptr) value = canonical_nan(value + load_unaligned<float>(ends.terms + i));
    store_unaligned(to + i, value);
  }
}

void rotated_maxima(const float* signs, const float* from, size_t block, size_t blocks,
                    uint32_t least, uint32_t* found) {
  alignas(64) float tile[kTileMemory];
  rotate({signs}, from, block, block * blocks, tile);
  maxima(tile, block, blocks, found);
  std::transform(found, found + blocks, found,
                 [=](uint32_t bits) { return std::clamp(bits, least, kFloatInfinity); });
}

void unrotate_codes(const ElementFormat& format, const RotationEnds& ends, const uint8_t* codes,
                    size_t count, const BlockScale* scales, float* to) {
  alignas(64) float tile[kTileMemory];
  dequantize(format, codes, count, scales, tile);
  unrotate(ends, tile, format.block, count, to);
}

// left (rows x inner) times right (inner x columns).
void product(const float* left, size_t rows, size_t inner, const float* right, size_t columns,
             float* out) {
  for (size_t i = 0; i < rows; ++i) {
    for (size_t j = 0; j < columns; ++j) {
      float sum = left[i * inner] * right[j];
      for (size_t s = 1; s < inner; ++s) sum += left[i * inner + s] * right[s * columns + j];
      out[i * columns + j] = sum;
    }
  }
}

void multiply_blocks(const BlockProduct& matrices, const ProductEnds& ends, const float* from,
                     size_t count, float* to) {
  const auto [left, right, rows, columns] = matrices;
  std::array<float, kProductBlockMax> x{};
  std::array<float, kProductBlockMax> half{};
  for (size_t begin = 0; begin < count; begin += matrices.block()) {
    for (size_t i = 0; i < matrices.block(); ++i) {
      x[i] = load_unaligned<float>(from + begin + i);
      if (ends.before != nullptr) x[i] *= ends.before[begin + i];
    }
    product(left, rows, rows, x.data(), columns, half.data());
    product(half.data(), rows, columns, right, columns, x.data());
    for (size_t i = 0; i < matrices.block(); ++i) {
      const size_t at = begin + i;
      float value = x[i];
      if (ends.after != nullptr) value *= ends.after[at];
      if (ends.terms != nullptr) {
        value = canonical_nan(value + load_unaligned<float>(ends.terms + at));
      }
      store_unaligned(to + at, value);
    }
  }
}

}  // namespace

uint8_t quantize_element(const ElementFormat& format, float value, const BlockScale& scale) {
  if (!(scale.scale > 0)) return format.zero_code;
  const float scaled = value * scale.pre * scale.inverse;
  switch (format.family) {
    case ElementFamily::kInteger:
      return integer_code(format, scaled);
    case ElementFamily::kMinifloat:
      return minifloat_code(format, scaled);
    case ElementFamily::kTable:
      return table_code(format, scaled);
  }
  return 0;
}

uint8_t round_element(const ElementFormat& format, float value, const BlockScale& scale,
                      uint32_t half) {
  if (!(scale.scale > 0)) return format.zero_code;
  const float scaled = value * scale.pre * scale.inverse;
  switch (format.family) {
    case ElementFamily::kInteger:
      return random_integer_code(format, scaled, half);
    case ElementFamily::kMinifloat:
      return random_minifloat_code(format, scaled, half);
    case ElementFamily::kTable:
      return random_table_code(format, scaled, half);
  }
  return 0;
}

// An integer times a power of two is an addition to the exponent where no product leaves the normal
// numbers (L-Mul, arXiv 2410.00907, without its offset, which would be an error here).
float dequantize_element(const ElementFormat& format, uint8_t code, float scale) {
  constexpr int kReach = 100;
  const bool powers = format.rule == ScaleRule::kE8M0Up || format.rule == ScaleRule::kE8M0Floor;
  const int exponent = static_cast<int>(float_bits(scale) >> 23) - 127;
  if (powers && format.family == ElementFamily::kInteger && std::abs(exponent) <= kReach) {
    return add_exponent(format.levels[code], exponent);
  }
  return format.levels[code] * scale;
}

const ElementKernels& element_reference() {
  static constexpr ElementKernels kTable = {load,
                                            store,
                                            add,
                                            add_values,
                                            add_owed,
                                            keep_lost,
                                            finish_sum,
                                            multiply,
                                            limit,
                                            maxima,
                                            finite_maximum,
                                            squared_errors,
                                            magnitudes,
                                            choose_scales,
                                            choose_means,
                                            read_scales,
                                            quantize,
                                            quantize_random,
                                            dequantize,
                                            dequantize_add,
                                            dequantize_sums,
                                            dequantize_wire,
                                            all_numbers,
                                            add_shifted,
                                            scale_sums,
                                            pack,
                                            unpack,
                                            rotate,
                                            unrotate,
                                            rotated_maxima,
                                            unrotate_codes,
                                            multiply_blocks};
  return kTable;
}

}  // namespace tersum
