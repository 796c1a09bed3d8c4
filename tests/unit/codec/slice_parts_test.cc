// encode_part, combine_part and decode_part: the bits of the whole slice, however it is cut, and
// nothing beside. The seed is the one below; scripts/test runs this for every instruction set.
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>
#include <vector>

#include "codec/codec.h"
#include "nasty_values.h"

namespace tersum {
namespace {

constexpr uint64_t kSeed = 20261127;
constexpr size_t kBlocks = 40;

using Bytes = std::vector<std::byte>;

struct Coder {
  const Codec* codec = nullptr;
  size_t count = 0;  // values of the slice
  size_t value_bytes = 0;

  [[nodiscard]] Bytes random_values(uint64_t seed) const {
    return nasty_elements(seed, count, codec->value_type());
  }
  [[nodiscard]] Bytes encoded(const Bytes& values) const {
    Bytes wire(codec->wire_bytes(count));
    codec->encode(values.data(), count, wire.data());
    return wire;
  }
};

Coder coder_of(const std::string& spec, DataType type, ReduceOp op) {
  const Codec* const codec = find_codec(spec, type, op).value();
  // Formats without blocks are cut anywhere.
  const size_t count = codec->block() == 1 ? 3'001 : kBlocks * codec->block();
  return {codec, count, element_bytes(type)};
}

// Parts of up to nine blocks; the whole slice in one is among them.
std::vector<SliceCut> random_cuts(const Coder& coder, std::mt19937_64& random) {
  const size_t unit = coder.codec->block() == 1 ? 97 : coder.codec->block();
  const size_t most = random() % 8 == 0 ? kBlocks : 9;
  std::vector<SliceCut> cuts;
  for (size_t begin = 0; begin < coder.count;) {
    const size_t part = std::min(coder.count - begin, (1 + random() % most) * unit);
    cuts.push_back({coder.count, begin, part});
    begin += part;
  }
  std::shuffle(cuts.begin(), cuts.end(), random);
  return cuts;
}

void check_coding(const Coder& coder, std::mt19937_64& random) {
  const Bytes values = coder.random_values(random());
  const Bytes wire = coder.encoded(values);
  Bytes decoded(values.size());
  coder.codec->decode(wire.data(), coder.count, decoded.data());
  GuardedBytes got_wire(wire.size(), random() % 64);
  GuardedBytes got(values.size(), random() % 64);
  for (const SliceCut& cut : random_cuts(coder, random)) {
    const size_t at = cut.begin * coder.value_bytes;
    coder.codec->encode_part(values.data() + at, cut, got_wire.data());
    coder.codec->decode_part(wire.data(), cut, got.data() + at);
  }
  EXPECT_TRUE(got_wire.copy() == wire && got_wire.intact());
  EXPECT_TRUE(got.copy() == decoded && got.intact());
}

struct Sum {
  size_t wires = 0;
  bool has_own = false;
  bool to_wire = false;
  bool to_values = false;
  CombineFinish finish;
};

Sum random_sum(std::mt19937_64& random, ReduceOp op) {
  Sum sum;
  sum.wires = random() % 11;  // more than are added up at once
  sum.has_own = sum.wires == 0 || random() % 3 != 0;
  sum.to_wire = random() % 2 == 0;
  sum.to_values = !sum.to_wire || random() % 2 == 0;
  sum.finish.op = op;
  if (op == ReduceOp::kAverage) sum.finish.divisor = static_cast<uint32_t>(1 + random() % 5);
  return sum;
}

void check_sum(const Coder& coder, ReduceOp op, std::mt19937_64& random) {
  const Sum sum = random_sum(random, op);
  std::vector<Bytes> arrived;
  std::vector<const std::byte*> wires;
  for (size_t i = 0; i < sum.wires; ++i) {
    arrived.push_back(coder.encoded(coder.random_values(random())));
    // Bytes that nobody encoded.
    if (random() % 4 == 0) {
      for (std::byte& byte : arrived.back()) byte = static_cast<std::byte>(random());
    }
  }
  wires.reserve(arrived.size());
  for (const Bytes& wire : arrived) wires.push_back(wire.data());
  const Bytes own = coder.random_values(random());
  const size_t own_index = random() % (sum.wires + 1);
  Bytes wire(sum.to_wire ? coder.codec->wire_bytes(coder.count) : 0);
  Bytes values(sum.to_values ? own.size() : 0);
  const auto place_of = [](bool used, std::byte* bytes) { return used ? bytes : nullptr; };
  coder.codec->combine(wires, sum.has_own ? own.data() : nullptr, own_index, coder.count,
                       sum.finish, place_of(sum.to_wire, wire.data()),
                       place_of(sum.to_values, values.data()));
  GuardedBytes got_wire(wire.size(), random() % 64);
  GuardedBytes got(values.size(), random() % 64);
  for (const SliceCut& cut : random_cuts(coder, random)) {
    const size_t at = cut.begin * coder.value_bytes;
    coder.codec->combine_part(wires, sum.has_own ? own.data() + at : nullptr, own_index, cut,
                              sum.finish, place_of(sum.to_wire, got_wire.data()),
                              place_of(sum.to_values, got.data() + at));
  }
  EXPECT_TRUE(got_wire.copy() == wire && got_wire.intact());
  EXPECT_TRUE(got.copy() == values && got.intact());
}

void check_parts(const std::string& spec, DataType type, ReduceOp op) {
  const Coder coder = coder_of(spec, type, op);
  ASSERT_TRUE(coder.codec->takes_parts());
  std::mt19937_64 random(kSeed);
  for (int round = 0; round < 25 && !testing::Test::HasFailure(); ++round) {
    SCOPED_TRACE(spec + " of " + std::string(data_type_name(type)) + ", seed " +
                 std::to_string(kSeed) + ", round " + std::to_string(round));
    check_coding(coder, random);
    check_sum(coder, op, random);
  }
}

TEST(SliceParts, OfBlocksHaveTheBitsOfTheWhole) {
  for (const char* const spec : {"int8/32", "int8/128", "int8/1024", "int4/32", "int4/128"}) {
    for (const DataType type : {DataType::kFloat32, DataType::kBFloat16, DataType::kFloat16}) {
      check_parts(spec, type, ReduceOp::kSum);
      check_parts(spec, type, ReduceOp::kAverage);
    }
  }
}

TEST(SliceParts, OfValuesHaveTheBitsOfTheWhole) {
  for (const DataType type : {DataType::kFloat32, DataType::kBFloat16, DataType::kFloat16}) {
    check_parts("bf16", type, ReduceOp::kAverage);
    check_parts("exact", type, ReduceOp::kSum);
  }
  check_parts("exact", DataType::kFloat64, ReduceOp::kSum);
  check_parts("exact", DataType::kInt64, ReduceOp::kMax);
}

TEST(SliceParts, CodecsOfMoreThanBlocksTakeNone) {
  for (const char* const spec : {"int6/128", "int8/128+hadamard", "int4/128+outliers:2", "mxfp8"}) {
    EXPECT_FALSE(find_codec(spec, DataType::kFloat32, ReduceOp::kSum).value()->takes_parts())
        << spec;
  }
}

TEST(SlicePartsDeathTest, AreForCodecsThatTakeThem) {
  const Coder coder = coder_of("int6/128", DataType::kFloat32, ReduceOp::kSum);
  const Bytes values = coder.random_values(kSeed);
  Bytes wire = coder.encoded(values);
  const std::vector<const std::byte*> wires{wire.data()};
  const SliceCut cut{coder.count, 0, 128};
  EXPECT_DEATH(coder.codec->encode_part(values.data(), cut, wire.data()), "no parts");
  EXPECT_DEATH(coder.codec->combine_part(wires, values.data(), 0, cut, {}, wire.data(), nullptr),
               "no parts");
}

TEST(SlicePartsDeathTest, ThatEndWithinABlockAreRefused) {
  const Coder coder = coder_of("int8/128", DataType::kFloat32, ReduceOp::kSum);
  const Bytes values = coder.random_values(kSeed);
  Bytes wire = coder.encoded(values);
  EXPECT_DEATH(coder.codec->encode_part(values.data(), {coder.count, 0, 64}, wire.data()), "block");
  EXPECT_DEATH(coder.codec->encode_part(values.data(), {coder.count, 64, 128}, wire.data()),
               "block");
  EXPECT_DEATH(coder.codec->encode_part(values.data(), {128, 0, 256}, wire.data()), "part");
}

}  // namespace
}  // namespace tersum
