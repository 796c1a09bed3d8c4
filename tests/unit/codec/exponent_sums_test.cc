// sum:exp beside the golden sums (integer_sums_test.cc): additions have the probabilities of
// docs/codecs.md, sums no bias, and codes that no encoder writes are added all the same.
#include "codec/exponent_sums.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "codec/kernels/dispatch.h"
#include "codec/kernels/exponent_codes.h"
#include "codec/kernels/numbers.h"
#include "codec/shared_sums.h"

namespace tersum {
namespace {

using Bytes = std::vector<std::byte>;
using Codes = std::vector<uint8_t>;
using Floats = std::vector<float>;
using Wires = std::vector<const std::byte*>;

constexpr uint64_t kSeed = 20261122;

const Codec& exponents(DataType type = DataType::kFloat32) {
  return *find_codec("sum:exp", type, ReduceOp::kSum).value();
}

double level(uint8_t code) {
  const int exponent = code & 127;
  const double magnitude = exponent == 0 ? 0 : std::ldexp(1.0, exponent - 127);
  return code >= 128 ? -magnitude : magnitude;
}

// Every pair of codes up to some octaves apart, below the largest.
TEST(ExponentCodes, ASumIsOneOfThePowersAroundItWithItAsTheMean) {
  constexpr size_t kDraws = 1 << 16;
  for (int a = 1; a < 12; ++a) {
    for (int b = 0; b < 12; ++b) {
      for (const int sign : {0, 128}) {
        Codes sums(kDraws, static_cast<uint8_t>(a + 60));
        const auto other = static_cast<uint8_t>(b == 0 ? 0 : (b + 60) | sign);
        const double exact = level(sums[0]) + level(other);
        add_exponents(sums.data(), Codes(kDraws, other).data(), kDraws,
                      rounding_place(kSeed * 977 + static_cast<uint64_t>(a * 12 + b), 0));
        double mean = 0;
        double below = std::numeric_limits<double>::infinity();
        double above = -below;
        for (const uint8_t sum : sums) {
          mean += level(sum) / kDraws;
          below = std::min(below, level(sum));
          above = std::max(above, level(sum));
        }
        ASSERT_TRUE(below <= exact && exact <= above) << a << ' ' << b << ' ' << sign;
        // Of two neighbouring powers; five standard deviations of so many draws.
        ASSERT_LE(above - below, std::max(std::abs(below), std::abs(above)) / 2);
        ASSERT_NEAR(mean, exact, 5 * (above - below) / 2 / std::sqrt(kDraws))
            << a << ' ' << b << ' ' << sign << ", seed " << kSeed;
      }
    }
  }
}

// Codes that no encoder writes, too; the last of the targets is the scalar reference.
TEST(ExponentCodes, AreTheSameOnEveryTarget) {
  const ExponentKernels& reference = exponent_kernels_of(available_targets().back());
  std::mt19937_64 random(kSeed);
  for (size_t round = 0; round < 2000; ++round) {
    const size_t count = random() % 200;
    const RoundingPlace place = rounding_place(random(), random());
    Codes a(count);
    Codes b(count);
    Floats values(count);
    for (size_t i = 0; i < count; ++i) {
      a[i] = static_cast<uint8_t>(random());
      // Neighbours, whose sums draw most.
      b[i] = static_cast<uint8_t>(random() % 2 == 0 ? a[i] + random() % 5 - 2 : random());
      const auto exponent = static_cast<int>(random() % 160);
      values[i] = std::ldexp(static_cast<float>(random() % 2001) / 1000 - 1, -exponent);
    }
    const auto headroom = static_cast<uint32_t>(random() % 126 + 1);
    Codes expected(count);
    reference.encode(values.data(), count, headroom, place, expected.data());
    Codes expected_sum = a;
    reference.add(expected_sum.data(), b.data(), count, place);
    for (const int64_t target : available_targets()) {
      const ExponentKernels& kernels = exponent_kernels_of(target);
      Codes codes(count);
      kernels.encode(values.data(), count, headroom, place, codes.data());
      ASSERT_EQ(codes, expected) << "round " << round << ", seed " << kSeed;
      Codes sum = a;
      kernels.add(sum.data(), b.data(), count, place);
      ASSERT_EQ(sum, expected_sum) << "round " << round << ", seed " << kSeed;
    }
  }
}

TEST(ExponentCodes, WhatIsBeyondTheLargestStaysThere) {
  for (const int sign : {0, 128}) {
    Codes top(100, static_cast<uint8_t>(127 | sign));
    const Codes same = top;
    add_exponents(top.data(), same.data(), top.size(), {});
    EXPECT_EQ(top, same);
  }
}

TEST(ExponentCodes, BelowTheLeastPowerThereIsItOrZero) {
  constexpr size_t kDraws = 1 << 16;
  for (const uint32_t headroom : {1u, 5u, 12u}) {
    const float least = std::ldexp(1.0F, static_cast<int>(headroom) - 126);
    for (const float part : {0.0F, 0.25F, 0.75F, 1.0F, 1.5F}) {
      Codes codes(kDraws);
      const Floats values(kDraws, -part * least);
      encode_exponents(values.data(), kDraws, headroom, rounding_place(kSeed, 0), codes.data());
      double mean = 0;
      for (const uint8_t code : codes) {
        ASSERT_TRUE(code == 0 || code == 129 || (code == 130 && part > 1)) << int{code};
        mean += (code == 0 ? 0.0 : code - 128.0) / kDraws;
      }
      EXPECT_NEAR(mean, part, 5 * 0.5 / std::sqrt(kDraws)) << headroom << ", seed " << kSeed;
    }
  }
}

// reference/codecs.md section 3, Global-QSGD: unbiased, chi2/dof 0.99 and 1.02.
// Of many sums of the same values, each with other keys: the square of the mean's distance beside
// what independent errors of that size have.
TEST(ExponentSums, HaveNoBias) {
  constexpr size_t kCount = 16384;
  constexpr uint64_t kDraws = 400;
  for (const uint32_t ranks : {2u, 3u, 8u}) {
    const SharedSums& sums = *exponents().shared_sums();
    const Codec& codec = sums.contributions(ranks);
    std::mt19937_64 random(kSeed + ranks);
    std::normal_distribution<float> bell;
    std::vector<Floats> rows(ranks, Floats(kCount));
    uint16_t shared = 0;
    for (Floats& row : rows) {
      std::generate(row.begin(), row.end(), [&] { return bell(random); });
      sums.measure(row.data(), kCount, ranks, {}, &shared);
    }
    std::vector<double> total(kCount);
    double squares = 0;
    SlicePlace place;
    place.scales = &shared;
    for (uint64_t draw = 0; draw < kDraws; ++draw) {
      std::vector<Bytes> sent(ranks, Bytes(kCount));
      Wires wires;
      for (uint32_t rank = 0; rank < ranks; ++rank) {
        place.rounding = kSeed * 7919 + draw * ranks + rank;
        codec.encode(rows[rank].data(), kCount, sent[rank].data(), place);
        wires.push_back(sent[rank].data());
      }
      Floats sum(kCount);
      codec.combine(wires, nullptr, 0, kCount, {}, nullptr, sum.data(), place);
      for (size_t i = 0; i < kCount; ++i) {
        double off = double{sum[i]};
        for (const Floats& row : rows) off -= double{row[i]};
        total[i] += off;
        squares += off * off;
      }
    }
    double chi = 0;
    for (const double off : total) chi += off * off;
    EXPECT_GT(chi / squares, 0.95) << ranks << " ranks, seed " << kSeed;
    EXPECT_LT(chi / squares, 1.05) << ranks << " ranks, seed " << kSeed;
  }
}

// Slices may be cut at any block, and parts of them decoded, across tiles.
TEST(ExponentSums, ACutSliceHasTheSameCodesAndValues) {
  constexpr uint32_t kRanks = 3;
  constexpr size_t kCount = 7013;
  constexpr size_t kCut = 4096;
  const Codec& codec = exponents().shared_sums()->contributions(kRanks);
  std::mt19937_64 random(kSeed);
  std::normal_distribution<float> bell;
  Floats values(kCount);
  std::generate(values.begin(), values.end(), [&] { return bell(random); });
  uint16_t shared = 0;
  exponents().shared_sums()->measure(values.data(), kCount, kRanks, {}, &shared);
  SlicePlace place;
  place.scales = &shared;
  place.rounding = kSeed;
  const auto sum_of = [&](size_t first, size_t count, const SlicePlace& at) {
    Bytes sent(count), sum(count);
    codec.encode(values.data() + first, count, sent.data(), at);
    const Wires wires(kRanks - 1, sent.data());
    codec.combine(wires, values.data() + first, 1, count, {}, sum.data(), nullptr, at);
    return sum;
  };
  const Bytes whole = sum_of(0, kCount, place);
  SlicePlace rest = place;
  rest.first = kCut;
  Bytes parts = sum_of(0, kCut, place);
  const Bytes second = sum_of(kCut, kCount - kCut, rest);
  parts.insert(parts.end(), second.begin(), second.end());
  EXPECT_EQ(parts, whole);
  Floats back(kCount), in_parts(kCount);
  codec.decode(whole.data(), kCount, back.data(), place);
  codec.decode_part(whole.data(), {kCount, 0, kCut}, in_parts.data(), place);
  codec.decode_part(whole.data(), {kCount, kCut, kCount - kCut}, in_parts.data() + kCut, place);
  EXPECT_EQ(in_parts, back);
}

TEST(ExponentSums, AZeroWithASignIsNamedAndCountsAsZero) {
  const Codec& codec = exponents().shared_sums()->contributions(2);
  Bytes wire(5, std::byte{0x7e});
  EXPECT_TRUE(codec.check_wire(wire.data(), wire.size()).ok());
  wire[3] = std::byte{0x80};
  EXPECT_EQ(codec.check_wire(wire.data(), wire.size()).message(),
            "the code of value 3 is a zero with a sign, which no encoder writes");
  const uint16_t shared = 0x3f80;
  SlicePlace place;
  place.scales = &shared;
  const Floats zeros(5, 0.0F);
  const Wires wires{wire.data()};
  Floats values(5);
  codec.combine(wires, zeros.data(), 0, 5, {}, nullptr, values.data(), place);
  EXPECT_EQ(values, (Floats{1, 1, 1, 0, 1}));
}

TEST(ExponentSums, TakeNoModifier) {
  EXPECT_TRUE(exponents().is_random());
  EXPECT_EQ(exponents().spec().to_string(), "sum:exp/1024");
  EXPECT_NE(exponents().shared_sums()->refusal(4097), "");
  for (const char* modifier : {"sr", "hadamard", "flatten", "rows:64", "sparse:1%", "feedback",
                               "mixed", "adaptive", "shiftadd", "floor", "hops"}) {
    const auto found =
        find_codec("sum:exp+" + std::string(modifier), DataType::kFloat32, ReduceOp::kSum);
    ASSERT_FALSE(found.ok()) << modifier;
    EXPECT_NE(found.status().message().find("is refused: "), std::string::npos) << modifier;
  }
}

}  // namespace
}  // namespace tersum
