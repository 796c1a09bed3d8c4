// +sr: without bias, the same for a key wherever a slice is cut and on every instruction set,
// within its bound; and what nearest rounding does instead.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "codec/codec.h"
#include "codec/kernels/dispatch.h"
#include "codec/kernels/random_rounding.h"
#include "normal_floats.h"

namespace tersum {
namespace {

using Bytes = std::vector<std::byte>;
using Floats = std::vector<float>;

constexpr uint64_t kSeed = 20261122;
constexpr uint64_t kKey = 0x0123456789abcdef;

const Codec& codec_of(const std::string& spec, DataType type = DataType::kFloat32) {
  return *find_codec(spec, type, ReduceOp::kSum).value();
}

Bytes encode(const Codec& codec, const Floats& values, const SlicePlace& place) {
  Bytes wire(codec.wire_bytes(values.size()));
  codec.encode(values.data(), values.size(), wire.data(), place);
  return wire;
}

Floats round_trip(const Codec& codec, const Floats& values, const SlicePlace& place) {
  const Bytes wire = encode(codec, values, place);
  Floats back(values.size());
  codec.decode(wire.data(), values.size(), back.data());
  return back;
}

// What many codings of the same values, each with a key of its own, gave.
struct Samples {
  std::vector<double> sum;
  std::vector<double> squares;  // of the deviations from the values
  Floats low;
  Floats high;
};

Samples draw_samples(const Codec& codec, const Floats& values, uint64_t draws) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  const size_t count = values.size();
  Samples samples{std::vector<double>(count), std::vector<double>(count), Floats(count, kInfinity),
                  Floats(count, -kInfinity)};
  for (uint64_t draw = 0; draw < draws; ++draw) {
    const Floats back = round_trip(codec, values, {0, nullptr, kSeed * 7919 + draw});
    for (size_t i = 0; i < count; ++i) {
      const double off = double{back[i]} - values[i];
      samples.sum[i] += off;
      samples.squares[i] += off * off;
      samples.low[i] = std::min(samples.low[i], back[i]);
      samples.high[i] = std::max(samples.high[i], back[i]);
    }
  }
  return samples;
}

struct ChiSquare {
  double sum = 0;
  double degrees = 0;
  [[nodiscard]] double per_degree() const { return sum / degrees; }
};

constexpr uint64_t kDraws = 1000;

class Unbiased : public testing::TestWithParam<const char*> {};

// A value x between the levels l and h has the variance (x - l)(h - x). Those that lie so near to a
// level that the other one is rare are left out, by x alone.
TEST_P(Unbiased, TheMeanOfManyCodingsIsTheValue) {
  const Floats values = normal_floats(kSeed, 16384);
  const Samples samples = draw_samples(codec_of(GetParam()), values, kDraws);
  ChiSquare chi;
  for (size_t i = 0; i < values.size(); ++i) {
    const double below = double{values[i]} - samples.low[i];
    const double above = double{samples.high[i]} - values[i];
    if (std::min(below, above) * kDraws < 30 * (below + above)) continue;
    chi.sum += samples.sum[i] * samples.sum[i] / (kDraws * below * above);
    chi.degrees += 1;
  }
  EXPECT_GE(chi.degrees, 2000) << GetParam();
  EXPECT_GT(chi.per_degree(), 0.95) << GetParam() << ", seed " << kSeed;
  EXPECT_LT(chi.per_degree(), 1.05) << GetParam() << ", seed " << kSeed;
}

INSTANTIATE_TEST_SUITE_P(Formats, Unbiased,
                         testing::Values("int8/128+sr", "int6/128+sr", "int4/256+sr", "int2/32+sr",
                                         "five/32+sr", "fp8e4m3/128+sr", "mxfp8:e5m2+sr",
                                         "mxfp6:e2m3+sr", "mxfp4+sr", "mxint8+sr", "nf4/64+sr"));

// Turned values have many levels; their variance is that of the samples.
TEST(Rounding, AHadamardTransformKeepsTheMean) {
  const Floats values = normal_floats(kSeed, 16384);
  const Samples samples = draw_samples(codec_of("int4/128+hadamard+sr"), values, kDraws);
  ChiSquare chi;
  for (size_t i = 0; i < values.size(); ++i) {
    chi.sum += samples.sum[i] * samples.sum[i] / samples.squares[i];
    chi.degrees += 1;
  }
  EXPECT_GT(chi.per_degree(), 0.95) << "seed " << kSeed;
  EXPECT_LT(chi.per_degree(), 1.05) << "seed " << kSeed;
}

double norm(const std::vector<double>& values) {
  double squares = 0;
  for (const double value : values) squares += value * value;
  return std::sqrt(squares);
}

// Nearest rounding gives the same again and again: its mean is as far off as its first.
TEST(Rounding, NearestKeepsItsBias) {
  const Floats values = normal_floats(kSeed, 16384);
  const double length = norm({values.begin(), values.end()});
  const auto bias = [&](const char* spec) {
    return norm(draw_samples(codec_of(spec), values, kDraws).sum) / kDraws / length;
  };
  EXPECT_NEAR(bias("int4/128"), 0.118, 0.003);
  // 0.118 sqrt(2) / sqrt(1000).
  EXPECT_NEAR(bias("int4/128+sr"), 0.00527, 0.0003);
}

TEST(Rounding, OneCodingIsWithinAWholeStep) {
  for (const char* const spec : {"int8/128+sr", "int2/32+sr", "mxfp4+sr", "nf4/64+sr"}) {
    const Codec& codec = codec_of(spec);
    const size_t block = codec.spec().block;
    const Floats values = normal_floats(kSeed, 8192);
    double farthest = 0;
    for (uint64_t draw = 0; draw < 20; ++draw) {
      const Floats back = round_trip(codec, values, {0, nullptr, draw});
      for (size_t begin = 0; begin < values.size(); begin += block) {
        double absmax = 0;
        for (size_t i = begin; i < begin + block; ++i) {
          absmax = std::max(absmax, std::abs(double{values[i]}));
        }
        const double bound = codec.block_error_bound(absmax);
        for (size_t i = begin; i < begin + block; ++i) {
          const double off = std::abs(double{back[i]} - values[i]) / bound;
          ASSERT_LE(off, 1) << spec;
          farthest = std::max(farthest, off);
        }
      }
    }
    EXPECT_GT(farthest, 0.9) << spec;
  }
}

// A value's rounding depends on its place in the array, not on the slice that it is coded in.
TEST(Rounding, SlicesGiveTheSameCodesWhereverTheyAreCut) {
  for (const char* const spec : {"int6/32+sr", "five/32+sr", "mxfp8+hadamard+sr", "int8/32+sr"}) {
    const Codec& codec = codec_of(spec);
    const Floats values = normal_floats(kSeed, 9600);
    const Floats whole = round_trip(codec, values, {100, nullptr, 77});
    for (const size_t cut : {96UL, 3072UL, 5568UL}) {
      const Floats rest(values.begin() + static_cast<std::ptrdiff_t>(cut), values.end());
      const Floats back = round_trip(codec, rest, {100 + cut, nullptr, 77});
      EXPECT_TRUE(std::equal(back.begin(), back.end(), whole.begin() + static_cast<long>(cut)))
          << spec << " cut at " << cut;
    }
  }
}

TEST(Rounding, EveryInstructionSetAndEverySecondRunGiveTheSameBytes) {
  for (const char* const spec :
       {"int8/64+sr", "int3/32+sr", "five/32+sr", "fp8e5m2/32+sr", "mxint8+sr", "nf4/32+sr",
        "fp8e4m3/128+sr", "mxfp6:e2m3+sr", "mxfp4+sr", "int4/1024+sparse:1%+hadamard+sr",
        "int4/32+rows:50+sr"}) {
    const Codec& codec = codec_of(spec);
    const Floats values = normal_floats(kSeed, 5003);
    // Near the end of 32 and 33 bits, from an even and an odd number on.
    for (const size_t first : {(size_t{1} << 32) - 1024, (size_t{1} << 33) - 1023}) {
      const SlicePlace place{first, nullptr, kKey};
      force_target(kReferenceTarget);
      const Bytes wire = encode(codec, values, place);
      for (const int64_t target : available_targets()) {
        force_target(target);
        EXPECT_EQ(encode(codec, values, place), wire) << spec << " " << target_name(target);
      }
      unforce_target();
      for (const uint64_t other : {kKey - 1, kKey + (uint64_t{1} << 60)}) {
        EXPECT_NE(encode(codec, values, {place.first, nullptr, other}), wire) << spec;
      }
    }
  }
}

// Numbers in [-0.5, 0.5) from a rounding's bits, 16 of a value's own or 32 of a pair's.
double half_about_zero(const RoundingPlace& place, size_t i) {
  return rounding_half(place, i) * 0x1p-16 - 0.5;
}
double share_about_zero(const RoundingPlace& place, size_t i) {
  return double{rounding_share(rounding_bits(place, i))} - 0.5;
}

// Two keys share no more than chance does, also where one is shifted against the other.
TEST(Rounding, NumbersOfTwoKeysHaveNothingInCommon) {
  constexpr size_t kCount = 1 << 16;
  const RoundingPlace a = rounding_place(kSeed, 0);
  for (const uint64_t key : {kSeed + 1, kSeed + (uint64_t{1} << 32), kSeed + kRoundingStep}) {
    const RoundingPlace b = rounding_place(key, 0);
    for (const size_t shift : {0UL, 1UL, 2UL, 64UL}) {
      double halves = 0;
      double shares = 0;
      for (size_t i = 0; i < kCount; ++i) {
        halves += half_about_zero(a, i) * half_about_zero(b, i + shift);
        shares += share_about_zero(a, i) * share_about_zero(b, i + shift);
      }
      // Of independent numbers: mean 0, deviation sqrt(kCount) / 12.
      EXPECT_LT(std::abs(halves), 4.5 * 256 / 12) << key << " shifted by " << shift;
      EXPECT_LT(std::abs(shares), 4.5 * 256 / 12) << key << " shifted by " << shift;
    }
  }
}

// Nor do values that are neighbours, of which two are rounded by one number.
TEST(Rounding, NumbersOfNeighboursHaveNothingInCommon) {
  constexpr size_t kCount = 1 << 16;
  const RoundingPlace place = rounding_place(kSeed, 0);
  for (const size_t apart : {1UL, 2UL, 3UL, 32UL}) {
    for (const size_t first : {0UL, 1UL}) {
      double product = 0;
      for (size_t i = first; i < 2 * kCount; i += 2) {
        product += half_about_zero(place, i) * half_about_zero(place, i + apart);
      }
      EXPECT_LT(std::abs(product), 4.5 * 256 / 12) << first << " and " << apart << " on";
    }
  }
}

// Each bit that a rounding uses is one half of the time, in even places and in odd ones.
TEST(Rounding, EachBitIsOneHalfOfTheTime) {
  constexpr size_t kCount = 1 << 16;
  const RoundingPlace place = rounding_place(kSeed, 0);
  for (uint32_t bit = 0; bit < 32; ++bit) {
    size_t ones = 0;
    for (size_t i = 0; i < kCount; ++i) ones += rounding_bits(place, i) >> bit & 1U;
    EXPECT_NEAR(static_cast<double>(ones), kCount / 2.0, 4.5 * 128) << bit;
  }
  for (uint32_t bit = 0; bit < 16; ++bit) {
    size_t ones[2] = {};
    for (size_t i = 0; i < 2 * kCount; ++i) ones[i % 2] += rounding_half(place, i) >> bit & 1U;
    EXPECT_NEAR(static_cast<double>(ones[0]), kCount / 2.0, 4.5 * 128) << bit;
    EXPECT_NEAR(static_cast<double>(ones[1]), kCount / 2.0, 4.5 * 128) << bit;
  }
}

// Under a scale of 1 levels are exact, whatever their number is.
TEST(Rounding, LevelsStayWhatTheyAre) {
  const Floats of_four_bits = {7, -7, 6, -5, 4, -3, 2, -1, 0};
  const Floats of_eight_bits = {127, -127, 126, -101, 64, -63, 3, -1, 0};
  const Floats of_mxfp4 = {6, -6, 4, -3, 2, -1.5F, 1, -0.5F, 0};
  const auto expect_kept = [](const char* spec, const Floats& levels) {
    Floats values(4096);
    for (size_t i = 0; i < values.size(); ++i) values[i] = levels[i % levels.size()];
    for (const size_t first : {0UL, 1UL}) {
      EXPECT_EQ(round_trip(codec_of(spec), values, {first, nullptr, kKey}), values) << spec;
    }
  };
  expect_kept("int4/32+sr", of_four_bits);
  expect_kept("int8/128+sr", of_eight_bits);
  expect_kept("mxfp4+sr", of_mxfp4);
}

TEST(Rounding, FormatsWithoutALevelOnEitherSideAreRefused) {
  const auto message = [](const char* spec) {
    return std::string(find_codec(spec, DataType::kFloat32, ReduceOp::kSum).status().message());
  };
  EXPECT_THAT(message("int1+sr"), testing::HasSubstr("beyond the block's mean"));
  EXPECT_THAT(message("nvfp4+sr"), testing::HasSubstr("not rounded up"));
  EXPECT_THAT(message("mxfp8+floor+sr"), testing::HasSubstr("not rounded up"));
  EXPECT_THAT(message("int4+mixed+sr"), testing::HasSubstr("judge blocks by nearest"));
  EXPECT_THAT(message("int4/64+adaptive+sr"), testing::HasSubstr("judge blocks by nearest"));
  EXPECT_THAT(message("bf16+sr"), testing::HasSubstr("no blocks"));
  EXPECT_THAT(message("exact+sr"), testing::HasSubstr("no blocks"));
  EXPECT_THAT(message("int8+sr:3"), testing::HasSubstr("is written \"sr\""));
  EXPECT_EQ(codec_of("int4+sr+hadamard").spec().to_string(), "int4/128+hadamard+sr");
}

}  // namespace
}  // namespace tersum
