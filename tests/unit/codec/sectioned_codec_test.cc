// The modifiers +mixed and +adaptive: lengths that the data do not change, errors that they only
// lower, and layouts that no encoder writes. element_codec_test, codec_bound_test and
// decode_past_cache_test draw specs with them, too.
#include "codec/sectioned_codec.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "codec/kernels/block_cuts.h"
#include "codec/kernels/numbers.h"
#include "nasty_values.h"
#include "tersum/codec_info.h"
#include "tersum/codec_payload.h"

namespace tersum {
namespace {

using Bytes = std::vector<std::byte>;
using testing::HasSubstr;

const Codec& codec_of(const std::string& spec) {
  return *find_codec(spec, DataType::kFloat32, ReduceOp::kSum).value();
}

std::vector<float> coded(const Codec& codec, const std::vector<float>& values) {
  Bytes wire(codec.wire_bytes(values.size()));
  codec.encode(values.data(), values.size(), wire.data());
  std::vector<float> back(values.size());
  codec.decode(wire.data(), back.size(), back.data());
  return back;
}

double squared_error(const std::vector<float>& a, const std::vector<float>& b) {
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) sum += std::pow(double{a[i]} - double{b[i]}, 2);
  return sum;
}

RC_GTEST_PROP(MixedCodec, never_loses_more_than_its_format_alone, ()) {
  const auto seed = *rc::gen::arbitrary<uint64_t>();
  const auto count = *rc::gen::inRange<size_t>(1, 70'000);
  const auto spec = *rc::gen::element<std::string>("int3/32", "int4/128", "int7/64",
                                                   "int5/32+hadamard", "int4/1024");
  RC_LOG() << spec << ", " << count << " values, seed " << seed << "\n";
  const std::vector<float> values = nasty_floats(seed, count, 6);
  const double plain = squared_error(values, coded(codec_of(spec), values));
  const double mixed = squared_error(values, coded(codec_of(spec + "+mixed"), values));
  RC_ASSERT(mixed <= plain * (1 + 1e-9));
}

TEST(MixedCodec, HasTheLengthOfItsFormatAndTheMap) {
  const Codec& mixed = codec_of("int4/64+mixed");
  const Codec& plain = codec_of("int4/64");
  for (const size_t count : {0, 1, 63, 64, 65, 1000, 65'536}) {
    const size_t blocks = (count + 63) / 64;
    EXPECT_EQ(mixed.wire_bytes(count), plain.wire_bytes(count) + (blocks + 3) / 4) << count;
  }
  EXPECT_EQ(mixed.wire_bytes(65'536 + 1), mixed.wire_bytes(65'536) + mixed.wire_bytes(1));
  EXPECT_DOUBLE_EQ(codec_info("int4/128+mixed")->wire_bits, 4 + 18.0 / 128);
}

TEST(MixedCodec, GivesTheBitsOfSmallBlocksToLargeOnes) {
  // Half of the blocks are a thousand times as large: 5 bits there, 3 elsewhere.
  std::mt19937_64 random(3);
  std::normal_distribution<float> normal;
  std::vector<float> values(8192);
  for (size_t i = 0; i < values.size(); ++i) {
    values[i] = normal(random) * (i / 64 % 2 == 0 ? 1000.0F : 1.0F);
  }
  const double plain = squared_error(values, coded(codec_of("int4/64"), values));
  const double wide = squared_error(values, coded(codec_of("int5/64"), values));
  const double mixed = squared_error(values, coded(codec_of("int4/64+mixed"), values));
  EXPECT_LT(mixed, 1.01 * wide);
  EXPECT_LT(mixed, 0.25 * plain);
}

TEST(MixedCodec, MapsThatNoEncoderWritesGiveNaNAndAreRefused) {
  const std::string spec = "int4/32+mixed";
  const std::vector<float> values(100, 1.5F);  // 3 blocks and a short one: a byte of map
  const Codec& codec = codec_of(spec);
  Bytes wire(codec.wire_bytes(values.size()));
  codec.encode(values.data(), values.size(), wire.data());
  for (int map = 0; map < 256; ++map) {
    wire[0] = static_cast<std::byte>(map);
    int changes[4] = {};
    for (int b = 0; b < 4; ++b) ++changes[map >> (2 * b) & 3];
    const bool good = changes[1] == changes[2] && changes[3] == 0 && map < 64;
    std::vector<float> out(values.size(), 7);
    const Status status = decode_payload(spec, DataType::kFloat32, wire, out.size(), out.data());
    if (good && map == 0) {
      EXPECT_TRUE(status.ok()) << status.to_string();
    }
    if (good) continue;
    EXPECT_THAT(status.message(), HasSubstr("section 0 of the slice: its map")) << map;
    codec.decode(wire.data(), out.size(), out.data());
    for (const float x : out) EXPECT_TRUE(std::isnan(x)) << map;
  }
}

// Every cell in one block, blocks aligned and whole, as many as wanted, and back from the bits.
RC_GTEST_PROP(BlockCuts, are_a_partition_and_come_back, ()) {
  const auto seed = *rc::gen::arbitrary<uint64_t>();
  const auto count = *rc::gen::oneOf(rc::gen::inRange<size_t>(1, 3000),
                                     rc::gen::inRange<size_t>(1, kLayoutValues + 1));
  const size_t all = (count + kCell - 1) / kCell;
  const auto blocks = *rc::gen::inRange<size_t>(fewest_blocks(count), all + 1);
  std::mt19937_64 random(seed);
  std::vector<uint32_t> absmax(all);
  for (uint32_t& bits : absmax) bits = static_cast<uint32_t>(random()) & 0x7fffffffU;
  const auto scratch = std::make_unique<CutScratch>();
  std::vector<uint8_t> cells(all);
  choose_cuts(absmax.data(), count, blocks, *scratch, cells.data());
  size_t found = 0;
  for (size_t cell = 0; cell < all; ++found) {
    const size_t size = cells[cell];
    RC_ASSERT(size >= 1 && size <= kCellsInBlockMax && (size & (size - 1)) == 0);
    RC_ASSERT(cell % size == 0);
    RC_ASSERT(size == 1 || (cell + size) * kCell <= count);
    for (size_t i = 1; i < size; ++i) RC_ASSERT(cells[cell + i] == 0);
    cell += size;
  }
  RC_ASSERT(found == blocks);
  std::vector<std::byte> bits((blocks + 3) / 4 + 1, std::byte{0xa5});
  write_cuts(cells.data(), count, blocks, bits.data());
  RC_ASSERT(bits.back() == std::byte{0xa5});
  std::vector<uint8_t> back(all);
  RC_ASSERT(read_cuts(bits.data(), count, blocks, back.data()));
  RC_ASSERT(back == cells);
  if (blocks < all) RC_ASSERT(!read_cuts(bits.data(), count, blocks + 1, back.data()));
}

// As docs/codecs.md says it: of all halves that are blocks, those that cost the least become one.
std::vector<uint8_t> cut_step_by_step(const std::vector<float>& magnitudes, size_t count,
                                      size_t blocks) {
  std::vector<float> absmax = magnitudes;
  std::vector<uint8_t> cells(absmax.size(), 1);
  for (size_t left = cells.size(); left > blocks; --left) {
    double least = 0;
    size_t found = cells.size();
    for (size_t first = 0; first < cells.size(); ++first) {
      const size_t half = cells[first];
      const bool fits = half > 0 && half < kCellsInBlockMax && first % (2 * half) == 0 &&
                        (first + 2 * half) * kCell <= count && cells[first + half] == half;
      if (!fits) continue;
      const double p = std::max(absmax[first], absmax[first + half]);
      const double q = std::min(absmax[first], absmax[first + half]);
      const double cost = p == q ? 0 : static_cast<double>(half) * (p * p - q * q);
      if (found < cells.size() && cost >= least) continue;
      least = cost;
      found = first;
    }
    const size_t half = cells[found];
    absmax[found] = std::max(absmax[found], absmax[found + half]);
    cells[found + half] = 0;
    cells[found] = static_cast<uint8_t>(2 * half);
  }
  return cells;
}

RC_GTEST_PROP(BlockCuts, are_those_of_the_cheapest_merges, ()) {
  const auto seed = *rc::gen::arbitrary<uint64_t>();
  const auto count = *rc::gen::inRange<size_t>(1, 8000);
  const auto kind = *rc::gen::inRange(0, 4);
  const size_t all = (count + kCell - 1) / kCell;
  const auto blocks = *rc::gen::inRange<size_t>(fewest_blocks(count), all + 1);
  std::mt19937_64 random(seed);
  std::normal_distribution<float> normal;
  // All different; over many powers of two; few different ones, so that merges cost the same; some
  // infinite.
  const auto draw = [&] {
    const float any = std::abs(normal(random));
    if (kind == 1) return std::exp(8 * any);
    if (kind == 2) return static_cast<float>(random() % 3);
    return kind == 3 && random() % 10 == 0 ? std::numeric_limits<float>::infinity() : any;
  };
  std::vector<float> magnitudes(all);
  std::generate(magnitudes.begin(), magnitudes.end(), draw);
  std::vector<uint32_t> bits(all);
  std::transform(magnitudes.begin(), magnitudes.end(), bits.begin(), float_bits);
  const auto scratch = std::make_unique<CutScratch>();
  std::vector<uint8_t> cells(all);
  choose_cuts(bits.data(), count, blocks, *scratch, cells.data());
  RC_ASSERT(cells == cut_step_by_step(magnitudes, count, blocks));
}

RC_GTEST_PROP(BlockCuts, of_noise_never_reach_beyond_the_section, ()) {
  const auto seed = *rc::gen::arbitrary<uint64_t>();
  const auto count = *rc::gen::inRange<size_t>(1, 5000);
  const size_t all = (count + kCell - 1) / kCell;
  const auto blocks = *rc::gen::inRange<size_t>(fewest_blocks(count), all + 1);
  std::mt19937_64 random(seed);
  std::vector<std::byte> bits((blocks + 3) / 4);
  for (std::byte& byte : bits) byte = static_cast<std::byte>(random());
  std::vector<uint8_t> cells(all);
  if (!read_cuts(bits.data(), count, blocks, cells.data())) return;
  RC_ASSERT(std::accumulate(cells.begin(), cells.end(), size_t{0}) == all);
}

// 18 bits for each block of the spec pay for an exponent to 1,024 values and 10 bits to a block.
TEST(AdaptiveCodec, TakesNoMoreThanScalesOfTwoBytesAndTheirCuts) {
  const Codec& adaptive = codec_of("int4/128+adaptive");
  const Codec& plain = codec_of("int4/128");
  for (const size_t count : {0, 1024, 2048, 65'536}) {
    EXPECT_EQ(adaptive.wire_bytes(count), plain.wire_bytes(count) + (count / 128 + 3) / 4) << count;
  }
  // 96 values are at least 2 blocks, 97 have a short one beside them.
  EXPECT_EQ(adaptive.wire_bytes(97), size_t{1 + 1 + 3 + 49});
  // Never more blocks than cells: 28 of 32, but 2 of 2.
  EXPECT_EQ(codec_of("int4/64+adaptive").wire_bytes(1024), size_t{1 + 7 + 28 + 512});
  EXPECT_EQ(codec_of("int4/64+adaptive").wire_bytes(33), size_t{1 + 1 + 2 + 17});
  EXPECT_LE(codec_info("int4/128+adaptive")->wire_bits, 4.15);
}

TEST(AdaptiveCodec, OutliersLeaveOtherBlocksOf1024TheirScales) {
  // 2^40 beside 1: within one exponent's reach of 16 octaves the small blocks are lost, no further.
  std::vector<float> values(4096);
  for (size_t i = 0; i < values.size(); ++i) values[i] = i % 2 == 0 ? 1.0F : -0.5F;
  values[100] = 0x1p40F;
  const std::vector<float> back = coded(codec_of("int4/64+adaptive"), values);
  for (size_t i = 1024; i < values.size(); ++i) EXPECT_NEAR(back[i], values[i], 0.08) << i;
  for (size_t i = 128; i < 1024; ++i) EXPECT_EQ(back[i], 0) << i;
}

TEST(AdaptiveCodec, ConfinesOutliersWhereBlocksOfOneSizeDoNot) {
  std::mt19937_64 random(5);
  std::normal_distribution<float> normal;
  std::vector<float> values(32'768);
  for (float& x : values) x = normal(random);
  for (size_t i = 500; i < values.size(); i += 1024) values[i] = 100;
  const auto error_of = [&](const char* spec) {
    return std::sqrt(squared_error(values, coded(codec_of(spec), values)));
  };
  EXPECT_LT(error_of("int4/128+adaptive"), 0.6 * error_of("int4/128"));
  EXPECT_LT(error_of("int4/128+adaptive"), 1.1 * error_of("int4/32"));
}

TEST(AdaptiveCodec, WhatIsNoNumberTakesAsFewOthersWithItAsTheBudgetAllows) {
  std::vector<float> values(2048, 1.0F);
  values[700] = NAN;
  const std::vector<float> back = coded(codec_of("int4/64+adaptive"), values);
  for (size_t i = 0; i < values.size(); ++i)
    EXPECT_EQ(std::isnan(back[i]), i / 32 == 700 / 32) << i;
}

TEST(AdaptiveCodec, CutsThatNoEncoderWritesGiveNaNAndAreRefused) {
  const std::string spec = "int4/64+adaptive";
  const std::vector<float> values(2048, 1.5F);
  const Codec& codec = codec_of(spec);
  Bytes wire(codec.wire_bytes(values.size()));
  codec.encode(values.data(), values.size(), wire.data());
  for (const std::byte all : {std::byte{0}, std::byte{0xff}}) {
    std::fill_n(wire.begin() + 2, 14, all);  // behind two exponents
    std::vector<float> out(values.size(), 7);
    const Status status = decode_payload(spec, DataType::kFloat32, wire, out.size(), out.data());
    EXPECT_THAT(status.message(), HasSubstr("its cuts do not make 56 blocks"));
    codec.decode(wire.data(), out.size(), out.data());
    for (const float x : out) EXPECT_TRUE(std::isnan(x));
  }
}

}  // namespace
}  // namespace tersum
