// Sums under shared scales: the golden ones of an independent encoder, on every instruction set
// and, of integers, whatever is added first; wide codes; and what no encoder writes.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <limits>
#include <random>
#include <span>
#include <sstream>
#include <string>
#include <vector>

#include "codec/codec.h"
#include "codec/force_isa.h"
#include "codec/hadamard_signs.h"
#include "codec/kernels/numbers.h"
#include "codec/kernels/wide_codes.h"
#include "codec/shared_sums.h"
#include "hex_bytes.h"
#include "normal_floats.h"

namespace tersum {
namespace {

using Bytes = std::vector<std::byte>;
using Floats = std::vector<float>;
using Scales = std::vector<uint16_t>;
using Wires = std::vector<const std::byte*>;

constexpr uint64_t kSeed = 20261122;

const Codec& codec_of(const std::string& spec, DataType type = DataType::kFloat32) {
  return *find_codec(spec, type, ReduceOp::kSum).value();
}

struct GoldenSum {
  const Codec* codec = nullptr;
  uint32_t ranks = 0;
  size_t count = 0;
  uint64_t key = 0;
  Bytes values, scales, contributions, sum, decoded, average;
  std::string name;

  [[nodiscard]] const std::byte* row(uint32_t rank) const {
    return values.data() + rank * count * element_bytes(codec->value_type());
  }
  [[nodiscard]] const std::byte* contribution(uint32_t rank) const {
    return contributions.data() + rank * (contributions.size() / ranks);
  }
  [[nodiscard]] Scales shared() const {
    Scales shared(scales.size() / 2);
    std::memcpy(shared.data(), scales.data(), scales.size());
    return shared;
  }
  [[nodiscard]] SlicePlace place(const Scales& shared, uint32_t rank) const {
    SlicePlace place;
    place.scales = shared.data();
    place.rounding = key + rank;
    return place;
  }
};

std::vector<GoldenSum> golden_sums() {
  std::ifstream file(TERSUM_GOLDEN_SUMS);
  std::vector<GoldenSum> all;
  for (std::string line; std::getline(file, line);) {
    std::istringstream fields(line);
    GoldenSum sum;
    std::string spec, dtype, hex;
    fields >> sum.name >> spec >> dtype >> sum.ranks >> sum.count >> sum.key;
    sum.codec = &codec_of(spec, parse_data_type(dtype).value());
    sum.name += " " + spec + " " + dtype;
    for (Bytes* part :
         {&sum.values, &sum.scales, &sum.contributions, &sum.sum, &sum.decoded, &sum.average}) {
      fields >> hex;
      *part = read_hex(hex);
    }
    all.push_back(std::move(sum));
  }
  return all;
}

void check_scales(const GoldenSum& golden) {
  const SharedSums& sums = *golden.codec->shared_sums();
  Scales shared(golden.shared().size(), 0);
  for (uint32_t rank = 0; rank < golden.ranks; ++rank) {
    sums.measure(golden.row(rank), golden.count, golden.ranks, {}, shared.data());
  }
  EXPECT_EQ(shared, golden.shared());
}

// Every rank as the owner that adds its values to the others' payloads.
void check_direct(const GoldenSum& golden) {
  const Codec& codec = golden.codec->shared_sums()->contributions(golden.ranks);
  const Codec& gathered = codec.gathered(golden.ranks);
  const Scales shared = golden.shared();
  const size_t sent = codec.wire_bytes(golden.count);
  ASSERT_EQ(sent * golden.ranks, golden.contributions.size());
  ASSERT_EQ(gathered.wire_bytes(golden.count), golden.sum.size());
  for (uint32_t rank = 0; rank < golden.ranks; ++rank) {
    Bytes contribution(sent);
    codec.encode(golden.row(rank), golden.count, contribution.data(), golden.place(shared, rank));
    EXPECT_TRUE(std::equal(contribution.begin(), contribution.end(), golden.contribution(rank)));
    EXPECT_TRUE(codec.check_wire(contribution.data(), golden.count).ok());
  }
  // Where owners add by random numbers of their own, the golden sum is rank 0's.
  const uint32_t owners = golden.codec->shared_sums()->takes_replicas() ? golden.ranks : 1;
  for (uint32_t owner = 0; owner < owners; ++owner) {
    SlicePlace place = golden.place(shared, owner);
    Wires others;
    for (uint32_t rank = 0; rank < golden.ranks; ++rank) {
      if (rank != owner) others.push_back(golden.contribution(rank));
    }
    Bytes sum(golden.sum.size()), values(golden.decoded.size());
    codec.combine(others, golden.row(owner), owner, golden.count,
                  {ReduceOp::kAverage, golden.ranks, golden.ranks}, sum.data(), values.data(),
                  place);
    EXPECT_EQ(sum, golden.sum);
    EXPECT_EQ(values, golden.average);
    place.divisor = golden.ranks;
    gathered.decode(sum.data(), golden.count, values.data(), place);
    EXPECT_EQ(values, golden.average);
    codec.combine(others, golden.row(owner), owner, golden.count, {}, nullptr, values.data(),
                  place);
    EXPECT_EQ(values, golden.decoded);
  }
  EXPECT_TRUE(gathered.check_wire(golden.sum.data(), golden.count).ok());
}

// As a chain: each rank adds its values to what has come, and passes that on.
void check_chain(const GoldenSum& golden) {
  const Codec& codec = golden.codec->shared_sums()->partials(golden.ranks);
  const Scales shared = golden.shared();
  Bytes passed(codec.wire_bytes(golden.count));
  codec.encode(golden.row(0), golden.count, passed.data(), golden.place(shared, 0));
  for (uint32_t rank = 1; rank < golden.ranks; ++rank) {
    const Bytes before = passed;
    const Wires wires = {before.data()};
    codec.combine(wires, golden.row(rank), 0, golden.count, {}, passed.data(), nullptr,
                  golden.place(shared, rank));
  }
  EXPECT_EQ(passed, golden.sum);
  Bytes values(golden.decoded.size());
  codec.decode(passed.data(), golden.count, values.data(), golden.place(shared, 0));
  EXPECT_EQ(values, golden.decoded);
}

TEST(IntegerSums, AreTheGoldenOnesOnEveryInstructionSet) {
  const std::vector<GoldenSum> all = golden_sums();
  ASSERT_GE(all.size(), 119u) << TERSUM_GOLDEN_SUMS;
  for (const GoldenSum& golden : all) {
    for (const std::string& isa : available_isas()) {
      SCOPED_TRACE(golden.name + " " + isa);
      ASSERT_TRUE(force_isa(isa).ok());
      check_scales(golden);
      check_direct(golden);
      if (golden.codec->shared_sums()->takes_partials()) check_chain(golden);
    }
  }
  ASSERT_TRUE(force_isa("").ok());
}

class IntegerSumsOf : public testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Specs, IntegerSumsOf,
                         testing::Values("sum8/64+sr", "sum8/64+hadamard", "sum8/64+hadamard+sr",
                                         "sum8/64+rows:160+hadamard+sr", "sum8/64+rows:40"));

// Slices may be cut at any block, and parts of them decoded, across tiles.
TEST_P(IntegerSumsOf, ACutSliceHasTheSameCodesAndValues) {
  constexpr uint32_t kRanks = 5;
  constexpr size_t kCount = 7013;
  constexpr size_t kCut = 3200;
  const Codec& whole = codec_of(GetParam());
  const Codec& codec = whole.shared_sums()->partials(kRanks);
  const Floats values = normal_floats(kSeed, kCount);
  Scales shared(shared_scale_count(*whole.shared_sums(), kCount), 0);
  whole.shared_sums()->measure(values.data(), kCount, kRanks, {}, shared.data());
  SlicePlace place;
  place.scales = shared.data();
  place.rounding = kSeed;
  Bytes wire(codec.wire_bytes(kCount));
  codec.encode(values.data(), kCount, wire.data(), place);
  Floats back(kCount), parts(kCount);
  codec.decode(wire.data(), kCount, back.data(), place);
  codec.decode_part(wire.data(), {kCount, 0, kCut}, parts.data(), place);
  codec.decode_part(wire.data(), {kCount, kCut, kCount - kCut}, parts.data() + kCut, place);
  EXPECT_EQ(parts, back);
  SlicePlace rest = place;
  rest.first = kCut;
  rest.scales += shared_scale_at(*whole.shared_sums(), kCut);
  Bytes wire_rest(codec.wire_bytes(kCount - kCut));
  codec.encode(values.data() + kCut, kCount - kCut, wire_rest.data(), rest);
  codec.decode(wire_rest.data(), kCount - kCut, parts.data(), rest);
  EXPECT_TRUE(std::equal(back.begin() + kCut, back.end(), parts.begin()));
}

// Of many sums of the same values, each with other keys: chi square of the mean's distance, over
// its degrees of freedom.
double bias_of(const char* spec) {
  constexpr uint32_t kRanks = 4;
  constexpr size_t kCount = 4096;
  constexpr uint64_t kDraws = 1000;
  const SharedSums& sums = *codec_of(spec).shared_sums();
  const Codec& codec = sums.contributions(kRanks);
  std::vector<Floats> ranks;
  Scales shared(shared_scale_count(sums, kCount), 0);
  for (uint32_t rank = 0; rank < kRanks; ++rank) {
    ranks.push_back(normal_floats(kSeed + rank, kCount));
    sums.measure(ranks.back().data(), kCount, kRanks, {}, shared.data());
  }
  std::vector<double> total(kCount), squares(kCount);
  for (uint64_t draw = 0; draw < kDraws; ++draw) {
    std::vector<Bytes> payloads(kRanks, Bytes(codec.wire_bytes(kCount)));
    Wires wires;
    SlicePlace place;
    place.scales = shared.data();
    for (uint32_t rank = 0; rank < kRanks; ++rank) {
      place.rounding = kSeed * 7919 + draw * kRanks + rank;
      codec.encode(ranks[rank].data(), kCount, payloads[rank].data(), place);
      wires.push_back(payloads[rank].data());
    }
    Floats sum(kCount);
    codec.combine(wires, nullptr, 0, kCount, {}, nullptr, sum.data(), place);
    for (size_t i = 0; i < kCount; ++i) {
      double off = sum[i];
      for (const Floats& rank : ranks) off -= double{rank[i]};
      total[i] += off;
      squares[i] += off * off;
    }
  }
  double chi = 0;
  for (size_t i = 0; i < kCount; ++i) chi += total[i] * total[i] / squares[i];
  return chi / kCount;
}

// reference/codecs.md section 3, Global-QSGD: unbiased, chi2/dof 0.99 and 1.02; nearest bias 0.114.
// With a scale to a block, and with one for all values and room for every rank in 8 bits.
TEST(IntegerSums, RoundedAtRandomTheyHaveNoBias) {
  for (const char* spec : {"sum8/256+sr", "sum8:tensor+sr", "sum8/256+hadamard+sr"}) {
    const double bias = bias_of(spec);
    EXPECT_GT(bias, 0.95) << spec << ", seed " << kSeed;
    EXPECT_LT(bias, 1.05) << spec << ", seed " << kSeed;
  }
}

// Rows that blocks do not fill have a scale for what is left, and one for each shorter row.
TEST(IntegerSums, ScalesAreThoseOfRows) {
  struct Shape {
    const char* spec;
    size_t count, scales, at, first;  // at: the scale of the last value; first: under it
  };
  for (const Shape& shape :
       {Shape{"sum8/64", 1000, 16, 15, 960}, Shape{"sum8/64+rows:100", 1000, 20, 19, 964},
        Shape{"sum8/64+rows:100", 950, 19, 18, 900}, Shape{"lut2/32+rows:3", 10, 4, 3, 9},
        Shape{"sum8/32+rows:64", 97, 4, 3, 96}}) {
    SCOPED_TRACE(shape.spec);
    const SharedSums& sums = *codec_of(shape.spec).shared_sums();
    EXPECT_EQ(shared_scale_count(sums, shape.count), shape.scales);
    EXPECT_EQ(shared_scale_at(sums, shape.count - 1), shape.at);
    EXPECT_EQ(first_under_scale(sums, shape.at), shape.first);
  }
  EXPECT_EQ(values_per_scale(*codec_of("sum8/64+rows:100").shared_sums()), 50u);
  EXPECT_EQ(codec_of("sum8/64+rows:100").block(), 100u);
}

TEST(IntegerSums, WideCodesComeBackAtEveryWidth) {
  std::mt19937_64 random(kSeed);
  for (uint32_t bits = WideCodes::kBitsMin; bits <= WideCodes::kBitsMax; ++bits) {
    const WideCodes codes(bits);
    for (const size_t count : {1, 7, 31, 32, 33, 64, 97, 3071, 3072}) {
      std::vector<int32_t> numbers(count);
      const int32_t half = 1 << (bits - 1);
      for (int32_t& number : numbers) {
        number = static_cast<int32_t>(random() % (2 * static_cast<uint64_t>(half))) - half;
      }
      Bytes wire(codes.slice_bytes(count));
      EXPECT_EQ(wire.size(), count + (bits - 8) * (count / 32 * 4 + (count % 32 + 7) / 8));
      codes.write(numbers.data(), 0, count, count, wire.data());
      std::vector<int32_t> twice = numbers;
      codes.add(wire.data(), count, 0, count, twice.data());
      for (size_t i = 0; i < count; ++i) {
        ASSERT_EQ(twice[i], 2 * numbers[i]) << bits << " bits, value " << i << ", seed " << kSeed;
      }
    }
  }
}

// Any bytes at all: sums are taken modulo what the wire holds, and decode to numbers.
TEST(IntegerSums, WhatNoEncoderWritesIsNamedAndAddedAllTheSame) {
  constexpr uint32_t kRanks = 3;
  const SharedSums& sums = *codec_of("sum8/32").shared_sums();
  const Codec& codec = sums.partials(kRanks);
  const size_t count = 40;
  Bytes wire(codec.wire_bytes(count), std::byte{0});
  wire[5] = std::byte{0x7f};
  EXPECT_TRUE(codec.check_wire(wire.data(), count).ok());
  wire[5] = std::byte{0xff};
  wire[count] = std::byte{1U << 5};  // 511
  const Status refused = codec.check_wire(wire.data(), count);
  EXPECT_EQ(refused.message(), "the code of value 5 is 511, which no encoder writes");
  const Bytes ones(wire.size(), std::byte{0xff});
  const Wires wires(40, ones.data());
  const Scales shared = {0x3f80, 0xbf80};  // 1 and -1, which no rank agrees on
  SlicePlace place;
  place.scales = shared.data();
  Floats values(count);
  codec.combine(wires, nullptr, 0, count, {}, wire.data(), values.data(), place);
  EXPECT_EQ(values[0], -40.0F);
  EXPECT_NE(values[32], values[32]);
}

// The largest sums there are: all ranks have the last code everywhere, of the longest blocks.
TEST(IntegerSums, TurningTheLargestSumsBackIsExact) {
  constexpr uint32_t kRanks = 127;
  constexpr size_t kBlock = 1024;
  const SharedSums& sums = *codec_of("sum8/1024+hadamard").shared_sums();
  const Codec& codec = sums.contributions(kRanks);
  Floats spike(kBlock, 0.0F);
  spike[3] = 127.0F * kBlock;
  Scales shared(1, 0);
  sums.measure(spike.data(), kBlock, kRanks, {}, shared.data());
  EXPECT_EQ(shared[0], 0x3f80);  // 1
  SlicePlace place;
  place.scales = shared.data();
  Bytes wire(codec.wire_bytes(kBlock));
  codec.encode(spike.data(), kBlock, wire.data(), place);
  Floats total(kBlock);
  codec.combine(Wires(kRanks, wire.data()), nullptr, 0, kBlock, {}, nullptr, total.data(), place);
  spike[3] *= kRanks;
  EXPECT_EQ(total, spike);
}

// Blocks that cannot raise the scale found so far are not looked at to the end.
TEST(IntegerSums, TheScaleOfACallIsTheLargestOfItsBlocks) {
  constexpr size_t kBlock = 1024;
  constexpr size_t kCount = 200 * kBlock;
  std::mt19937_64 random(kSeed);
  std::normal_distribution<float> bell;
  const SharedSums& sums = *codec_of("sum8:tensor+hadamard").shared_sums();
  for (const float growth : {0.0F, 0.01F, -0.01F}) {
    Floats values(kCount);
    for (size_t i = 0; i < kCount; ++i) {
      const size_t block = i / kBlock;
      values[i] = bell(random) * std::exp(growth * static_cast<float>(block));
    }
    for (const uint32_t ranks : {2U, 5U, 127U}) {
      uint16_t largest = 0;
      for (size_t first = 0; first < kCount; first += kBlock) {
        uint16_t alone = 0;
        sums.measure(values.data() + first, kBlock, ranks, {}, &alone);
        largest = std::max(largest, alone);
      }
      uint16_t shared = 0;
      sums.measure(values.data(), kCount, ranks, {}, &shared);
      EXPECT_EQ(shared, largest) << ranks << " ranks, growth " << growth;
      values[17] = std::numeric_limits<float>::infinity();
      sums.measure(values.data(), kCount, ranks, {}, &shared);
      EXPECT_EQ(shared, 0x7fc0);
      values[17] = 0;
    }
  }
}

// Random codes, and another transform, of whole numbers.
TEST(IntegerSums, WhatIsTurnedBackIsTheTransformOfTheIntegers) {
  constexpr uint32_t kRanks = 127;
  constexpr size_t kBlock = 1024;
  const SharedSums& sums = *codec_of("sum8/1024+hadamard").shared_sums();
  const Codec& codec = sums.contributions(kRanks);
  std::mt19937_64 random(20261124);
  std::normal_distribution<float> bell;
  Floats values(kBlock);
  for (float& value : values) value = bell(random);
  Scales shared(1, 0);
  sums.measure(values.data(), kBlock, kRanks, {}, shared.data());
  SlicePlace place;
  place.scales = shared.data();
  Bytes wire(codec.wire_bytes(kBlock));
  codec.encode(values.data(), kBlock, wire.data(), place);
  ASSERT_EQ(wire.size(), kBlock);
  std::vector<int64_t> turned(kBlock);
  for (size_t i = 0; i < kBlock; ++i) turned[i] = int64_t{kRanks} * static_cast<int8_t>(wire[i]);
  for (size_t step = 1; step < kBlock; step *= 2) {
    for (size_t i = 0; i < kBlock; ++i) {
      if ((i & step) != 0) continue;
      const int64_t first = turned[i];
      turned[i] = first + turned[i + step];
      turned[i + step] = first - turned[i + step];
    }
  }
  Floats total(kBlock);
  codec.combine(Wires(kRanks, wire.data()), nullptr, 0, kBlock, {}, nullptr, total.data(), place);
  const double scale = static_cast<double>(bf16_to_float(shared[0]));
  for (size_t i = 0; i < kBlock; ++i) {
    const auto sign = static_cast<double>(hadamard_signs(kBlock).undo[i]);
    const double exact = static_cast<double>(turned[i]) * sign * scale;
    ASSERT_EQ(total[i], static_cast<float>(exact)) << i;
  }
}

// A residual may take values beyond their type where their transform is not: they are lost all the
// same, with their block.
TEST(IntegerSums, WhatAResidualTakesBeyondTheTypeIsLostWithItsBlock) {
  constexpr size_t kCount = 64;
  const std::vector<uint16_t> values(kCount, 0x7bff);  // 65,504
  std::vector<uint16_t> residual(kCount, 0);
  residual[40] = 0x7bff;
  const Codec& codec = codec_of("sum8/32+hadamard", DataType::kFloat16);
  SlicePlace place;
  place.added.residual = residual.data();
  Scales shared(2, 0);
  codec.shared_sums()->measure(values.data(), kCount, 2, place, shared.data());
  EXPECT_LT(shared[0], 0x7f80);
  EXPECT_EQ(shared[1], 0x7fc0);
}

TEST(IntegerSums, TakeUpTo127RanksAndThreeModifiers) {
  EXPECT_EQ(codec_of("sum8").spec().to_string(), "sum8/256");
  EXPECT_EQ(codec_of("sum8").shared_sums()->refusal(127), "");
  EXPECT_NE(codec_of("sum8").shared_sums()->refusal(128), "");
  EXPECT_EQ(codec_of("int8").shared_sums(), nullptr);
  EXPECT_TRUE(codec_of("sum8+sr").is_random());
  EXPECT_EQ(codec_of("sum8:tensor+sr+hadamard").spec().to_string(), "sum8:tensor/1024+hadamard+sr");
  for (const char* modifier :
       {"flatten", "sparse:1%", "feedback", "mixed", "adaptive", "shiftadd", "floor", "hops"}) {
    const auto found =
        find_codec("sum8+" + std::string(modifier), DataType::kFloat32, ReduceOp::kSum);
    ASSERT_FALSE(found.ok()) << modifier;
    EXPECT_NE(found.status().message().find("is refused: "), std::string::npos) << modifier;
  }
}

}  // namespace
}  // namespace tersum
