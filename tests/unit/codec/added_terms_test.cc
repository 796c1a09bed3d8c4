// A residual and a bias, added while values are read: the bytes of the sum formed beforehand, in
// every codec, wherever the slice lies.
#include "codec/kernels/added_terms.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "codec/codec.h"
#include "codec/kernels/numbers.h"

namespace tersum {
namespace {

using Bytes = std::vector<std::byte>;

constexpr uint64_t kSeed = 11;
// Of the array; the slice begins in the middle of it and at no multiple of the bias.
constexpr size_t kFirst = 6 * 1024;
constexpr size_t kBias = 640;

const char* const kSpecs[] = {"exact",
                              "bf16",
                              "int8/128",
                              "int4/32",
                              "int6/64",
                              "int1/32",
                              "five/32",
                              "nvfp4",
                              "mxfp8",
                              "nf4/64",
                              "int8/64+shiftadd",
                              "int8/128+hadamard",
                              "int5/32+flatten",
                              "int4/128+sparse:1%",
                              "int6/64+sparse:2%+hadamard",
                              "int8/32+rows:100",
                              "int4/64+mixed",
                              "int4/64+adaptive",
                              "int5/32+hadamard+clip:learned",
                              "int4/32+rows:500+sparse:1%+mixed"};
const size_t kCounts[] = {1, 31, 640, 3000, 7001};

Bytes pack(DataType type, const std::vector<float>& values) {
  Bytes out(values.size() * element_bytes(type));
  for (size_t i = 0; i < values.size(); ++i) {
    std::byte* const to = out.data() + i * element_bytes(type);
    if (type == DataType::kFloat32) store_unaligned(to, values[i]);
    if (type == DataType::kBFloat16) store_unaligned(to, float_to_bf16(values[i]));
    if (type == DataType::kFloat16) store_unaligned(to, float_to_half(values[i]));
    if (type == DataType::kFloat64) store_unaligned(to, double{values[i]});
    if (type == DataType::kInt32) store_unaligned(to, static_cast<int32_t>(values[i]));
    if (type == DataType::kUint8) store_unaligned(to, static_cast<uint8_t>(values[i]));
  }
  return out;
}

// What bf16 and float16 hold exactly, sums of three too, with a NaN among them; or whole numbers
// whose sums are in a byte.
std::vector<float> short_numbers(uint64_t seed, size_t count, bool whole) {
  std::mt19937_64 random(seed);
  std::vector<float> values(count);
  for (float& x : values) x = static_cast<float>(random() % 79);
  if (whole) return values;
  for (float& x : values) x = x / 4 - 9.75F;
  if (count > 300) values[217] = NAN;
  return values;
}

// A slice at kFirst of an array, what is added to it, and the sums.
struct Case {
  Case(DataType type, size_t count, const std::vector<float>& x, const std::vector<float>& r,
       const std::vector<float>& b)
      : values(pack(type, x)), residual(pack(type, r)), bias(pack(type, b)) {
    std::vector<float> formed(count);
    for (size_t i = 0; i < count; ++i) formed[i] = x[i] + r[kFirst + i] + b[(kFirst + i) % kBias];
    floats = formed;
    sums = pack(type, formed);
    place.first = kFirst;
    place.added = {residual.data(), bias.data(), kBias};
    plain.first = kFirst;
  }

  Bytes values;
  Bytes residual;
  Bytes bias;
  Bytes sums;
  std::vector<float> floats;
  SlicePlace place;
  SlicePlace plain;
};

Bytes encode(const Codec& codec, const Bytes& values, size_t count, const SlicePlace& place) {
  Bytes wire(codec.wire_bytes(count));
  codec.encode(values.data(), count, wire.data(), place);
  return wire;
}

void expect_same(const Codec& codec, const Case& c, size_t count) {
  const Bytes wire = encode(codec, c.sums, count, c.plain);
  EXPECT_EQ(encode(codec, c.values, count, c.place), wire);
  const std::byte* const wires[] = {wire.data(), wire.data()};
  for (const bool encodes : {true, false}) {
    for (const auto& finish : {CombineFinish{ReduceOp::kSum, 1}, {ReduceOp::kAverage, 3}}) {
      Bytes expected_wire(encodes ? codec.wire_bytes(count) : 0);
      Bytes got_wire(expected_wire.size());
      Bytes expected(c.values.size());
      codec.combine(wires, c.sums.data(), 1, count, finish,
                    encodes ? expected_wire.data() : nullptr, expected.data(), c.plain);
      Bytes in_place = c.values;
      codec.combine(wires, in_place.data(), 1, count, finish, encodes ? got_wire.data() : nullptr,
                    in_place.data(), c.place);
      EXPECT_EQ(in_place, expected);
      EXPECT_EQ(got_wire, expected_wire);
    }
  }
  // Alone, as in a group of one.
  Bytes expected(c.values.size());
  Bytes got(c.values.size());
  codec.combine({}, c.sums.data(), 0, count, {}, nullptr, expected.data(), c.plain);
  codec.combine({}, c.values.data(), 0, count, {}, nullptr, got.data(), c.place);
  EXPECT_EQ(got, expected);
}

TEST(AddedTerms, GiveTheBytesOfTheSumInEveryCodec) {
  std::mt19937_64 random(kSeed);
  std::normal_distribution<float> normal;
  for (const size_t count : kCounts) {
    std::vector<float> x(count), r(kFirst + count), b(kBias);
    for (auto* values : {&x, &r, &b}) {
      for (float& value : *values) value = normal(random);
    }
    if (count > 500) r[kFirst + 400] = INFINITY;
    const Case c(DataType::kFloat32, count, x, r, b);
    for (const char* spec : kSpecs) {
      SCOPED_TRACE(std::string(spec) + ", " + std::to_string(count) + " values");
      expect_same(*find_codec(spec, DataType::kFloat32, ReduceOp::kSum).value(), c, count);
    }
  }
}

TEST(AddedTerms, GiveTheBytesOfTheSumInEveryType) {
  for (const DataType type : {DataType::kBFloat16, DataType::kFloat16, DataType::kFloat64,
                              DataType::kInt32, DataType::kUint8}) {
    const bool whole = type == DataType::kInt32 || type == DataType::kUint8;
    for (const size_t count : kCounts) {
      const Case c(type, count, short_numbers(1, count, whole),
                   short_numbers(2, kFirst + count, whole), short_numbers(3, kBias, whole));
      for (const char* spec : kSpecs) {
        SCOPED_TRACE(std::string(spec) + ", " + std::to_string(count) + " of " +
                     std::string(data_type_name(type)));
        expect_same(*find_codec(spec, type, ReduceOp::kSum).value(), c, count);
      }
    }
  }
}

// Sums of short floats are quantized as they are, not as the type would hold them.
TEST(AddedTerms, AreNotRoundedBeforeTheyAreQuantized) {
  std::mt19937_64 random(kSeed);
  std::normal_distribution<float> normal;
  constexpr size_t kCount = 2000;
  for (const DataType type : {DataType::kBFloat16, DataType::kFloat16}) {
    const auto as_type = [&](float value) {
      return type == DataType::kBFloat16 ? bf16_to_float(float_to_bf16(value))
                                         : half_to_float(float_to_half(value));
    };
    std::vector<float> x(kCount), r(kFirst + kCount), b(kBias);
    for (auto* values : {&x, &r, &b}) {
      for (float& value : *values) value = as_type(normal(random));
    }
    const Case c(type, kCount, x, r, b);
    const Bytes floats = pack(DataType::kFloat32, c.floats);
    for (const char* spec : {"int8/128", "int6/64+hadamard", "int7/32+rows:100", "int5/32+mixed"}) {
      SCOPED_TRACE(spec);
      const Bytes got =
          encode(*find_codec(spec, type, ReduceOp::kSum).value(), c.values, kCount, c.place);
      EXPECT_EQ(got, encode(*find_codec(spec, DataType::kFloat32, ReduceOp::kSum).value(), floats,
                            kCount, c.plain));
      EXPECT_NE(got,
                encode(*find_codec(spec, type, ReduceOp::kSum).value(), c.sums, kCount, c.plain));
    }
  }
}

TEST(AddedTerms, OneOfThemAlone) {
  const Codec& codec = *find_codec("int8/32", DataType::kFloat32, ReduceOp::kSum).value();
  const std::vector<float> x(100, 1.0F), r(100, 0.5F), b = {0.25F, -0.25F};
  SlicePlace place;
  place.added = {r.data(), nullptr, 1};
  EXPECT_EQ(encode(codec, pack(DataType::kFloat32, x), 100, place),
            encode(codec, pack(DataType::kFloat32, std::vector<float>(100, 1.5F)), 100, {}));
  std::vector<float> sums(100);
  for (size_t i = 0; i < 100; ++i) sums[i] = i % 2 == 0 ? 1.25F : 0.75F;
  place.added = {nullptr, b.data(), 2};
  EXPECT_EQ(encode(codec, pack(DataType::kFloat32, x), 100, place),
            encode(codec, pack(DataType::kFloat32, sums), 100, {}));
}

TEST(AddedTerms, ABiasMayHaveAnyPeriod) {
  constexpr size_t kCount = 7001;
  std::mt19937_64 random(kSeed);
  std::normal_distribution<float> normal;
  std::vector<float> x(kCount);
  for (float& value : x) value = normal(random);
  for (const size_t period : {1, 3, 100, 255, 256, 320, 5000, 20'000}) {
    std::vector<float> bias(period);
    for (float& value : bias) value = normal(random);
    std::vector<float> sums(kCount);
    for (size_t i = 0; i < kCount; ++i) sums[i] = x[i] + bias[(kFirst + i) % period];
    SlicePlace place;
    place.first = kFirst;
    const SlicePlace plain = place;
    place.added = {nullptr, bias.data(), period};
    for (const char* const spec : {"exact", "int8/128", "int4/32", "int6/64+hadamard"}) {
      const Codec& codec = *find_codec(spec, DataType::kFloat32, ReduceOp::kSum).value();
      EXPECT_EQ(encode(codec, pack(DataType::kFloat32, x), kCount, place),
                encode(codec, pack(DataType::kFloat32, sums), kCount, plain))
          << spec << ", period " << period;
    }
  }
}

}  // namespace
}  // namespace tersum
