// +flatten: codecs with channel factors give the bits of +hadamard on values that were multiplied
// by them, wherever the slice lies; and what ChannelState learns.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "codec/channel_state.h"
#include "codec/codec.h"
#include "codec/outlier_places.h"
#include "coded_slices.h"

namespace tersum {
namespace {

using Floats = std::vector<float>;
using Bytes = std::vector<std::byte>;

constexpr uint64_t kSeed = 4711;

const Codec& codec_of(const std::string& spec, DataType type = DataType::kFloat32) {
  const Result<const Codec*> found = find_codec(spec, type, ReduceOp::kSum);
  EXPECT_TRUE(found.ok()) << spec;
  return *found.value();
}

Floats normal_values(size_t count, uint64_t seed, size_t channels = 1) {
  std::mt19937_64 random(seed);
  std::normal_distribution<float> normal;
  Floats values(count);
  for (size_t i = 0; i < count; ++i) {
    const auto channel = static_cast<float>(i % channels);
    values[i] = normal(random) * (1 + channel * channel);
  }
  return values;
}

ChannelState learned(size_t channels) {
  ChannelState state(channels);
  const Floats sums = normal_values(64 * channels, kSeed, channels);
  state.observe(sums.data(), sums.size(), DataType::kFloat32, 1);
  return state;
}

Floats multiplied(Floats values, const float* factors, size_t channels, size_t first) {
  for (size_t i = 0; i < values.size(); ++i) values[i] *= factors[(first + i) % channels];
  return values;
}

class FlattenedCodec : public testing::TestWithParam<const char*> {};

TEST_P(FlattenedCodec, IsHadamardOfMultipliedValues) {
  const Codec& flat = codec_of(std::string(GetParam()) + "+flatten");
  const Codec& rotated = codec_of(std::string(GetParam()) + "+hadamard");
  ASSERT_TRUE(flat.flattens());
  for (const size_t channels : {2, 37, 384, 5000}) {
    const ChannelState state = learned(channels);
    ASSERT_NE(state.factors(), nullptr);
    for (const size_t first : {0, 96, 3072, 999'936}) {
      for (const size_t count : {1, 31, 128, 3072, 7001}) {
        const SlicePlace place{first, state.factors()};
        const Floats values = normal_values(count, kSeed + count);
        const Bytes wire = encode(flat, values, place);
        const ChannelFactors& factors = *state.factors();
        EXPECT_EQ(wire, encode(rotated, multiplied(values, factors.forward, channels, first)))
            << channels << " channels, " << count << " values from " << first;
        const Floats back = decode(flat, wire, count, place);
        EXPECT_EQ(back, multiplied(decode(rotated, wire, count), factors.undo, channels, first));
      }
    }
  }
}

TEST_P(FlattenedCodec, DecodesPartsAsTheWhole) {
  const Codec& flat = codec_of(std::string(GetParam()) + "+flatten");
  const ChannelState state = learned(77);
  const SlicePlace place{flat.block() * size_t{5}, state.factors()};
  const Floats values = normal_values(10'000, kSeed);
  const Bytes wire = encode(flat, values, place);
  const Floats whole = decode(flat, wire, values.size(), place);
  Floats parts(values.size());
  const size_t step = 3072 / flat.block() * flat.block();
  for (size_t at = 0; at < values.size(); at += step) {
    const size_t part = std::min(step, values.size() - at);
    flat.decode_part(wire.data(), {values.size(), at, part}, parts.data() + at, place);
  }
  EXPECT_EQ(parts, whole);
}

TEST_P(FlattenedCodec, SumsAreThoseOfTheirDecodings) {
  const Codec& flat = codec_of(std::string(GetParam()) + "+flatten");
  constexpr size_t kCount = 5000;
  constexpr size_t kChannels = 50;
  const ChannelState state = learned(kChannels);
  const SlicePlace place{flat.block() * size_t{3}, state.factors()};
  const Floats own = normal_values(kCount, 1);
  std::vector<Bytes> wires;
  std::vector<const std::byte*> pointers;
  std::vector<double> exact(own.begin(), own.end());
  double largest = 0;
  for (uint64_t peer = 0; peer < 3; ++peer) {
    wires.push_back(encode(flat, normal_values(kCount, peer + 2), place));
    const Floats decoded = decode(flat, wires.back(), kCount, place);
    for (size_t i = 0; i < kCount; ++i) exact[i] += decoded[i];
  }
  for (const Bytes& wire : wires) pointers.push_back(wire.data());
  for (const double sum : exact) largest = std::max(largest, std::abs(sum));
  Floats sum(kCount);
  flat.combine(pointers, own.data(), 1, kCount, {}, nullptr, sum.data(), place);
  for (size_t i = 0; i < kCount; ++i) EXPECT_NEAR(sum[i], exact[i], 2e-5 * largest) << i;
  Bytes out(flat.wire_bytes(kCount));
  Floats seen(kCount);
  flat.combine(pointers, own.data(), 1, kCount, {}, out.data(), seen.data(), place);
  EXPECT_EQ(seen, decode(flat, out, kCount, place));
}

INSTANTIATE_TEST_SUITE_P(Formats, FlattenedCodec,
                         testing::Values("int8/128", "int6/1024", "int4/32", "five/32", "nf4/64",
                                         "mxfp8:e4m3", "nvfp4", "int1/32"));

TEST(FlattenedCodecs, WithoutFactorsTheyAreHadamard) {
  const Floats values = normal_values(1000, kSeed);
  EXPECT_EQ(encode(codec_of("int6/128+flatten"), values),
            encode(codec_of("int6/128+hadamard"), values));
}

TEST(FlattenedCodecs, HugeValuesDoNotBecomeInfinite) {
  const ChannelState state = learned(96);
  for (const char* const spec : {"int8/128+flatten", "mxfp8:e5m2+flatten", "nvfp4+flatten"}) {
    const Codec& codec = codec_of(spec);
    Floats values(960, std::numeric_limits<float>::max());
    for (size_t i = 0; i < values.size(); i += 3) values[i] = -values[i];
    const SlicePlace place{0, state.factors()};
    for (const float back : decode(codec, encode(codec, values, place), values.size(), place)) {
      EXPECT_TRUE(std::isfinite(back)) << spec;
    }
  }
}

TEST(ChannelState, NeedsSixteenRows) {
  ChannelState state(10);
  const Floats rows = normal_values(150, kSeed, 10);
  state.observe(rows.data(), 150, DataType::kFloat32, 1);
  EXPECT_EQ(state.rows(), 15U);
  EXPECT_EQ(state.factors(), nullptr);
  state.observe(rows.data(), 10, DataType::kFloat32, 1);
  ASSERT_NE(state.factors(), nullptr);
  EXPECT_EQ(state.factors()->channels, 10U);
}

TEST(ChannelState, FactorsUndoEachOther) {
  const ChannelState state = learned(333);
  const ChannelFactors& factors = *state.factors();
  float top = 0;
  for (size_t i = 0; i < 333 + kFactorTail; ++i) {
    EXPECT_NEAR(factors.forward[i] * factors.undo[i], 1, 1e-6);
    EXPECT_EQ(factors.forward[i], factors.forward[i % 333]);
    EXPECT_LE(factors.undo[i], factors.undo_max);
    top = std::max(top, factors.forward[i]);
  }
  EXPECT_EQ(top, 1);
  EXPECT_LE(factors.undo_max, ChannelState::kUndoMax);
}

TEST(ChannelState, DigestsFollowWhatIsKnown) {
  ChannelState a(20);
  ChannelState b(20);
  EXPECT_EQ(a.digest(), b.digest());
  EXPECT_NE(a.digest(), ChannelState(21).digest());
  Floats rows = normal_values(400, kSeed, 20);
  a.observe(rows.data(), rows.size(), DataType::kFloat32, 1);
  EXPECT_NE(a.digest(), b.digest());
  b.observe(rows.data(), rows.size(), DataType::kFloat32, 1);
  EXPECT_EQ(a.digest(), b.digest());
  rows[7] = std::nextafter(rows[7], 1e30F);
  a.observe(rows.data(), rows.size(), DataType::kFloat32, 1);
  rows[7] = std::nextafter(rows[7], -1e30F);
  b.observe(rows.data(), rows.size(), DataType::kFloat32, 1);
  EXPECT_NE(a.digest(), b.digest()) << "one bit of one value";
}

TEST(ChannelState, LearnsNothingFromWhatIsNotFinite) {
  ChannelState state = learned(20);
  const Bytes before = [&] {
    Bytes saved(state.saved_bytes());
    state.save(saved);
    return saved;
  }();
  for (const float bad :
       {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
    Floats rows = normal_values(400, kSeed, 20);
    rows[30] = bad;
    state.observe(rows.data(), rows.size(), DataType::kFloat32, 1);
  }
  Bytes after(state.saved_bytes());
  state.save(after);
  EXPECT_EQ(Bytes(after.begin() + 8, after.end()), Bytes(before.begin() + 8, before.end()));
  ChannelState loaded(20);
  ASSERT_TRUE(loaded.load(after));
  EXPECT_EQ(loaded.digest(), state.digest());
  after[22] = std::byte{0xff};
  after[23] = std::byte{0xff};  // a NaN
  EXPECT_FALSE(loaded.load(after));
  EXPECT_FALSE(loaded.load(Bytes(after.begin(), after.end() - 1)));
  EXPECT_EQ(loaded.digest(), state.digest());
}

// Also where an outlier is as large as a block's value may be, at the edges of words, and twice.
TEST(ChannelState, OutliersCountAsZeros) {
  constexpr size_t kChannels = 37;
  for (const DataType type : {DataType::kFloat32, DataType::kBFloat16, DataType::kFloat16}) {
    Bytes sums(40 * kChannels * element_bytes(type));
    const Floats values = normal_values(40 * kChannels, kSeed);
    codec_of("exact").encode(values.data(), sums.size() / 4, sums.data());
    if (type != DataType::kFloat32) {
      // Any bits of finite numbers.
      for (size_t i = 1; i < sums.size(); i += 2) sums[i] &= std::byte{0xb3};
    }
    OutlierPlaces outliers;
    outliers.reset(40 * kChannels);
    Bytes without = sums;
    for (const size_t place : {0, 36, 37, 63, 64, 64, 127, 700, 1023, 1479}) {
      outliers.mark(place);
      std::fill_n(without.begin() + static_cast<long>(place * element_bytes(type)),
                  element_bytes(type), std::byte{0});
    }
    ChannelState left_out(kChannels), of_zeros(kChannels), whole(kChannels);
    left_out.observe(sums.data(), 40 * kChannels, type, 1, outliers);
    of_zeros.observe(without.data(), 40 * kChannels, type, 1);
    whole.observe(sums.data(), 40 * kChannels, type, 1);
    EXPECT_EQ(left_out.digest(), of_zeros.digest());
    EXPECT_NE(left_out.digest(), whole.digest());
  }
}

TEST(ChannelState, AnOutlierThatIsNotFiniteTeachesNothing) {
  for (const float poison : {std::numeric_limits<float>::infinity(), std::nanf("")}) {
    ChannelState state(4);
    Floats sums(80, 1.0F);
    sums[17] = poison;
    OutlierPlaces outliers;
    outliers.reset(sums.size());
    outliers.mark(17);
    state.observe(sums.data(), sums.size(), DataType::kFloat32, 1, outliers);
    EXPECT_EQ(state.rows(), 0U);
  }
}

// What a slice says of its place in the array, in rows and without.
TEST(SparsePayloads, NameTheirOutliers) {
  constexpr size_t kFirst = 4096;
  constexpr size_t kCount = 64'512 + 300;
  for (const char* spec : {"int4/32+sparse:0.5%+flatten", "int4/32+feedback+sparse:0.5%+flatten",
                           "int4/32+rows:300+sparse:1%+flatten", "int4/32+flatten"}) {
    const Codec& codec = codec_of(spec);
    Floats values = normal_values(kCount, kSeed);
    const bool has_rows = std::string(spec).find("rows") != std::string::npos;
    const bool has_outliers = std::string(spec).find("sparse") != std::string::npos;
    std::vector<size_t> expected;
    // As many as there is room for, in every row or section.
    const size_t section = has_rows ? 300 : 64'512;
    for (size_t begin = 0; begin < kCount && has_outliers; begin += section) {
      const size_t here = std::min(section, kCount - begin);
      const size_t outliers = has_rows ? (here + 99) / 100 : (here + 199) / 200;
      for (size_t i = 0; i < outliers; ++i) {
        values[begin + i * 71 % here] = 1e3F + static_cast<float>(i);
        expected.push_back(kFirst + begin + i * 71 % here);
      }
    }
    std::sort(expected.begin(), expected.end());
    Bytes wire(codec.wire_bytes(kCount));
    codec.encode(values.data(), kCount, wire.data());
    OutlierPlaces places;
    places.reset(kFirst + kCount);
    codec.gathered(1).mark_outliers(wire.data(), kCount, kFirst, places);
    std::vector<size_t> marked;
    places.for_each(0, kFirst + kCount, [&](size_t place) { marked.push_back(place); });
    EXPECT_EQ(marked, expected) << spec;
    // Whatever bytes arrive, nothing beyond the slice is marked.
    std::fill(wire.begin(), wire.end(), std::byte{0xff});
    places.reset(kFirst + kCount);
    codec.gathered(1).mark_outliers(wire.data(), 300, kFirst, places);
    EXPECT_TRUE(places.is_empty()) << spec;
  }
}

}  // namespace
}  // namespace tersum
