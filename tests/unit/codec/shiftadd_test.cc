// Sums with +shiftadd: exact, and the same for every order of the contributions and every owner.
#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "codec/codec.h"
#include "codec/element_formats.h"
#include "codec/kernels/dispatch.h"
#include "codec/kernels/shift_sum.h"
#include "nasty_values.h"

namespace tersum {
namespace {

using Bytes = std::vector<std::byte>;
using Floats = std::vector<float>;

constexpr uint64_t kSeed = 20261122;

const Codec& codec_of(const std::string& spec, DataType type = DataType::kFloat32) {
  return *find_codec(spec, type, ReduceOp::kSum).value();
}

Bytes encode(const Codec& codec, const Floats& values) {
  Bytes wire(codec.wire_bytes(values.size()));
  codec.encode(values.data(), values.size(), wire.data());
  return wire;
}

Floats decode(const Codec& codec, const Bytes& wire, size_t count) {
  Floats values(count);
  codec.decode(wire.data(), count, values.data());
  return values;
}

// Normal values, each block of 32 with an exponent of its own on every rank: -8 to 8.
std::vector<Floats> mixed_ranks(size_t ranks, size_t count, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::normal_distribution<float> normal;
  std::vector<Floats> all(ranks, Floats(count));
  for (Floats& values : all) {
    int exponent = 0;
    for (size_t i = 0; i < count; ++i) {
      if (i % 32 == 0) exponent = static_cast<int>(random() % 17) - 8;
      values[i] = std::ldexp(normal(random), exponent);
    }
  }
  return all;
}

// The sum when the ranks come in `order` and number `owner` of them adds its values as `own`.
Floats sum_in_order(const Codec& codec, const std::vector<Floats>& ranks,
                    const std::vector<Bytes>& wires, const std::vector<size_t>& order,
                    size_t owner) {
  std::vector<const std::byte*> others;
  for (size_t i = 0; i < order.size(); ++i) {
    if (i != owner) others.push_back(wires[order[i]].data());
  }
  const Floats& own = ranks[order[owner]];
  Floats sum(own.size());
  codec.combine(others, own.data(), owner, own.size(), {}, nullptr, sum.data());
  return sum;
}

size_t differing(const Floats& a, const Floats& b) {
  size_t count = 0;
  for (size_t i = 0; i < a.size(); ++i) count += float_bits(a[i]) != float_bits(b[i]) ? 1 : 0;
  return count;
}

struct Permuted {
  size_t sums = 0;
  size_t differing = 0;
};

Permuted permute(const std::string& spec) {
  constexpr size_t kRanks = 16;
  constexpr size_t kValues = 4096;
  const Codec& codec = codec_of(spec);
  const std::vector<Floats> ranks = mixed_ranks(kRanks, kValues, kSeed);
  std::vector<Bytes> wires;
  for (const Floats& values : ranks) wires.push_back(encode(codec, values));
  std::vector<size_t> order(kRanks);
  std::iota(order.begin(), order.end(), size_t{0});
  const Floats first = sum_in_order(codec, ranks, wires, order, 0);
  std::mt19937_64 random(kSeed);
  Permuted result;
  for (int round = 0; round < 50; ++round) {
    std::shuffle(order.begin(), order.end(), random);
    const size_t owner = random() % kRanks;
    result.sums += kValues;
    result.differing += differing(sum_in_order(codec, ranks, wires, order, owner), first);
  }
  return result;
}

// reference/codecs.md section 3, MixPE: 0 differing sums over 196,608 with shifts and adds at
// R = 16, and 48 of 64 thousand between two orders of a float32 sum.
TEST(ShiftAdd, NoSumDependsOnTheOrderOfTheRanks) {
  for (const char* spec : {"mxint8+shiftadd", "shiftadd/32", "int4/32+shiftadd+hadamard"}) {
    const Permuted shifted = permute(spec);
    EXPECT_GE(shifted.sums, 200'000u);
    EXPECT_EQ(shifted.differing, 0u) << spec << ", seed " << kSeed;
  }
  const Permuted floats = permute("mxint8");
  EXPECT_GT(floats.differing, floats.sums / 2) << "float32 sums of the same, seed " << kSeed;
}

// As many orders, of one block of which no two ranks have values of one size: each has a power of
// two of its own, and those below the unit are rounded.
TEST(ShiftAdd, TwoHundredThousandOrdersGiveOneSum) {
  constexpr size_t kRanks = 16;
  constexpr size_t kValues = 32;
  constexpr int kOrders = 200'000;
  const Codec& codec = codec_of("int8/32+shiftadd");
  std::vector<Floats> ranks = mixed_ranks(kRanks, kValues, kSeed);
  std::vector<Bytes> wires;
  for (size_t r = 0; r < kRanks; ++r) {
    for (float& value : ranks[r]) value = std::ldexp(value, static_cast<int>(2 * r));
    wires.push_back(encode(codec, ranks[r]));
  }
  std::vector<size_t> order(kRanks);
  std::iota(order.begin(), order.end(), size_t{0});
  const Floats first = sum_in_order(codec, ranks, wires, order, 0);
  std::mt19937_64 random(kSeed);
  size_t other_sums = 0;
  for (int i = 0; i < kOrders; ++i) {
    std::shuffle(order.begin(), order.end(), random);
    other_sums += differing(sum_in_order(codec, ranks, wires, order, random() % kRanks), first);
  }
  EXPECT_EQ(other_sums, 0u) << "of " << kOrders << " orders of " << kValues << " sums, seed "
                            << kSeed;
}

// What the decoded values add up to, rounded once: in float64 where it is exact, with exponents
// that are no more than the bound apart.
TEST(ShiftAdd, ASumIsTheExactOneRoundedOnce) {
  for (const std::string spec : {"mxint8", "int8/64", "int5/32", "int2/32"}) {
    const Codec& codec = codec_of(spec + "+shiftadd");
    const std::vector<Floats> ranks = mixed_ranks(9, 5003, kSeed);
    std::vector<Bytes> wires;
    std::vector<const std::byte*> pointers;
    std::vector<double> exact(5003, 0.0);
    for (const Floats& values : ranks) {
      wires.push_back(encode(codec, values));
      const Floats back = decode(codec, wires.back(), values.size());
      for (size_t i = 0; i < exact.size(); ++i) exact[i] += double{back[i]};
    }
    for (const Bytes& wire : wires) pointers.push_back(wire.data());
    Floats sum(exact.size());
    Floats mean(exact.size());
    codec.combine(pointers, nullptr, 0, sum.size(), {}, nullptr, sum.data());
    codec.combine(pointers, nullptr, 0, sum.size(), {ReduceOp::kAverage, 9}, nullptr, mean.data());
    for (size_t i = 0; i < sum.size(); ++i) {
      ASSERT_EQ(sum[i], static_cast<float>(exact[i])) << spec << " value " << i;
      ASSERT_EQ(mean[i], sum[i] / 9.0F) << spec << " value " << i;
    }
  }
}

// One value of 1 in a block of zeros beside a block whose unit is far above it: 16 codes under
// shifts of at most 20 bits leave 2^(top - 20).
TEST(ShiftAdd, BelowTheUnitACodeIsRoundedOnItsOwn) {
  const Codec& codec = codec_of("int8/32+shiftadd");
  const auto sum_of = [&](float small) {
    std::vector<Bytes> wires;
    Floats large(32, 0.0F);
    large[0] = 127;  // code 127 under 2^0
    Floats tiny(32, 0.0F);
    tiny[1] = small;
    wires.push_back(encode(codec, large));
    for (int i = 0; i < 15; ++i) wires.push_back(encode(codec, tiny));
    std::vector<const std::byte*> pointers;
    for (const Bytes& wire : wires) pointers.push_back(wire.data());
    Floats sum(32);
    codec.combine(pointers, nullptr, 0, 32, {}, nullptr, sum.data());
    EXPECT_EQ(sum[0], 127.0F);
    return sum[1];
  };
  const float unit = 0x1p-20F;
  EXPECT_EQ(sum_of(127 * unit), 15 * 127 * unit);
  EXPECT_EQ(sum_of(127 * unit / 2), 15 * 64 * unit) << "63.5 units, a tie: to the even 64";
  EXPECT_EQ(sum_of(-125 * unit / 2), 15 * -62 * unit) << "-62.5 units, a tie: to the even -62";
  EXPECT_EQ(sum_of(127 * unit / 128), 15 * unit);
  EXPECT_EQ(sum_of(127 * unit / 256), 0.0F);
  EXPECT_EQ(sum_of(0x1p-120F), 0.0F);
}

TEST(ShiftAdd, ABlockWithoutANumberIsNaNForEverybody) {
  for (const float lost : {NAN, INFINITY, -INFINITY}) {
    for (const bool own_lost : {false, true}) {
      const Codec& codec = codec_of("mxint8+shiftadd");
      std::vector<Floats> ranks = mixed_ranks(3, 100, kSeed);
      ranks[own_lost ? 0 : 2][40] = lost;
      const std::vector<Bytes> wires = {encode(codec, ranks[1]), encode(codec, ranks[2])};
      const std::byte* const pointers[] = {wires[0].data(), wires[1].data()};
      Bytes wire(codec.wire_bytes(100));
      Floats sum(100);
      codec.combine(pointers, ranks[0].data(), 0, 100, {}, wire.data(), sum.data());
      for (size_t i = 0; i < 100; ++i) EXPECT_EQ(std::isnan(sum[i]), i / 32 == 1) << i;
      EXPECT_EQ(wire[1], std::byte{0xff});
      codec.combine(pointers, ranks[0].data(), 0, 100, {}, nullptr, sum.data());
      for (size_t i = 0; i < 100; ++i) EXPECT_EQ(std::isnan(sum[i]), i / 32 == 1) << i;
    }
  }
}

// The most that the accumulator can hold: every contribution the least code there is, one of them
// under the top shift of all the others.
TEST(ShiftAdd, TheAccumulatorHoldsWhatTheBoundPromises) {
  for (const uint32_t bits : {8U, 2U}) {
    for (const size_t contributions : {1U, 2U, 3U, 16U, 17U, 256U}) {
      ElementFormat format = bits == 8 ? integer_format<8>() : integer_format<2>();
      format.rule = ScaleRule::kE8M0Up;
      format.block = 32;
      complete_format(format);
      const std::vector<uint8_t> codes(kTileMemory, static_cast<uint8_t>(1U << (bits - 1)));
      constexpr std::byte kOne{127};
      for (const int64_t target : available_targets()) {
        ShiftSum sum(format, element_kernels_of(target), contributions);
        sum.begin(32);
        for (size_t i = 0; i < contributions; ++i) sum.align(&kOne);
        for (size_t i = 0; i < contributions; ++i) sum.add(codes.data(), &kOne);
        alignas(64) float tile[kTileMemory];
        sum.finish(tile);
        const auto expected =
            -std::ldexp(static_cast<float>(contributions), static_cast<int>(bits) - 1);
        EXPECT_EQ(std::vector<float>(tile, tile + 32), std::vector<float>(32, expected))
            << bits << " bits, " << contributions << " of them, " << target_name(target);
      }
    }
  }
}

RC_GTEST_PROP(ShiftAdd, permutations_and_instruction_sets_agree_on_any_bytes, ()) {
  const auto* const base =
      *rc::gen::element("int8/32", "int7/64", "int4/32", "int3/128", "int2/32", "mxint8",
                        "mxint8+floor", "int6/128+hadamard", "int8/32+rows:77");
  const DataType type =
      *rc::gen::element(DataType::kFloat32, DataType::kBFloat16, DataType::kFloat16);
  const Codec& codec = codec_of(std::string(base) + "+shiftadd", type);
  const auto count = *rc::gen::inRange<size_t>(1, 4000);
  const auto ranks = *rc::gen::inRange<size_t>(2, 20);
  const auto seed = *rc::gen::arbitrary<uint64_t>();
  std::mt19937_64 random(seed);
  std::vector<Bytes> values;
  std::vector<Bytes> wires;
  for (size_t r = 0; r < ranks; ++r) {
    values.push_back(nasty_elements(seed + r, count, type));
    wires.emplace_back(codec.wire_bytes(count));
    codec.encode(values.back().data(), count, wires.back().data());
    if (r == 0 || random() % 3 != 0) continue;
    for (std::byte& byte : wires.back()) byte = static_cast<std::byte>(random());
  }
  const CombineFinish finish{ReduceOp::kAverage, static_cast<uint32_t>(ranks)};
  Bytes first;
  std::vector<size_t> order(ranks);
  std::iota(order.begin(), order.end(), size_t{0});
  for (const int64_t target : available_targets()) {
    RC_LOG() << codec.spec().to_string() << ", " << std::string(target_name(target)) << ", seed "
             << seed << "\n";
    force_target(target);
    // Rank 0 owns the chunk, wherever it stands in the order.
    std::shuffle(order.begin(), order.end(), random);
    std::vector<const std::byte*> others;
    size_t own_index = 0;
    for (size_t i = 0; i < ranks; ++i) {
      if (order[i] == 0) own_index = i;
      if (order[i] != 0) others.push_back(wires[order[i]].data());
    }
    Bytes wire(codec.wire_bytes(count));
    Bytes coded(values[0].size());
    Bytes plain(values[0].size());
    codec.combine(others, values[0].data(), own_index, count, finish, wire.data(), coded.data());
    codec.combine(others, values[0].data(), own_index, count, finish, nullptr, plain.data());
    Bytes all = wire;
    all.insert(all.end(), coded.begin(), coded.end());
    all.insert(all.end(), plain.begin(), plain.end());
    // A wire in place of the own values, as in one_shot.
    std::vector<const std::byte*> wires_only;
    for (const Bytes& each : wires) wires_only.push_back(each.data());
    codec.combine(wires_only, nullptr, 0, count, finish, wire.data(), coded.data());
    codec.combine(wires_only, nullptr, 0, count, finish, nullptr, plain.data());
    Bytes again = wire;
    again.insert(again.end(), coded.begin(), coded.end());
    again.insert(again.end(), plain.begin(), plain.end());
    RC_ASSERT(again == all);
    if (first.empty()) first = all;
    RC_ASSERT(all == first);
  }
  unforce_target();
}

}  // namespace
}  // namespace tersum
