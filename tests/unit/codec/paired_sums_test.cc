// lut2 against a plain reading of docs/codecs.md: codes, the tree of means, what they stand for.
#include "codec/paired_sums.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "codec/kernels/numbers.h"
#include "codec/shared_sums.h"

namespace tersum {
namespace {

using ::testing::HasSubstr;
using Bytes = std::vector<std::byte>;
using Codes = std::vector<int>;
using Floats = std::vector<float>;

constexpr uint64_t kSeed = 20261122;
constexpr size_t kBlock = 32;

const Codec& lut2() { return *find_codec("lut2/32", DataType::kFloat32, ReduceOp::kSum).value(); }

std::vector<Floats> bell_shaped(size_t ranks, size_t count) {
  std::mt19937_64 random(kSeed + ranks * 7919 + count);
  std::normal_distribution<float> bell;
  std::vector<Floats> rows(ranks, Floats(count));
  for (Floats& row : rows) std::generate(row.begin(), row.end(), [&] { return bell(random); });
  return rows;
}

struct Agreed {
  std::vector<uint16_t> scales;
  [[nodiscard]] SlicePlace place(uint32_t divisor = 1) const {
    SlicePlace place;
    place.scales = scales.data();
    place.divisor = divisor;
    return place;
  }
  [[nodiscard]] float step(size_t i) const { return bf16_to_float(scales[i / kBlock]); }
};

Agreed agree(const std::vector<Floats>& rows) {
  Agreed agreed{std::vector<uint16_t>((rows[0].size() + kBlock - 1) / kBlock)};
  for (const Floats& row : rows) {
    lut2().shared_sums()->measure(row.data(), row.size(), static_cast<uint32_t>(rows.size()), {},
                                  agreed.scales.data());
  }
  return agreed;
}

// Of -3, -1, 1, 3 halves of a step the nearest; the middle of two belongs to the lower one unless
// the kernel says otherwise, so data must not lie there.
int code_of(float value, float step) {
  if (step == 0) return 2;
  const double at = static_cast<double>(value) / static_cast<double>(step);
  return std::clamp(static_cast<int>(std::floor(at)) + 2, 0, 3);
}

// The mean of two codes; between two of them the one nearer to the first.
int mean_of(int a, int b) {
  const int sum = a + b;
  if (sum % 2 == 0) return sum / 2;
  return a > b ? (sum + 1) / 2 : sum / 2;
}

Codes tree_of(std::vector<Codes> streams) {
  while (streams.size() > 1) {
    for (size_t i = 0; i < streams.size() / 2; ++i) {
      Codes both(streams[0].size());
      for (size_t k = 0; k < both.size(); ++k) {
        both[k] = mean_of(streams[2 * i][k], streams[2 * i + 1][k]);
      }
      streams[i] = both;
    }
    streams.resize(streams.size() / 2);
  }
  return streams[0];
}

Codes unpacked(const Bytes& wire, size_t count) {
  Codes codes(count);
  for (size_t i = 0; i < count; ++i) codes[i] = static_cast<int>(wire[i / 4]) >> (2 * (i % 4)) & 3;
  return codes;
}

// Rank 0 is a wire, rank 1 adds its own values, and ranks 2 to 7 come in one of four ways.
TEST(PairedSums, OfRanksThatStandTogetherComeToTheSame) {
  constexpr size_t kCount = 6151;
  const auto rows = bell_shaped(8, kCount);
  const Agreed agreed = agree(rows);
  const Codec& codec = lut2().shared_sums()->contributions(8);
  // Ranks first..first+held-1.
  const auto sum_of = [&](size_t first, uint16_t held) {
    Bytes sum(codec.wire_bytes(kCount));
    std::vector<Bytes> sent(held, sum);
    std::vector<const std::byte*> wires;
    for (size_t i = 0; i < held; ++i) {
      codec.encode(rows[first + i].data(), kCount, sent[i].data(), agreed.place());
      wires.push_back(sent[i].data());
    }
    codec.combine(wires, nullptr, 0, kCount, {}, sum.data(), nullptr, agreed.place());
    return sum;
  };
  const Bytes all = sum_of(0, 8);
  using Held = std::vector<uint16_t>;
  for (const Held& held :
       {Held{1, 2, 4}, Held{1, 2, 2, 2}, Held{1, 1, 1, 4}, Held{1, 2, 1, 1, 2}}) {
    std::vector<Bytes> parts;
    std::vector<const std::byte*> wires;
    size_t first = 0;
    for (const uint16_t ranks : held) {
      parts.push_back(sum_of(first, ranks));
      first += ranks + (first == 0 ? 1 : 0);
    }
    for (const Bytes& part : parts) wires.push_back(part.data());
    SlicePlace place = agreed.place();
    place.held = held.data();
    Bytes sum(codec.wire_bytes(kCount));
    Floats values(kCount), decoded(kCount);
    codec.combine(wires, rows[1].data(), 1, kCount, {ReduceOp::kSum, 1, 8}, sum.data(),
                  values.data(), place);
    EXPECT_EQ(sum, all);
    codec.gathered(8).decode(sum.data(), kCount, decoded.data(), agreed.place());
    EXPECT_EQ(values, decoded);
  }
}

TEST(PairedSums, AreTheTreeOfMeansOfTheCodes) {
  for (const size_t ranks : {size_t{2}, size_t{4}, size_t{8}, size_t{16}}) {
    for (const size_t count : {size_t{1}, size_t{7}, size_t{32}, size_t{97}, size_t{6151}}) {
      const auto rows = bell_shaped(ranks, count);
      const Agreed agreed = agree(rows);
      const Codec& codec = lut2().shared_sums()->contributions(static_cast<uint32_t>(ranks));
      ASSERT_EQ(codec.wire_bytes(count), (count + 3) / 4);
      std::vector<Bytes> sent(ranks, Bytes(codec.wire_bytes(count)));
      std::vector<Codes> codes;
      for (size_t rank = 0; rank < ranks; ++rank) {
        codec.encode(rows[rank].data(), count, sent[rank].data(), agreed.place());
        EXPECT_TRUE(codec.check_wire(sent[rank].data(), count).ok());
        codes.push_back(unpacked(sent[rank], count));
        for (size_t i = 0; i < count; ++i) {
          ASSERT_EQ(codes[rank][i], code_of(rows[rank][i], agreed.step(i))) << rank << ' ' << i;
        }
      }
      const Codes expected = tree_of(codes);
      for (size_t owner = 0; owner < ranks; ++owner) {
        std::vector<const std::byte*> wires;
        for (size_t rank = 0; rank < ranks; ++rank) {
          if (rank != owner) wires.push_back(sent[rank].data());
        }
        Bytes sum(codec.wire_bytes(count));
        Floats values(count), decoded(count);
        const auto all = static_cast<uint32_t>(ranks);
        codec.combine(wires, rows[owner].data(), owner, count, {ReduceOp::kSum, 1, all}, sum.data(),
                      values.data(), agreed.place());
        EXPECT_EQ(unpacked(sum, count), expected);
        codec.gathered(all).decode(sum.data(), count, decoded.data(), agreed.place());
        EXPECT_EQ(decoded, values);
        for (size_t i = 0; i < count; ++i) {
          const float level = static_cast<float>(expected[i]) - 1.5F;
          ASSERT_EQ(values[i], level * agreed.step(i) * static_cast<float>(ranks));
          const double bound = static_cast<double>(ranks) *
                               codec.block_error_bound(static_cast<double>(agreed.step(i)) * 1.5);
          double exact = 0;
          for (const Floats& row : rows) exact += static_cast<double>(row[i]);
          EXPECT_LE(std::abs(exact - static_cast<double>(values[i])), bound);
        }
        codec.gathered(all).decode(sum.data(), count, decoded.data(), agreed.place(all));
        for (size_t i = 0; i < count; ++i) {
          EXPECT_EQ(decoded[i], values[i] / static_cast<float>(ranks));
        }
      }
    }
  }
}

TEST(PairedSumsRules, BlocksWithSomethingNotFiniteAreLostAndZerosStayZero) {
  std::vector<Floats> rows(2, Floats(3 * kBlock, 0.0F));
  rows[1][kBlock + 3] = std::numeric_limits<float>::infinity();
  rows[0][2 * kBlock] = std::numeric_limits<float>::quiet_NaN();
  const Agreed agreed = agree(rows);
  const Codec& codec = lut2().shared_sums()->contributions(2);
  Bytes sent(codec.wire_bytes(rows[0].size()));
  codec.encode(rows[1].data(), rows[1].size(), sent.data(), agreed.place());
  Floats values(rows[0].size());
  const std::vector<const std::byte*> wires{sent.data()};
  codec.combine(wires, rows[0].data(), 0, values.size(), {}, nullptr, values.data(),
                agreed.place());
  for (size_t i = 0; i < values.size(); ++i) {
    if (i < kBlock) {
      EXPECT_EQ(float_bits(values[i]), 0u) << i;
    } else {
      EXPECT_TRUE(std::isnan(values[i])) << i;
    }
  }
}

TEST(PairedSumsRules, OnlyPowersOfTwoCanSum) {
  for (const uint32_t ranks : {2u, 4u, 8u, 1024u}) {
    EXPECT_TRUE(check_sum_ranks(lut2(), ranks).ok()) << ranks;
  }
  for (const uint32_t ranks : {3u, 6u, 12u, 8192u}) {
    const Status status = check_sum_ranks(lut2(), ranks);
    EXPECT_EQ(status.code(), StatusCode::kUnsupported);
    EXPECT_THAT(std::string(status.message()), HasSubstr("two by two"));
  }
}

TEST(PairedSumsRules, BitsBehindTheLastCodeAreRefused) {
  const Codec& codec = lut2().shared_sums()->contributions(2);
  Bytes wire(2, std::byte{0});
  for (size_t bit = 0; bit < 8; ++bit) {
    wire[1] = static_cast<std::byte>(1U << bit);
    EXPECT_EQ(codec.check_wire(wire.data(), 5).ok(), bit < 2) << bit;
  }
}

}  // namespace
}  // namespace tersum
