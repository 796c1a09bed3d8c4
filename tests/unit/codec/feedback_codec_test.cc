// +feedback: what the results of all calls are off by is what is owed at the end, whatever the
// format; payloads are those of the codec inside.
#include "codec/feedback_codec.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "codec/codec.h"
#include "codec/kernels/block_reference.h"
#include "codec/kernels/dispatch.h"
#include "codec/kernels/element_kernels.h"
#include "codec/kernels/element_reference.h"
#include "codec/value_kind.h"
#include "nasty_values.h"

namespace tersum {
namespace {

using Bytes = std::vector<std::byte>;
using Floats = std::vector<float>;

constexpr uint64_t kSeed = 20261123;
constexpr size_t kCount = 5003;
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();

const Codec& codec_of(const std::string& spec, DataType type = DataType::kFloat32) {
  return *find_codec(spec, type, ReduceOp::kSum).value();
}

Floats normal_values(uint64_t seed, size_t count = kCount) {
  std::mt19937_64 random(seed);
  std::normal_distribution<float> normal;
  Floats values(count);
  std::generate(values.begin(), values.end(), [&] { return normal(random); });
  return values;
}

// Values as an array of the type, and back.
Bytes narrow(const Floats& values, DataType type) {
  Bytes array(values.size() * element_bytes(type));
  for (size_t i = 0; i < values.size(); ++i) {
    store_value(value_kind(type), array.data(), i, values[i]);
  }
  return array;
}
Floats widen(const Bytes& array, DataType type) {
  Floats values(array.size() / element_bytes(type));
  for (size_t i = 0; i < values.size(); ++i) {
    values[i] = load_value(value_kind(type), array.data(), i);
  }
  return values;
}

Bytes encode(const Codec& codec, const Bytes& values, size_t count, const SlicePlace& place) {
  Bytes wire(codec.wire_bytes(count));
  codec.encode(values.data(), count, wire.data(), place);
  return wire;
}

Floats decode(const Codec& codec, const Bytes& wire, size_t count) {
  Bytes values(count * element_bytes(codec.value_type()));
  codec.decode(wire.data(), count, values.data());
  return widen(values, codec.value_type());
}

void add(const Floats& values, std::vector<double>& sums) {
  for (size_t i = 0; i < values.size(); ++i) sums[i] += values[i];
}

struct Case {
  const char* spec;
  DataType type;
};
void PrintTo(const Case& c, std::ostream* out) { *out << c.spec << " " << data_type_name(c.type); }

class Feedback : public testing::TestWithParam<Case> {};

// Sums of 40 float32 numbers below 10 round by far less than 1e-4.
constexpr int kCalls = 40;
constexpr double kRounding = 1e-4;

TEST_P(Feedback, ContributionsOfAllCallsAreOffByWhatIsOwed) {
  const auto [spec, type] = GetParam();
  const Codec& codec = codec_of(spec, type);
  // A slice in the middle of an array.
  Floats owed(kCount + 100);
  SlicePlace place;
  place.first = 60;
  place.owed = owed.data();
  // An owner adds contributions before it rounds to the type.
  const Codec& wide = codec_of(spec);
  std::vector<double> sent(kCount), arrived(kCount);
  for (int call = 0; call < kCalls; ++call) {
    const Bytes values = narrow(normal_values(kSeed + static_cast<uint64_t>(call)), type);
    add(widen(values, type), sent);
    add(decode(wide, encode(codec, values, kCount, place), kCount), arrived);
  }
  for (size_t i = 0; i < kCount; ++i) {
    ASSERT_NEAR(arrived[i] + owed[60 + i], sent[i], kRounding) << "value " << i;
  }
  EXPECT_TRUE(std::all_of(owed.begin(), owed.begin() + 60, [](float x) { return x == 0; }));
  EXPECT_TRUE(std::all_of(owed.end() - 40, owed.end(), [](float x) { return x == 0; }));
}

// Of an owner: what its coding of the sum loses is its own debt, too.
TEST_P(Feedback, SumsOfAllCallsAreOffByWhatIsOwed) {
  const auto [spec, type] = GetParam();
  const Codec& codec = codec_of(spec, type);
  constexpr uint32_t kRanks = 3;
  const CombineFinish finish{ReduceOp::kAverage, kRanks, kRanks};
  const Codec& gathered = codec.gathered(kRanks);
  std::vector<Floats> owed(kRanks, Floats(kCount));
  std::vector<double> sent(kCount), arrived(kCount);
  for (int call = 0; call < kCalls; ++call) {
    std::vector<Bytes> values, wires;
    for (uint32_t rank = 0; rank < kRanks; ++rank) {
      const auto seed = kSeed + static_cast<uint64_t>(call) * kRanks + rank;
      values.push_back(narrow(normal_values(seed), type));
      add(widen(values.back(), type), sent);
      if (rank == 0) continue;
      const SlicePlace place{0, nullptr, 0, owed[rank].data()};
      wires.push_back(encode(codec, values.back(), kCount, place));
    }
    const std::vector<const std::byte*> pointers{wires[0].data(), wires[1].data()};
    Bytes wire(gathered.wire_bytes(kCount));
    const SlicePlace place{0, nullptr, 0, owed[0].data()};
    Bytes result = values[0];  // in place
    codec.combine(pointers, result.data(), 0, kCount, finish, wire.data(), result.data(), place);
    EXPECT_EQ(narrow(decode(gathered, wire, kCount), type), result);
    add(widen(result, type), arrived);
  }
  for (size_t i = 0; i < kCount; ++i) {
    const double due = double{owed[0][i]} + owed[1][i] + owed[2][i];
    // What rounding a mean to the type takes is counted three times.
    ASSERT_NEAR(3 * arrived[i] + due, sent[i], 10 * kRounding) << "value " << i;
  }
}

INSTANTIATE_TEST_SUITE_P(Formats, Feedback,
                         testing::Values(Case{"int2+feedback", DataType::kFloat32},
                                         Case{"int2+feedback", DataType::kBFloat16},
                                         Case{"int8+feedback", DataType::kFloat16},
                                         Case{"int1+feedback", DataType::kFloat32},
                                         Case{"five+feedback", DataType::kFloat32},
                                         Case{"nvfp4+feedback", DataType::kFloat32},
                                         Case{"mxfp4+floor+feedback", DataType::kBFloat16},
                                         Case{"int4/128+feedback+hadamard", DataType::kFloat32},
                                         Case{"int2/32+feedback+sparse:1%", DataType::kFloat32},
                                         Case{"int3/32+feedback+mixed", DataType::kFloat32},
                                         Case{"nf4+feedback+rows:50", DataType::kFloat32}));

// Rounded to the nearest, a value loses at most itself: what is owed stays as large as the values.
TEST(FeedbackCodec, WhatIsOwedDoesNotGrowWithoutEnd) {
  for (const char* const spec : {"int2/1024+feedback", "int1/1024+feedback", "mxfp4+feedback"}) {
    const Codec& codec = codec_of(spec);
    Floats owed(kCount);
    SlicePlace place;
    place.owed = owed.data();
    double most = 0;
    for (uint64_t call = 0; call < 2000; ++call) {
      encode(codec, narrow(normal_values(kSeed + call % 7), DataType::kFloat32), kCount, place);
      double squares = 0;
      for (const float x : owed) squares += double{x} * x;
      most = std::max(most, std::sqrt(squares / kCount));
    }
    EXPECT_LT(most, 10) << spec;
    EXPECT_GT(most, 0.1) << spec;
  }
}

TEST(FeedbackCodec, WithNothingOwedThePayloadIsThatOfTheCodecInside) {
  const Bytes values = narrow(normal_values(kSeed), DataType::kFloat32);
  const Codec& codec = codec_of("int3+feedback");
  const Codec& inside = codec_of("int3");
  Floats owed(kCount);
  SlicePlace place;
  place.owed = owed.data();
  const Bytes wire = encode(inside, values, kCount, {});
  EXPECT_EQ(encode(codec, values, kCount, {}), wire);
  EXPECT_EQ(encode(codec, values, kCount, place), wire);
  EXPECT_NE(encode(codec, values, kCount, place), wire);
  EXPECT_EQ(codec.block_error_bound(3), inside.block_error_bound(3));
}

// Where a block arrives as NaN nobody knows what it was to be: nothing of it is repeated.
TEST(FeedbackCodec, LostBlocksAreNotOwed) {
  const Codec& codec = codec_of("int4/32+feedback");
  Floats values = normal_values(kSeed, 96);
  Floats owed(96, 0.25F);
  values[3] = kNan;
  values[70] = -kInfinity;
  SlicePlace place;
  place.owed = owed.data();
  const Bytes wire = encode(codec, narrow(values, DataType::kFloat32), 96, place);
  const Floats back = decode(codec, wire, 96);
  for (size_t i = 0; i < 96; ++i) {
    const bool is_lost = i < 32 || i >= 64;
    EXPECT_EQ(std::isnan(back[i]), is_lost) << i;
    EXPECT_NEAR(owed[i], is_lost ? 0 : values[i] + 0.25F - back[i], 1e-6) << i;
  }
}

// Nor does what is owed turn a finite block into one that is not.
TEST(FeedbackCodec, FiniteValuesStayFinite) {
  for (const DataType type : {DataType::kFloat32, DataType::kBFloat16, DataType::kFloat16}) {
    const float largest = type == DataType::kFloat16    ? 65504.0F
                          : type == DataType::kBFloat16 ? 0x1.fep127F
                                                        : std::numeric_limits<float>::max();
    const Codec& codec = codec_of("int4/32+feedback", type);
    const Bytes values = narrow(Floats(32, largest), type);
    Floats owed(32, largest);
    SlicePlace place;
    place.owed = owed.data();
    for (int call = 0; call < 3; ++call) {
      for (const float x : decode(codec, encode(codec, values, 32, place), 32)) {
        EXPECT_TRUE(std::isfinite(x)) << data_type_name(type);
      }
      for (const float x : owed) EXPECT_TRUE(std::isfinite(x)) << data_type_name(type);
    }
  }
}

// A sum that is not coded loses nothing, and pays what was owed.
TEST(FeedbackCodec, WhatIsNotCodedIsPaidInFull) {
  const Codec& codec = codec_of("int2+feedback");
  const Floats own = normal_values(kSeed, 64);
  Floats owed = normal_values(kSeed + 1, 64);
  const Floats before = owed;
  const Bytes wire = encode(codec_of("int2"), narrow(own, DataType::kFloat32), 64, {});
  const Floats sent = decode(codec, wire, 64);
  const std::vector<const std::byte*> wires{wire.data()};
  Floats result(64);
  const SlicePlace place{0, nullptr, 0, owed.data()};
  codec.combine(wires, own.data(), 1, 64, {}, nullptr, result.data(), place);
  for (size_t i = 0; i < 64; ++i) {
    EXPECT_EQ(result[i], sent[i] + (own[i] + before[i]));
    EXPECT_EQ(owed[i], 0);
  }
}

struct Kept {
  Bytes sums;
  Bytes owed;
  friend bool operator==(const Kept&, const Kept&) = default;
};

// Arrays that begin within a vector and end within one.
Kept keep_with(const ElementKernels& kernels, DataType type, uint64_t seed) {
  const ValueKind kind = value_kind(type);
  const float largest = float_from_bits(overflow_bits_of(kind) - 1);
  const size_t bytes = element_bytes(type);
  const Bytes values = nasty_elements(seed, kCount + 1, type);
  const Bytes back = nasty_elements(seed + 1, kCount + 1, type);
  Floats owed = normal_values(seed, kCount + 1);
  owed[7] = std::numeric_limits<float>::max();
  owed[8] = -std::numeric_limits<float>::max();
  Floats sums(kCount + 1);
  kernels.add_owed(kind, values.data() + bytes, kCount, largest, owed.data() + 1, sums.data() + 1);
  kernels.keep_lost(kind, sums.data() + 1, back.data() + bytes, kCount, 3, owed.data() + 1);
  const auto bytes_of = [](const Floats& floats) {
    const auto* const begin = reinterpret_cast<const std::byte*>(floats.data());
    return Bytes(begin, begin + floats.size() * sizeof(float));
  };
  return {bytes_of(sums), bytes_of(owed)};
}

TEST(FeedbackCodec, EveryInstructionSetKeepsTheSame) {
  for (const DataType type : {DataType::kFloat32, DataType::kBFloat16, DataType::kFloat16}) {
    for (uint64_t seed = kSeed; seed < kSeed + 4; ++seed) {
      const Kept expected = keep_with(element_reference(), type, seed);
      for (const int64_t target : available_targets()) {
        EXPECT_EQ(keep_with(element_kernels_of(target), type, seed), expected)
            << target_name(target) << ", seed " << seed;
      }
    }
  }
}

TEST(FeedbackCodec, RandomRoundingIsRefused) {
  const auto found = find_codec("int4+sr+feedback", DataType::kFloat32, ReduceOp::kSum);
  ASSERT_FALSE(found.ok());
  EXPECT_THAT(std::string(found.status().message()),
              testing::HasSubstr("may grow from call to call"));
  EXPECT_FALSE(find_codec("shiftadd+feedback", DataType::kFloat32, ReduceOp::kSum).ok());
  EXPECT_FALSE(find_codec("bf16+feedback", DataType::kFloat32, ReduceOp::kSum).ok());
  EXPECT_EQ(codec_of("int2+rows:64+feedback").spec().to_string(), "int2/32+feedback+rows:64");
}

}  // namespace
}  // namespace tersum
