// The modifier +rows: every row of its own, wherever it lies. element_codec_test, codec_bound_test
// and decode_past_cache_test draw specs with it, too.
#include "codec/rows_codec.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "codec/kernels/numbers.h"
#include "normal_floats.h"
#include "tersum/codec_payload.h"

namespace tersum {
namespace {

using Bytes = std::vector<std::byte>;
using testing::HasSubstr;

constexpr uint64_t kSeed = 5;

const Codec& codec_of(const std::string& spec) {
  return *find_codec(spec, DataType::kFloat32, ReduceOp::kSum).value();
}

Bytes encode(const Codec& codec, const float* values, size_t count) {
  Bytes wire(codec.wire_bytes(count));
  codec.encode(values, count, wire.data());
  return wire;
}

struct Shape {
  const char* rest;  // of the spec
  size_t row;
};
// Rows shorter than a block, no multiple of one, and of several.
constexpr Shape kShapes[] = {{"int8/128", 100},         {"int4/32", 33},
                             {"five/32", 300},          {"nvfp4", 40},
                             {"int6/64+hadamard", 200}, {"int8/32+sparse:5%", 77}};

std::string spec_of(const Shape& shape) {
  return std::string(shape.rest) + "+rows:" + std::to_string(shape.row);
}

TEST(RowsCodec, ASliceIsTheSlicesOfItsRows) {
  for (const Shape& shape : kShapes) {
    SCOPED_TRACE(spec_of(shape));
    const Codec& rows = codec_of(spec_of(shape));
    const Codec& row = codec_of(shape.rest);
    const size_t count = 5 * shape.row + shape.row / 3;
    const std::vector<float> values = normal_floats(kSeed, count);
    Bytes expected;
    for (size_t first = 0; first < count; first += shape.row) {
      const Bytes one = encode(row, values.data() + first, std::min(shape.row, count - first));
      expected.insert(expected.end(), one.begin(), one.end());
    }
    EXPECT_EQ(encode(rows, values.data(), count), expected);
    EXPECT_EQ(rows.block(), shape.row);
  }
}

TEST(RowsCodec, AnotherRowChangesNoByteOfThisOne) {
  for (const Shape& shape : kShapes) {
    SCOPED_TRACE(spec_of(shape));
    const Codec& rows = codec_of(spec_of(shape));
    const size_t row_bytes = rows.wire_bytes(shape.row);
    const size_t count = 4 * shape.row;
    std::vector<float> values = normal_floats(kSeed, count);
    const Bytes before = encode(rows, values.data(), count);
    for (size_t i = 0; i < shape.row; ++i) values[2 * shape.row + i] *= 1e4F;
    values[3 * shape.row - 1] = NAN;
    Bytes after = encode(rows, values.data(), count);
    const auto at = static_cast<std::ptrdiff_t>(2 * row_bytes);
    const auto bytes = static_cast<std::ptrdiff_t>(row_bytes);
    EXPECT_FALSE(std::equal(after.begin() + at, after.begin() + at + bytes, before.begin() + at));
    std::copy(before.begin() + at, before.begin() + at + bytes, after.begin() + at);
    EXPECT_EQ(after, before);
  }
}

TEST(RowsCodec, SumsRowByRow) {
  for (const Shape& shape : kShapes) {
    SCOPED_TRACE(spec_of(shape));
    const Codec& rows = codec_of(spec_of(shape));
    const Codec& row = codec_of(shape.rest);
    const size_t count = 3 * shape.row + 5;
    const std::vector<float> a = normal_floats(kSeed, count);
    const std::vector<float> b = normal_floats(kSeed + 1, count);
    const std::vector<float> own = normal_floats(kSeed + 2, count);
    const Bytes wire_a = encode(rows, a.data(), count);
    const Bytes wire_b = encode(rows, b.data(), count);
    const CombineFinish finish{ReduceOp::kAverage, 3, 3};
    const std::byte* const wires[] = {wire_a.data(), wire_b.data()};
    const Codec& gathered = rows.gathered(3);
    Bytes wire_out(gathered.wire_bytes(count));
    std::vector<float> out(count);
    rows.combine(wires, own.data(), 1, count, finish, wire_out.data(), out.data());
    std::vector<float> alone = own;
    rows.combine(wires, alone.data(), 1, count, finish, nullptr, alone.data());

    Bytes expected_wire;
    for (size_t first = 0; first < count; first += shape.row) {
      const size_t values = std::min(shape.row, count - first);
      const Bytes row_a = encode(row, a.data() + first, values);
      const Bytes row_b = encode(row, b.data() + first, values);
      const std::byte* const row_wires[] = {row_a.data(), row_b.data()};
      Bytes sum(row.gathered(3).wire_bytes(values));
      std::vector<float> expected(values);
      row.combine(row_wires, own.data() + first, 1, values, finish, sum.data(), expected.data());
      expected_wire.insert(expected_wire.end(), sum.begin(), sum.end());
      EXPECT_EQ(std::memcmp(expected.data(), out.data() + first, 4 * values), 0);
      row.combine(row_wires, own.data() + first, 1, values, finish, nullptr, expected.data());
      EXPECT_EQ(std::memcmp(expected.data(), alone.data() + first, 4 * values), 0);
    }
    EXPECT_EQ(wire_out, expected_wire);
  }
}

TEST(RowsCodec, SumsHaveRoomForTheOutliersOfAllRanks) {
  const Codec& codec = codec_of("int4/64+rows:1000+sparse:0.5%");
  EXPECT_EQ(codec.gathered(4).spec().to_string(), "int4/64+rows:1000+sparse:2%");
  EXPECT_EQ(&codec.gathered(1), &codec);
  const Codec& dense = codec_of("int4/64+rows:1000");
  EXPECT_EQ(&dense.gathered(4), &dense);
}

TEST(RowsCodec, WhatNoEncoderWritesIsNamedWithItsRow) {
  const std::vector<float> values = normal_floats(kSeed, 100);
  const std::string spec = "int8/32+rows:40";
  Bytes payload = encode(codec_of(spec), values.data(), values.size());
  // Rows of 44 bytes; the second scale of the second one.
  store_unaligned(payload.data() + 44 + 2, uint16_t{0x7f80});
  std::vector<float> out(values.size());
  const Status status = decode_payload(spec, DataType::kFloat32, payload, out.size(), out.data());
  EXPECT_THAT(status.message(), HasSubstr("row 1: the scale of block 1 is"));
}

}  // namespace
}  // namespace tersum
