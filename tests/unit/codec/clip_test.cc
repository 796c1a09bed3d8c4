// The modifier +clip:learned: how a clip is learned and given up, what a held slice holds, and that
// reports add up to the same whatever the order.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "codec/clip_report.h"
#include "codec/kernels/dispatch.h"
#include "codec/learned_clip.h"
#include "coded_slices.h"
#include "nasty_values.h"
#include "normal_floats.h"

namespace tersum {
namespace {

using Bytes = std::vector<std::byte>;
using testing::HasSubstr;

const Codec& codec_of(const std::string& spec, DataType type = DataType::kFloat32) {
  return *find_codec(spec, type, ReduceOp::kSum).value();
}

double rel_error(const std::vector<float>& exact, const std::vector<float>& got) {
  double off = 0;
  double all = 0;
  for (size_t i = 0; i < exact.size(); ++i) {
    off += std::pow(double{got[i]} - exact[i], 2);
    all += std::pow(double{exact[i]}, 2);
  }
  return std::sqrt(off / all);
}

ClipReport report_of(const Bytes& wire) {
  return read_clip_report(wire.data() + wire.size() - kClipReportBytes);
}

ClipPart part_with(float absmax, int64_t pull, int64_t clipped, int64_t blocks) {
  return {1, float_bits(absmax), pull, clipped, blocks};
}

// One call of one contribution after the other through the codec that its state asks for.
struct Site {
  explicit Site(const std::string& spec) : blocks(codec_of(spec)) {}

  [[nodiscard]] bool is_held() const { return state.holds(false); }
  // What it decodes to.
  std::vector<float> call(const std::vector<float>& values) {
    const Codec& codec = is_held() ? *blocks.held() : blocks;
    const ClipFactors clips = state.factors(2);
    SlicePlace place;
    place.clips = &clips;
    const Bytes wire = encode(codec, values, place);
    bits = 8.0 * static_cast<double>(wire.size()) / static_cast<double>(values.size());
    EXPECT_TRUE(codec.check_wire(wire.data(), values.size()).ok());
    ClipReport report;
    report.contributions = report_of(wire).contributions;
    state.learn(report);
    return decode(codec, wire, values.size(), place);
  }

  const Codec& blocks;
  LearnedClip state;
  double bits = 0;
};

// reference/codecs.md section 3, PAMS: int4 of N(0,1), learned 0.1139, best clip 0.1139, at 4.00
// bits better than int4/128.
TEST(LearnedClip, finds_the_best_clip_of_normal_values) {
  Site site("int4/128+clip:learned");
  double last = 0;
  for (uint64_t call = 0; call < 40; ++call) {
    const std::vector<float> values = normal_floats(call + 1, 100'000);
    const bool held = site.is_held();
    last = rel_error(values, site.call(values));
    EXPECT_FALSE(held && call < LearnedClip::kCallsMin) << call;
  }
  EXPECT_TRUE(site.is_held());
  EXPECT_NEAR(last, 0.1139, 0.0012);
  EXPECT_LT(site.bits, 4.01);
  // 0.335 of a step at 7 steps: 2.35 to 2.7 is within 1 % of the best error.
  EXPECT_NEAR(site.state.factors(2).contribution, 2.5, 0.25);
}

// The same with outlier channels: absmax in blocks is the better choice and stays it.
TEST(LearnedClip, leaves_blocks_alone_where_these_lose_less) {
  Site site("int4/32+clip:learned");
  for (uint64_t call = 0; call < 20; ++call) {
    std::vector<float> values = normal_floats(call + 1, 64'000);
    for (size_t i = 0; i < values.size(); i += 256) values[i] *= 60;
    const double with = rel_error(values, site.call(values));
    const Codec& plain = codec_of("int4/32");
    const double without = rel_error(values, decode(plain, encode(plain, values), values.size()));
    EXPECT_LE(with, 1.000001 * without) << call;
    EXPECT_FALSE(site.is_held());
  }
}

TEST(LearnedClip, is_given_up_when_the_error_rises_and_comes_back) {
  Site site("int4/128+clip:learned");
  uint64_t seed = 1;
  const auto calls = [&](float scale, int count) {
    double worst = 0;
    for (int i = 0; i < count; ++i) {
      const std::vector<float> values = normal_floats(seed++, 50'000, scale);
      worst = std::max(worst, rel_error(values, site.call(values)));
    }
    return worst;
  };
  calls(1, 30);
  ASSERT_TRUE(site.is_held());
  // The first call of a thousandfold size is the one that shows it.
  EXPECT_GT(calls(1000, 1), 0.9);
  EXPECT_FALSE(site.is_held());
  EXPECT_LT(calls(1000, 30), 0.12);
  EXPECT_TRUE(site.is_held());
  // Small values after large ones: nothing was beyond the clip, which is far too large.
  calls(0.01F, 1);
  EXPECT_FALSE(site.is_held());
  EXPECT_LT(calls(0.01F, 30), 0.12);
  EXPECT_TRUE(site.is_held());
}

TEST(LearnedClip, keeps_what_it_knows_where_a_call_says_nothing) {
  LearnedClip state;
  state.learn({part_with(2, 0, 0, 0), {}});
  const uint64_t before = state.digest();
  const float nan = std::numeric_limits<float>::quiet_NaN();
  state.learn({part_with(0, 5, 0, 0), {}});
  state.learn({part_with(nan, 5, 0, 0), {}});
  state.learn({});
  EXPECT_EQ(state.digest(), before);
  EXPECT_EQ(state.factors(4).contribution, 2.0F);
  EXPECT_EQ(state.factors(4).sum, 0.0F);
}

// The rule of docs/codecs.md, step by step.
TEST(LearnedClip, steps_longer_the_same_way_and_shorter_where_it_turns) {
  LearnedClip state;
  const auto clip_after = [&](int64_t pull, int64_t clipped = 1) {
    state.learn({part_with(100, pull, clipped, 2), {}});
    return double{state.factors(2).contribution};
  };
  EXPECT_EQ(clip_after(-1), 100);
  double expected = 100 / 1.1;
  EXPECT_FLOAT_EQ(static_cast<float>(clip_after(-1)), static_cast<float>(expected));
  EXPECT_FALSE(state.holds(false));
  // Trusted from here on.
  expected /= 1 + LearnedClip::kRateTrusted;
  EXPECT_FLOAT_EQ(static_cast<float>(clip_after(-7)), static_cast<float>(expected));
  EXPECT_TRUE(state.holds(false));
  EXPECT_FALSE(state.holds(true));
  expected *= 1 + LearnedClip::kRateTrusted / 2;
  EXPECT_FLOAT_EQ(static_cast<float>(clip_after(1)), static_cast<float>(expected));
  EXPECT_FLOAT_EQ(static_cast<float>(clip_after(0)), static_cast<float>(expected));
  clip_after(1, 3);
  EXPECT_FALSE(state.holds(false));
  EXPECT_EQ(clip_after(1, 1000), 100);
}

TEST(LearnedClip, is_saved_and_loaded_to_the_last_bit) {
  LearnedClip state;
  std::mt19937_64 random(1);
  for (int i = 0; i < 9; ++i) {
    const auto pull = static_cast<int64_t>(random() % 201) - 100;
    state.learn({part_with(3, pull, 1, 1), part_with(5, -pull, 1, 1)});
  }
  Bytes saved(LearnedClip::kSavedBytes);
  state.save(saved);
  LearnedClip loaded;
  ASSERT_TRUE(loaded.load(saved));
  EXPECT_EQ(loaded.digest(), state.digest());
  EXPECT_TRUE(loaded.holds(true));
  const uint64_t before = loaded.digest();
  for (const size_t at : {size_t{7}, size_t{15}, size_t{16}, size_t{24}, size_t{32}}) {
    Bytes bad = saved;
    bad[at] ^= std::byte{0xff};
    if (at == 24) std::fill_n(bad.begin() + 24, 8, std::byte{0});
    EXPECT_FALSE(loaded.load(bad)) << at;
    EXPECT_EQ(loaded.digest(), before) << at;
  }
  EXPECT_FALSE(loaded.load(std::span(saved).first(79)));
}

TEST(ClipReport, adds_up_to_the_same_in_any_order) {
  std::mt19937_64 random(3);
  std::vector<Bytes> wires(200, Bytes(kClipReportBytes));
  for (Bytes& wire : wires) {
    for (std::byte& byte : wire) byte = static_cast<std::byte>(random());
  }
  const auto total = [&] {
    ClipReport sum;
    for (const Bytes& wire : wires) {
      const ClipReport report = read_clip_report(wire.data());
      sum.contributions.add(report.contributions, false);
      sum.sums.add(report.sums, false);
    }
    return sum;
  };
  const ClipReport first = total();
  for (int i = 0; i < 20; ++i) {
    std::shuffle(wires.begin(), wires.end(), random);
    EXPECT_EQ(total(), first);
  }
  EXPECT_LE(first.contributions.pull, 200 * kClipSumMax);
}

RC_GTEST_PROP(ClipReport, is_read_as_it_was_written, ()) {
  const auto sum = [] { return *rc::gen::inRange<int64_t>(0, kClipSumMax + 1); };
  const auto part = [&](uint32_t terms) {
    return ClipPart{terms, *rc::gen::inRange<uint32_t>(0, kFloatInfinity), sum() - sum(), sum(),
                    sum()};
  };
  const ClipReport report{part(*rc::gen::inRange<uint32_t>(0, kClipTermsMax + 1)),
                          part(*rc::gen::inRange<uint32_t>(0, 2))};
  Bytes wire(kClipReportBytes);
  write_clip_report(report, wire.data());
  RC_ASSERT(check_clip_report(wire.data()).ok());
  RC_ASSERT(read_clip_report(wire.data()) == report);
}

// Nothing but the values' own bits decides, on every instruction set, whatever they are.
RC_GTEST_PROP(ClipCodec, held_slices_are_the_same_on_every_target, ()) {
  const auto type = *rc::gen::element(DataType::kFloat32, DataType::kBFloat16, DataType::kFloat16);
  const auto spec = *rc::gen::element<std::string>(
      "int8/128+clip:learned", "int4/128+clip:learned", "int5/64+clip:learned",
      "int2/32+hadamard+clip:learned", "int4/32+hadamard+clip:learned");
  const Codec& codec = *codec_of(spec, type).held();
  const auto count =
      *rc::gen::oneOf(rc::gen::inRange<size_t>(1, 300), rc::gen::inRange<size_t>(1, 14'000));
  const auto seed = *rc::gen::arbitrary<uint64_t>();
  const ClipFactors clips{*rc::gen::element(0.0F, 0x1p-140F, 0.5F, 3.0F, 0x1p120F),
                          *rc::gen::element(0.0F, 0x1p-140F, 0.7F, 9.0F, 0x1p120F), 3};
  RC_LOG() << spec << ", seed " << seed << ", " << count << "\n";
  const Bytes values = nasty_elements(seed, count, type);
  const Bytes other = nasty_elements(seed + 1, count, type);
  SlicePlace place;
  place.clips = &clips;
  std::vector<Bytes> seen;
  for (const int64_t target : available_targets()) {
    force_target(target);
    Bytes wire(codec.wire_bytes(count));
    codec.encode(values.data(), count, wire.data(), place);
    Bytes sum(codec.wire_bytes(count));
    Bytes kept(values.size());
    const std::byte* const wires[] = {wire.data()};
    codec.combine(wires, other.data(), 1, count, {ReduceOp::kSum, 1, 3}, sum.data(), kept.data(),
                  place);
    Bytes decoded(values.size());
    codec.decode(sum.data(), count, decoded.data(), place);
    RC_ASSERT(codec.check_wire(wire.data(), count).ok());
    RC_ASSERT(codec.check_wire(sum.data(), count).ok());
    RC_ASSERT(decoded == kept);
    wire.insert(wire.end(), sum.begin(), sum.end());
    wire.insert(wire.end(), kept.begin(), kept.end());
    seen.push_back(std::move(wire));
  }
  unforce_target();
  for (const Bytes& bytes : seen) RC_ASSERT(bytes == seen.front());
}

TEST(ClipCodec, a_slice_with_something_not_finite_is_nan) {
  const Codec& codec = *codec_of("int4/128+clip:learned").held();
  const ClipFactors clips{2, 2, 4};
  SlicePlace place;
  place.clips = &clips;
  for (const float odd :
       {std::numeric_limits<float>::quiet_NaN(), -std::numeric_limits<float>::infinity()}) {
    std::vector<float> values = normal_floats(1, 9000);
    values[8123] = odd;
    const Bytes wire = encode(codec, values, place);
    EXPECT_TRUE(codec.check_wire(wire.data(), values.size()).ok());
    for (const float value : decode(codec, wire, values.size())) ASSERT_TRUE(std::isnan(value));
    EXPECT_EQ(report_of(wire).contributions, (ClipPart{1, kFloatNan, 0, 0, 0}));
  }
}

TEST(ClipCodec, limits_what_is_beyond_the_clip) {
  const Codec& codec = *codec_of("int4/32+clip:learned").held();
  const ClipFactors clips{7, 70, 2};
  SlicePlace place;
  place.clips = &clips;
  const std::vector<float> values = {0, 1, -2.4F, 6.6F, 7, 8, -100, 300};
  const Bytes wire = encode(codec, values, place);
  EXPECT_EQ(wire.size(), 4 + 4 + kClipReportBytes);
  EXPECT_EQ(decode(codec, wire, values.size()), (std::vector<float>{0, 1, -2, 7, 7, 7, -7, 7}));
  // Terms add up, and so do reports; what this rank adds is not coded on the way.
  const std::byte* const wires[] = {wire.data(), wire.data()};
  Bytes sum(codec.wire_bytes(values.size()));
  codec.combine(wires, values.data(), 2, values.size(), {ReduceOp::kSum, 1, 3}, sum.data(), nullptr,
                place);
  const ClipReport report = report_of(sum);
  EXPECT_EQ(report.contributions.terms, 3U);
  EXPECT_EQ(report.contributions.pull, 2 * report_of(wire).contributions.pull);
  EXPECT_EQ(report.contributions.absmax_bits, float_bits(300.0F));
  EXPECT_EQ(report.sums.terms, 1U);
  EXPECT_GT(report.sums.pull, 0);
  EXPECT_FLOAT_EQ(load_unaligned<float>(sum.data()), 10.0F);
}

// A partial sum of k of R contributions lies between one and all of them, by a power of k.
TEST(ClipCodec, partial_sums_have_clips_between) {
  const Codec& codec = *codec_of("int8/32+clip:learned").held();
  const ClipFactors clips{127, 4 * 127, 16};
  SlicePlace place;
  place.clips = &clips;
  const std::vector<float> values(64, 100.0F);
  const Bytes one = encode(codec, values, place);
  EXPECT_EQ(load_unaligned<float>(one.data()), 1.0F);
  const std::byte* const wires[] = {one.data(), one.data(), one.data()};
  Bytes four(one.size());
  codec.combine(wires, values.data(), 3, values.size(), {ReduceOp::kSum, 1, 1}, four.data(),
                nullptr, place);
  EXPECT_FLOAT_EQ(load_unaligned<float>(four.data()), 2.0F);
  EXPECT_EQ(report_of(four).contributions.terms, 4U);
  EXPECT_EQ(report_of(four).sums, ClipPart());
  // Of an average the sums' clip is that of what was divided.
  place.divisor = 16;
  const ClipFactors averages{127, 127.0F / 4, 16};
  place.clips = &averages;
  codec.combine(wires, values.data(), 3, values.size(), {ReduceOp::kAverage, 1, 1}, four.data(),
                nullptr, place);
  EXPECT_FLOAT_EQ(load_unaligned<float>(four.data()), 2.0F);
}

TEST(ClipCodec, outside_of_a_call_that_learns_slices_are_in_blocks) {
  const std::vector<float> values = normal_floats(5, 1000);
  const Bytes wire = encode(codec_of("int4/128+clip:learned"), values);
  const Bytes plain = encode(codec_of("int4/128"), values);
  ASSERT_EQ(wire.size(), plain.size() + kClipReportBytes);
  EXPECT_TRUE(std::equal(plain.begin(), plain.end(), wire.begin()));
  EXPECT_EQ(report_of(wire), ClipReport());
  EXPECT_EQ(codec_of("int4/128+clip:learned").wire_bytes(0), 0U);
}

// Whatever the clip: 0 is a level.
RC_GTEST_PROP(ClipCodec, loses_no_more_than_the_value, ()) {
  const auto spec = *rc::gen::element<std::string>("int8/32+clip:learned", "int3/64+clip:learned");
  const Codec& codec = codec_of(spec);
  const float clip = *rc::gen::element(0.0F, 0.01F, 1.0F, 50.0F);
  const ClipFactors clips{clip, clip, 2};
  SlicePlace place;
  place.clips = &clips;
  const auto seed = *rc::gen::arbitrary<uint64_t>();
  const std::vector<float> values = normal_floats(seed, 500);
  for (const Codec* layout : {&codec, codec.held()}) {
    const std::vector<float> got = decode(*layout, encode(*layout, values, place), values.size());
    for (size_t i = 0; i < values.size(); ++i) {
      RC_ASSERT(std::abs(double{got[i]} - values[i]) <=
                codec.block_error_bound(std::abs(double{values[i]})));
    }
  }
}

TEST(ClipSpec, composes_with_rotations_and_says_why_it_does_not_with_the_rest) {
  EXPECT_EQ(parse_codec_spec("int4+clip:learned+hadamard")->to_string(),
            "int4/128+hadamard+clip:learned");
  EXPECT_EQ(parse_codec_spec("int6/64+clip:learned+flatten")->to_string(),
            "int6/64+flatten+clip:learned");
  const auto error = [](const std::string& spec) {
    return std::string(parse_codec_spec(spec).status().message());
  };
  EXPECT_THAT(error("nf4+clip:learned"), HasSubstr("only int2 to int8"));
  EXPECT_THAT(error("int1+clip:learned"), HasSubstr("only int2 to int8"));
  EXPECT_THAT(error("bf16+clip:learned"), HasSubstr("only int2 to int8"));
  EXPECT_THAT(error("sum8+clip:learned"), HasSubstr("ranks share the scales"));
  EXPECT_THAT(error("int4+clip:learned+sr"), HasSubstr("no level above"));
  EXPECT_THAT(error("int4+clip:learned+feedback"), HasSubstr("owed"));
  EXPECT_THAT(error("int4+rows:64+clip:learned"), HasSubstr("row"));
  EXPECT_THAT(error("int4+sparse:1%+clip:learned"), HasSubstr("sparse"));
  EXPECT_THAT(error("int4+mixed+clip:learned"), HasSubstr("mixed"));
  EXPECT_THAT(error("int4+shiftadd+clip:learned"), HasSubstr("power of two"));
  EXPECT_THAT(error("int4+clip"), HasSubstr("clip:learned"));
  EXPECT_THAT(error("int4+clip:0.5"), HasSubstr("clip:learned"));
}

}  // namespace
}  // namespace tersum
