// Codec::combine against sums written out here, and the rules for NaN, overflow and rounding.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "codec/codec.h"
#include "codec/kernels/numbers.h"

namespace tersum {
namespace {

const Codec& codec_for(std::string_view spec, DataType type, ReduceOp op = ReduceOp::kSum) {
  return *find_codec(spec, type, op).value();
}

template <typename T>
std::vector<T> combine_exact(DataType type, const std::vector<std::vector<T>>& inputs,
                             CombineFinish finish, size_t own_index) {
  const Codec& codec = codec_for("exact", type, finish.op);
  std::vector<const std::byte*> wires;
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (i != own_index) wires.push_back(reinterpret_cast<const std::byte*>(inputs[i].data()));
  }
  std::vector<T> out(inputs[0].size());
  const void* own = own_index < inputs.size() ? inputs[own_index].data() : nullptr;
  codec.combine(wires, own, own == nullptr ? 0 : own_index, out.size(), finish, nullptr,
                out.data());
  return out;
}

TEST(Combine, FloatSumsRunInRankOrder) {
  // In any other order the sum is not 1.
  const std::vector<std::vector<float>> inputs = {{1e20f}, {-1e20f}, {1.0f}};
  for (const size_t own : {0u, 1u, 2u, 9u}) {
    EXPECT_EQ(combine_exact(DataType::kFloat32, inputs, {}, own)[0], 1.0f);
  }
  const std::vector<std::vector<float>> other = {{1.0f}, {1e20f}, {-1e20f}};
  for (const size_t own : {0u, 1u, 2u, 9u}) {
    EXPECT_EQ(combine_exact(DataType::kFloat32, other, {}, own)[0], 0.0f);
  }
}

// Enough ranks for several passes: the order must hold across them, wherever own stands.
TEST(Combine, ManyRanksInOrder) {
  const uint64_t seed = 3;
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  std::mt19937_64 random(seed);
  std::normal_distribution<float> normal;
  std::vector<std::vector<float>> inputs(27, std::vector<float>(3001));
  for (auto& input : inputs) {
    for (float& value : input) value = normal(random);
  }
  std::vector<float> expected = inputs[0];
  for (size_t rank = 1; rank < inputs.size(); ++rank) {
    for (size_t i = 0; i < expected.size(); ++i) expected[i] += inputs[rank][i];
  }
  for (float& value : expected) value /= 27.0f;
  for (size_t own = 0; own <= inputs.size(); ++own) {
    ASSERT_EQ(combine_exact(DataType::kFloat32, inputs, {ReduceOp::kAverage, 27}, own), expected)
        << "own " << own;
  }
}

TEST(Combine, ShortFloatsRoundOnce) {
  // 1 + 2^-8 + 2^-8 is 1 + 2^-7 in float32; rounding to bf16 in between would give 1.
  const std::vector<uint16_t> one = {float_to_bf16(1.0f)};
  const std::vector<uint16_t> small = {float_to_bf16(0x1p-8f)};
  EXPECT_EQ(combine_exact<uint16_t>(DataType::kBFloat16, {one, small, small}, {}, 1)[0],
            float_to_bf16(1.0f + 0x1p-7f));
  const std::vector<uint16_t> half_one = {float_to_half(1.0f)};
  const std::vector<uint16_t> half_small = {float_to_half(0x1p-11f)};
  EXPECT_EQ(
      combine_exact<uint16_t>(DataType::kFloat16, {half_one, half_small, half_small}, {}, 0)[0],
      float_to_half(1.0f + 0x1p-10f));
}

TEST(Combine, IntegersWrapAndTruncate) {
  EXPECT_EQ(combine_exact<int32_t>(DataType::kInt32, {{INT32_MAX}, {1}}, {}, 0)[0], INT32_MIN);
  EXPECT_EQ(combine_exact<int64_t>(DataType::kInt64, {{INT64_MIN}, {-1}}, {}, 1)[0], INT64_MAX);
  EXPECT_EQ(combine_exact<uint8_t>(DataType::kUint8, {{200}, {100}}, {}, 0)[0], 44);
  const CombineFinish average{ReduceOp::kAverage, 2};
  EXPECT_EQ(combine_exact<int32_t>(DataType::kInt32, {{-5}, {2}}, average, 0)[0], -1);
  EXPECT_EQ(combine_exact<int64_t>(DataType::kInt64, {{-5}, {2}}, average, 0)[0], -1);
  EXPECT_EQ(combine_exact<uint8_t>(DataType::kUint8, {{5}, {2}}, average, 0)[0], 3);
}

TEST(Combine, ExtremesPropagateNanAndTellZerosApart) {
  const float nan = float_from_bits(0xffc12345u);
  const uint32_t canonical = kFloatNan;
  for (const ReduceOp op : {ReduceOp::kMax, ReduceOp::kMin}) {
    const CombineFinish finish{op, 1};
    for (const size_t own : {0u, 1u}) {
      EXPECT_EQ(float_bits(combine_exact<float>(DataType::kFloat32, {{nan}, {1}}, finish, own)[0]),
                canonical);
      EXPECT_EQ(float_bits(combine_exact<float>(DataType::kFloat32, {{1}, {nan}}, finish, own)[0]),
                canonical);
      const float zero =
          combine_exact<float>(DataType::kFloat32, {{0.0f}, {-0.0f}}, finish, own)[0];
      EXPECT_EQ(std::signbit(zero), op == ReduceOp::kMin);
    }
  }
  EXPECT_EQ(combine_exact<double>(DataType::kFloat64, {{-2}, {7}}, {ReduceOp::kMax, 1}, 0)[0], 7);
  EXPECT_EQ(combine_exact<int64_t>(DataType::kInt64, {{-2}, {7}}, {ReduceOp::kMin, 1}, 0)[0], -2);
}

TEST(Combine, NanResultsAreCanonical) {
  const float inf = INFINITY;
  EXPECT_EQ(float_bits(combine_exact<float>(DataType::kFloat32, {{inf}, {-inf}}, {}, 0)[0]),
            kFloatNan);
  const float payload = float_from_bits(0xffffffffu);
  EXPECT_EQ(float_bits(combine_exact<float>(DataType::kFloat32, {{payload}}, {}, 0)[0]), kFloatNan);
  const auto wide = combine_exact<double>(DataType::kFloat64, {{INFINITY}, {-INFINITY}}, {}, 0);
  uint64_t bits = 0;
  std::memcpy(&bits, wide.data(), 8);
  EXPECT_EQ(bits, 0x7ff8000000000000u);
}

// NaN, Inf and sums beyond the value type reach every value of their block, and no other block.
TEST(Combine, WhatIsNoNumberTakesItsBlockWithIt) {
  const Codec& codec = codec_for("int8/32", DataType::kFloat16);
  std::vector<uint16_t> a(96, float_to_half(1.0f));
  a[40] = float_to_half(60000.0f);  // with itself: beyond float16
  std::vector<std::byte> wire(codec.wire_bytes(96));
  codec.encode(a.data(), 96, wire.data());
  const std::vector<const std::byte*> wires = {wire.data()};
  std::vector<std::byte> sum(wire.size());
  std::vector<uint16_t> out(96);
  codec.combine(wires, a.data(), 0, 96, {}, sum.data(), out.data());
  for (size_t i = 0; i < 96; ++i) {
    EXPECT_EQ(std::isnan(half_to_float(out[i])), i / 32 == 1) << i;
  }
}

// The owner holds what everyone decodes; encoding a sum and combining into the wire are one thing.
TEST(Combine, OwnerHoldsTheDecodingOfWhatItSends) {
  const uint64_t seed = 11;
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  std::mt19937_64 random(seed);
  std::normal_distribution<float> normal;
  for (const char* spec : {"exact", "bf16", "int8/64", "int4/32"}) {
    const Codec& codec = codec_for(spec, DataType::kFloat32);
    const size_t count = 2500;
    std::vector<float> own(count);
    std::vector<float> peer(count);
    for (size_t i = 0; i < count; ++i) {
      own[i] = normal(random);
      peer[i] = normal(random);
    }
    std::vector<std::byte> wire(codec.wire_bytes(count));
    codec.encode(peer.data(), count, wire.data());
    const std::vector<const std::byte*> wires = {wire.data()};
    std::vector<float> sum(count);
    codec.combine(wires, own.data(), 1, count, {}, nullptr, sum.data());
    std::vector<std::byte> expected_wire(wire.size());
    codec.encode(sum.data(), count, expected_wire.data());
    std::vector<float> expected(count);
    codec.decode(expected_wire.data(), count, expected.data());

    std::vector<std::byte> result_wire(wire.size());
    codec.combine(wires, own.data(), 1, count, {}, result_wire.data(), own.data());
    EXPECT_EQ(result_wire, expected_wire) << spec;
    EXPECT_EQ(own, expected) << spec;
  }
}

// Cutting a chunk at blocks changes no scale and no code.
TEST(Combine, SlicesHaveTheBlocksOfTheirChunk) {
  for (const char* spec : {"bf16", "int8/32", "int8/256", "int4/64"}) {
    const Codec& codec = codec_for(spec, DataType::kFloat32);
    std::mt19937_64 random(5);
    std::normal_distribution<float> normal;
    std::vector<float> values(3 * 1024 + 77);
    for (float& value : values) value = normal(random);
    std::vector<float> whole(values.size());
    std::vector<std::byte> wire(codec.wire_bytes(values.size()));
    codec.encode(values.data(), values.size(), wire.data());
    codec.decode(wire.data(), values.size(), whole.data());
    std::vector<float> pieces(values.size());
    for (size_t at = 0; at < values.size(); at += 1024) {
      const size_t count = std::min<size_t>(1024, values.size() - at);
      codec.encode(values.data() + at, count, wire.data());
      codec.decode(wire.data(), count, pieces.data() + at);
    }
    EXPECT_EQ(pieces, whole) << spec;
  }
}

TEST(Combine, NothingIsDoneForNoElements) {
  for (const char* spec : {"exact", "bf16", "int8", "int4"}) {
    const Codec& codec = codec_for(spec, DataType::kFloat32);
    float value = 5;
    codec.encode(&value, 0, nullptr);
    codec.decode(nullptr, 0, &value);
    codec.combine({}, &value, 0, 0, {}, nullptr, &value);
    EXPECT_EQ(value, 5) << spec;
  }
}

}  // namespace
}  // namespace tersum
