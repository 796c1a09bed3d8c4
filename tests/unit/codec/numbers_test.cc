// The 16-bit float conversions, exhaustively one way and densely the other, against the
// definitions.
#include "codec/kernels/numbers.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <random>

namespace tersum {
namespace {

// The value that a 16-bit pattern stands for, from the definition of the formats.
double value_of(uint16_t bits, int exponent_bits, int mantissa_bits) {
  const int bias = (1 << (exponent_bits - 1)) - 1;
  const int exponent = (bits >> mantissa_bits) & ((1 << exponent_bits) - 1);
  const double mantissa = bits & ((1 << mantissa_bits) - 1);
  const double sign = (bits & 0x8000) != 0 ? -1.0 : 1.0;
  if (exponent == (1 << exponent_bits) - 1) return mantissa == 0 ? sign * INFINITY : NAN;
  const double leading = exponent == 0 ? 0.0 : 1.0;
  return sign *
         std::ldexp(leading + std::ldexp(mantissa, -mantissa_bits), std::max(exponent, 1) - bias);
}

// Nearest of the two patterns around `value`, ties to the even one.
uint16_t nearest_of(float value, int exponent_bits, int mantissa_bits) {
  const uint16_t infinity = static_cast<uint16_t>(((1 << exponent_bits) - 1) << mantissa_bits);
  const uint16_t sign = std::signbit(value) ? 0x8000 : 0;
  if (std::isnan(value)) return static_cast<uint16_t>(infinity | (1 << (mantissa_bits - 1)));
  const double magnitude = std::fabs(double{value});
  uint16_t low = 0;  // largest pattern not above
  for (uint16_t step = 0x4000; step != 0; step >>= 1) {
    const auto candidate = static_cast<uint16_t>(low + step);
    if (candidate < infinity && value_of(candidate, exponent_bits, mantissa_bits) <= magnitude) {
      low = candidate;
    }
  }
  const double below = value_of(low, exponent_bits, mantissa_bits);
  // Beyond the largest number the format goes on as if its exponent did.
  const double last_step = std::ldexp(1.0, (1 << (exponent_bits - 1)) - 1 - mantissa_bits);
  const double above =
      low + 1 == infinity ? below + last_step : value_of(low + 1, exponent_bits, mantissa_bits);
  const double to_below = magnitude - below;
  const double to_above = above - magnitude;
  const bool up = to_above < to_below || (to_above == to_below && (low & 1) != 0);
  return static_cast<uint16_t>(sign | (up ? low + 1 : low));
}

TEST(Numbers, EveryHalfAndBFloat16HasItsValue) {
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    const auto pattern = static_cast<uint16_t>(bits);
    const double half = value_of(pattern, 5, 10);
    const double bf16 = value_of(pattern, 8, 7);
    if (std::isnan(half)) {
      EXPECT_EQ(float_bits(half_to_float(pattern)), kFloatNan);
    } else {
      EXPECT_EQ(float_bits(half_to_float(pattern)), float_bits(static_cast<float>(half))) << bits;
      EXPECT_EQ(float_to_half(half_to_float(pattern)), pattern);
    }
    if (!std::isnan(bf16)) {
      EXPECT_EQ(float_bits(bf16_to_float(pattern)), float_bits(static_cast<float>(bf16))) << bits;
      EXPECT_EQ(float_to_bf16(bf16_to_float(pattern)), pattern);
    }
  }
}

TEST(Numbers, RoundingGoesToTheNearestAndTiesToEven) {
  const uint64_t seed = 20260101;
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  std::mt19937_64 random(seed);
  for (int i = 0; i < 200'000; ++i) {
    // Around the borders of float16, where all its cases are, and anywhere.
    auto bits = static_cast<uint32_t>(random());
    if (i % 2 == 0) {
      bits = (bits & 0x80000fffu) | (static_cast<uint32_t>(100 + random() % 46) << 23) |
             (static_cast<uint32_t>(random() % 2048) << 12);
    }
    const float value = float_from_bits(bits);
    ASSERT_EQ(float_to_half(value), nearest_of(value, 5, 10)) << std::hexfloat << value;
    ASSERT_EQ(float_to_bf16(value), nearest_of(value, 8, 7)) << std::hexfloat << value;
  }
}

TEST(Numbers, OverflowBeginsWhereItIsSaidTo) {
  EXPECT_EQ(float_to_half(float_from_bits(kHalfOverflow)), 0x7c00);
  EXPECT_EQ(float_to_half(float_from_bits(kHalfOverflow - 1)), 0x7bff);
  EXPECT_EQ(float_to_bf16(float_from_bits(kBf16Overflow)), 0x7f80);
  EXPECT_EQ(float_to_bf16(float_from_bits(kBf16Overflow - 1)), 0x7f7f);
}

}  // namespace
}  // namespace tersum
