// The modifier +sparse: which values are outliers, what becomes of them, and what bad payloads come
// to. element_codec_test and codec_bound_test draw specs with it, too.
#include "codec/sparse_codec.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include <cmath>
#include <random>
#include <string>
#include <vector>

#include "codec/kernels/dispatch.h"
#include "codec/kernels/outlier_selection.h"
#include "nasty_values.h"
#include "normal_floats.h"
#include "tersum/codec_payload.h"

namespace tersum {
namespace {

using Bytes = std::vector<std::byte>;
using testing::HasSubstr;

const Codec& codec_of(const std::string& spec, DataType type = DataType::kFloat32) {
  return *find_codec(spec, type, ReduceOp::kSum).value();
}

Bytes encode(const Codec& codec, const std::vector<float>& values) {
  Bytes wire(codec.wire_bytes(values.size()));
  codec.encode(values.data(), values.size(), wire.data());
  return wire;
}

std::vector<float> decode(const Codec& codec, const Bytes& wire, size_t count) {
  std::vector<float> values(count);
  codec.decode(wire.data(), count, values.data());
  return values;
}

RC_GTEST_PROP(OutlierSelection, is_that_of_sorting_on_every_target, ()) {
  const auto seed = *rc::gen::arbitrary<uint64_t>();
  const auto count = *rc::gen::oneOf(rc::gen::inRange<size_t>(1, 600),
                                     rc::gen::inRange<size_t>(1, kSectionValues + 1));
  const auto wanted = *rc::gen::oneOf(rc::gen::just<size_t>((count + 499) / 500),
                                      rc::gen::inRange<size_t>(0, count + 1));
  const bool few_values = *rc::gen::arbitrary<bool>();
  const auto overflow_bits = *rc::gen::element(kFloatInfinity, kHalfOverflow);
  std::vector<float> values = nasty_floats(seed, count);
  // Ties everywhere.
  if (few_values) {
    for (float& x : values) x = std::round(std::fmod(x, 4.0F));
  }
  RC_LOG() << "seed " << seed << ", " << wanted << " of " << count << "\n";
  OutlierScratch scratch;
  std::vector<uint16_t> expected(wanted);
  select_outliers_reference(values, overflow_bits, wanted, scratch, expected.data());
  for (const int64_t target : available_targets()) {
    force_target(target);
    std::vector<uint16_t> got(wanted + 1, 0xabcd);
    select_outliers(values, overflow_bits, wanted, scratch, got.data());
    RC_ASSERT(got.back() == 0xabcd);
    got.pop_back();
    RC_ASSERT(got == expected);
  }
  unforce_target();
}

// Lengths around the ends of sections.
RC_GTEST_PROP(SparseCodec, long_slices_have_the_same_bytes_on_every_target, ()) {
  const auto type = *rc::gen::element(DataType::kFloat32, DataType::kBFloat16, DataType::kFloat16);
  const auto spec = *rc::gen::element<std::string>("int8/64+sparse:0.3%", "five/1024+sparse:10%",
                                                   "nvfp4+sparse:0.01%+hadamard");
  const Codec& codec = codec_of(spec, type);
  const auto count = *rc::gen::element<size_t>(kSectionValues - 1, kSectionValues,
                                               kSectionValues + 1, 2 * kSectionValues + 7777);
  const auto seed = *rc::gen::arbitrary<uint64_t>();
  const auto ranks = *rc::gen::element<uint32_t>(1, 3, 40);
  RC_LOG() << spec << ", seed " << seed << ", " << count << "\n";
  const Bytes values = nasty_elements(seed, count, type);
  std::mt19937_64 random(seed);
  Bytes noise(codec.wire_bytes(count));
  for (auto& byte : noise) byte = static_cast<std::byte>(random());
  const Codec& gathered = codec.gathered(ranks);
  std::vector<Bytes> first;
  for (const int64_t target : available_targets()) {
    force_target(target);
    Bytes wire(codec.wire_bytes(count));
    codec.encode(values.data(), count, wire.data());
    Bytes of_noise(values.size());
    codec.decode(noise.data(), count, of_noise.data());
    Bytes sum_wire(gathered.wire_bytes(count));
    Bytes sum(values.size());
    const std::byte* const wires[] = {wire.data(), noise.data()};
    codec.combine(wires, values.data(), 1, count, {ReduceOp::kAverage, 3, ranks}, sum_wire.data(),
                  sum.data());
    Bytes decoded(values.size());
    gathered.decode(sum_wire.data(), count, decoded.data());
    RC_ASSERT(decoded == sum);
    const std::vector<Bytes> all = {wire, of_noise, sum_wire, sum};
    if (first.empty()) first = all;
    RC_ASSERT(all == first);
  }
  unforce_target();
}

TEST(SparseCodec, OutliersArriveAsBf16AndWhatItDoesNotSayInTheBlock) {
  std::vector<float> values = normal_floats(1, 1024);
  values[700] = 300.7F;
  const Codec& dense = codec_of("int8/1024");
  const Codec& sparse = codec_of("int8/1024+sparse:0.1%");
  ASSERT_EQ(sparse.wire_bytes(1024), dense.wire_bytes(1024) + 2 * 4);
  const std::vector<float> got = decode(sparse, encode(sparse, values), 1024);
  // The block has the scale of its other values, and 300.7 is nearer than bf16's 300 or 302.
  const double bound = dense.block_error_bound(4.0) + std::ldexp(300.7, -24);
  for (size_t i = 0; i < values.size(); ++i) EXPECT_NEAR(got[i], values[i], bound) << i;
}

TEST(SparseCodec, WhatIsLeftOfAHugeOutlierDoesNotWidenItsBlock) {
  std::vector<float> values = normal_floats(2, 1024);
  values[3] = 1e6F + 1500;  // bf16 misses it by hundreds
  const Codec& sparse = codec_of("int8/1024+sparse:0.1%");
  const std::vector<float> got = decode(sparse, encode(sparse, values), 1024);
  EXPECT_NEAR(got[3], values[3], std::ldexp(values[3], -8));
  const double bound = codec_of("int8/1024").block_error_bound(4.0);
  for (size_t i = 4; i < values.size(); ++i) EXPECT_NEAR(got[i], values[i], bound) << i;
}

TEST(SparseCodec, ABlockWithoutANumberArrivesAsNaNAndOthersDoNot) {
  const std::vector<float> tame = normal_floats(3, 512);
  for (const float lost : {NAN, INFINITY, -INFINITY}) {
    for (const char* spec : {"int4/128+sparse:2%", "int8/128+sparse:2%+hadamard"}) {
      std::vector<float> values = tame;
      values[200] = lost;
      const Codec& codec = codec_of(spec);
      const std::vector<float> got = decode(codec, encode(codec, values), 512);
      for (size_t i = 0; i < 512; ++i) EXPECT_EQ(std::isnan(got[i]), i / 128 == 1) << spec << i;
    }
  }
}

TEST(SparseCodec, TheSumHasRoomForTheOutliersOfAllRanks) {
  const Codec& codec = codec_of("int4/1024+sparse:0.2%");
  EXPECT_EQ(&codec.gathered(1), &codec);
  EXPECT_EQ(codec.gathered(8).spec().to_string(), "int4/1024+sparse:1.6%");
  EXPECT_EQ(codec.gathered(50).spec().to_string(), "int4/1024+sparse:10%");
  EXPECT_EQ(codec.gathered(4'000'000).spec().to_string(), "int4/1024+sparse:10%");
  const Codec& dense = codec_of("int4/1024");
  EXPECT_EQ(&dense.gathered(8), &dense);

  // Each of 4 ranks has a spike of its own in every 1,000 values.
  constexpr size_t kCount = 20'000;
  std::vector<Bytes> wires;
  std::vector<double> exact(kCount, 0.0);
  std::vector<float> own;
  for (uint64_t rank = 0; rank < 4; ++rank) {
    std::vector<float> values = normal_floats(10 + rank, kCount);
    for (size_t i = 250 * rank; i < kCount; i += 1000) values[i] *= 1000;
    for (size_t i = 0; i < kCount; ++i) exact[i] += double{values[i]};
    if (rank == 2) own = values;
    if (rank != 2) wires.push_back(encode(codec, values));
  }
  const std::byte* const pointers[] = {wires[0].data(), wires[1].data(), wires[2].data()};
  const Codec& gathered = codec.gathered(4);
  Bytes sum_wire(gathered.wire_bytes(kCount));
  std::vector<float> sum(kCount);
  codec.combine(pointers, own.data(), 2, kCount, {ReduceOp::kSum, 1, 4}, sum_wire.data(),
                sum.data());
  EXPECT_EQ(decode(gathered, sum_wire, kCount), sum);
  double error = 0;
  for (size_t i = 0; i < kCount; ++i) {
    if (std::abs(exact[i]) < 20) error = std::max(error, std::abs(exact[i] - double{sum[i]}));
  }
  // 3 contributions of about 4 and a sum of about 9, half a step of a seventh each.
  EXPECT_LT(error, (3 * 4.5 + 10) / 14);
}

TEST(SparseCodec, EntriesThatNoEncoderWritesAreNamed) {
  const std::vector<float> values = normal_floats(4, 200);
  const std::string spec = "int6/32+sparse:2%";  // 4 outliers
  const Bytes good = encode(codec_of(spec), values);
  const auto message_of = [&](size_t at, uint16_t bits) {
    Bytes payload = good;
    store_unaligned(payload.data() + at, bits);
    std::vector<float> out(values.size(), 7);
    const Status status = decode_payload(spec, DataType::kFloat32, payload, out.size(), out.data());
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
    EXPECT_EQ(out, std::vector<float>(values.size(), 7));
    // All the same it decodes, and to the same bits in parts.
    const std::vector<float> whole = decode(codec_of(spec), payload, values.size());
    std::vector<float> parts(values.size());
    codec_of(spec).decode_part(payload.data(), {200, 0, 96}, parts.data());
    codec_of(spec).decode_part(payload.data(), {200, 96, 104}, parts.data() + 96);
    EXPECT_EQ(std::memcmp(whole.data(), parts.data(), 4 * whole.size()), 0);
    return std::string(status.message());
  };
  const auto second = load_unaligned<uint16_t>(good.data() + 4);
  EXPECT_THAT(message_of(12, 200), HasSubstr("outlier 3 of the section that begins at 0 has the "
                                             "index 200; the section has 200 values"));
  EXPECT_THAT(message_of(0, 0xffff), HasSubstr("outlier 0"));
  EXPECT_THAT(message_of(8, second), HasSubstr("does not ascend"));
  EXPECT_THAT(message_of(4, 0), HasSubstr("outlier 1"));
  EXPECT_THAT(message_of(6, 0x7f80), HasSubstr("outlier 1 of the section that begins at 0 is no"));
  EXPECT_THAT(message_of(6, 0xffc0), HasSubstr("no finite number"));
  // What follows the entries is checked as ever.
  EXPECT_THAT(message_of(16, 0x7f80), HasSubstr("the scale of block 0"));
}

TEST(SparseCodec, SizesAreThoseOfTheEntriesAndTheSections) {
  const Codec& codec = codec_of("int8/32+sparse:0.2%");
  const Codec& dense = codec_of("int8/32");
  EXPECT_EQ(codec.wire_bytes(0), 0u);
  EXPECT_EQ(codec.wire_bytes(1), dense.wire_bytes(1) + 4);
  EXPECT_EQ(codec.wire_bytes(500), dense.wire_bytes(500) + 4);
  EXPECT_EQ(codec.wire_bytes(501), dense.wire_bytes(501) + 8);
  EXPECT_EQ(codec.wire_bytes(kSectionValues), dense.wire_bytes(kSectionValues) + 4 * 130);
  EXPECT_EQ(codec.wire_bytes(2 * kSectionValues + 1),
            2 * codec.wire_bytes(kSectionValues) + codec.wire_bytes(1));
}

}  // namespace
}  // namespace tersum
