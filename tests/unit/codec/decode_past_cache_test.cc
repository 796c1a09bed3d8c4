// decode_past_cache, combine_past_cache: the bits of decode() and combine(), wherever the array
// begins and ends, and nothing beside.
#include "codec/decode_past_cache.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>
#include <vector>

#include "codec/force_isa.h"
#include "tersum/isa.h"

namespace tersum {
namespace {

constexpr size_t kMargin = 128;
constexpr std::byte kUntouched{0x5A};

// Values in [-4, 4) as the codec's type holds them; one seed, so that a failure repeats.
std::vector<std::byte> wire_of(const Codec& codec, size_t count) {
  std::mt19937 random(20260917);
  std::uniform_real_distribution<float> uniform(-4, 4);
  std::vector<float> values(count);
  for (float& value : values) value = uniform(random);
  std::vector<std::byte> wire(codec.wire_bytes(count));
  codec.encode(values.data(), count, wire.data());
  return wire;
}

void expect_same_bits(const std::string& spec, size_t count, size_t offset) {
  const Codec& codec = *find_codec(spec, DataType::kFloat32, ReduceOp::kSum).value();
  const std::vector<std::byte> wire = wire_of(codec, count);
  std::vector<float> expected(count);
  codec.decode(wire.data(), count, expected.data());
  std::vector<std::byte> scratch;
  std::vector<std::byte> memory(4 * count + 2 * kMargin, kUntouched);
  std::byte* const to = memory.data() + kMargin + 4 * offset;
  decode_past_cache(codec, wire.data(), count, to, {}, scratch);
  const auto* const as_decoded = reinterpret_cast<const std::byte*>(expected.data());
  EXPECT_TRUE(std::equal(to, to + 4 * count, as_decoded)) << spec << " " << count;
  const auto untouched = [](std::byte byte) { return byte == kUntouched; };
  EXPECT_TRUE(std::all_of(memory.data(), to, untouched)) << spec << " " << count << " " << offset;
  EXPECT_TRUE(std::all_of(to + 4 * count, memory.data() + memory.size(), untouched))
      << spec << " " << count << " " << offset;
}

// Two contributions on the wire and the owner's between them, once to wire and values, once to
// values alone, and once in place.
void expect_same_sums(const std::string& spec, size_t count, size_t offset) {
  const Codec& codec = *find_codec(spec, DataType::kFloat32, ReduceOp::kAverage).value();
  const std::vector<std::byte> wire = wire_of(codec, count);
  const std::vector<const std::byte*> wires{wire.data(), wire.data()};
  std::vector<float> own(count);
  codec.decode(wire.data(), count, own.data());
  for (float& value : own) value = 3 - value / 7;
  const CombineFinish finish{ReduceOp::kAverage, 3};
  for (const bool encodes : {true, false}) {
    std::vector<std::byte> expected_wire(encodes ? wire.size() : 0);
    std::vector<std::byte> got_wire(expected_wire.size());
    std::byte* const to_expected = encodes ? expected_wire.data() : nullptr;
    std::byte* const to_got = encodes ? got_wire.data() : nullptr;
    std::vector<float> expected(count + 1);
    codec.combine(wires, own.data(), 1, count, finish, to_expected, expected.data());
    std::vector<std::byte> scratch;
    std::vector<std::byte> memory(4 * count + 2 * kMargin, kUntouched);
    std::byte* const to = memory.data() + kMargin + 4 * offset;
    combine_past_cache(codec, wires, own.data(), 1, count, finish, to_got, to, {}, scratch);
    const auto* const as_combined = reinterpret_cast<const std::byte*>(expected.data());
    EXPECT_TRUE(std::equal(to, to + 4 * count, as_combined)) << spec << " " << count;
    EXPECT_EQ(got_wire, expected_wire) << spec << " " << count;
    const auto untouched = [](std::byte byte) { return byte == kUntouched; };
    EXPECT_TRUE(std::all_of(memory.data(), to, untouched)) << spec << " " << count;
    EXPECT_TRUE(std::all_of(to + 4 * count, memory.data() + memory.size(), untouched))
        << spec << " " << count;

    std::vector<float> in_place = own;
    in_place.push_back(0);
    combine_past_cache(codec, wires, in_place.data(), 1, count, finish, to_got, in_place.data(), {},
                       scratch);
    EXPECT_TRUE(std::equal(in_place.begin(), in_place.end() - 1, expected.begin())) << spec;
    EXPECT_EQ(got_wire, expected_wire) << spec << " " << count;
  }
}

// Any bytes will do for a wire; what decodes to NaN must do so alike.
void expect_parts_make_the_whole(const std::string& spec, DataType type, size_t count) {
  const Codec& codec = *find_codec(spec, type, ReduceOp::kSum).value();
  std::mt19937 random(20261121);
  std::vector<std::byte> wire(codec.wire_bytes(count));
  for (std::byte& byte : wire) byte = static_cast<std::byte>(random());
  std::vector<std::byte> whole(count * element_bytes(type));
  codec.decode(wire.data(), count, whole.data());
  std::vector<std::byte> parts(whole.size(), kUntouched);
  const size_t step = 3 * codec.block();
  for (size_t at = 0; at < count; at += step) {
    codec.decode_part(wire.data(), {count, at, std::min(step, count - at)},
                      parts.data() + at * element_bytes(type));
  }
  EXPECT_EQ(parts, whole) << spec << " " << count;
}

TEST(DecodePart, GivesTheBitsOfDecodeOnEveryIsa) {
  for (const std::string& isa : available_isas()) {
    SCOPED_TRACE(isa);
    ASSERT_TRUE(force_isa(isa).ok());
    for (const DataType type : {DataType::kFloat32, DataType::kBFloat16, DataType::kFloat16}) {
      for (const char* spec :
           {"exact", "bf16", "int8/128", "int4/32", "five/64", "int8/64+rows:300", "int5/64+mixed",
            "int4/128+adaptive", "int4/128+clip:learned"}) {
        for (const size_t count : {size_t{1}, size_t{384}, size_t{1001}}) {
          expect_parts_make_the_whole(spec, type, count);
        }
      }
    }
  }
  ASSERT_TRUE(force_isa("").ok());
}

TEST(CombinePastCache, GivesTheBitsOfCombineOnEveryIsa) {
  for (const std::string& isa : available_isas()) {
    SCOPED_TRACE(isa);
    ASSERT_TRUE(force_isa(isa).ok());
    for (const char* spec : {"exact", "bf16", "int8/128", "int4/32", "five/64", "int8/64+rows:300",
                             "int5/64+mixed", "int4/128+adaptive", "int4/128+clip:learned"}) {
      for (const size_t count : {size_t{0}, size_t{1}, size_t{17}, size_t{1000}, size_t{16'384}}) {
        for (size_t offset = 0; offset < 17; offset += 4) expect_same_sums(spec, count, offset);
      }
    }
  }
  ASSERT_TRUE(force_isa("").ok());
}

TEST(DecodePastCache, GivesTheBitsOfDecodeOnEveryIsa) {
  for (const std::string& isa : available_isas()) {
    SCOPED_TRACE(isa);
    ASSERT_TRUE(force_isa(isa).ok());
    for (const char* spec : {"exact", "bf16", "int8/128", "int4/32", "five/64", "int8/64+rows:300",
                             "int5/64+mixed", "int4/128+adaptive", "int4/128+clip:learned"}) {
      for (const size_t count : {size_t{0}, size_t{1}, size_t{15}, size_t{16}, size_t{17},
                                 size_t{128}, size_t{1000}, size_t{9001}, size_t{16'384}}) {
        for (size_t offset = 0; offset < 17; ++offset) expect_same_bits(spec, count, offset);
      }
    }
    // Rows that are longer than what is decoded at a time.
    expect_same_bits("int8/128+rows:5000", 12'345, 3);
    expect_same_sums("int8/128+rows:5000", 12'345, 3);
  }
  ASSERT_TRUE(force_isa("").ok());
}

}  // namespace
}  // namespace tersum
