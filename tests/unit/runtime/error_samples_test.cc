// ErrorSamples against the errors of whole sums, and what they teach.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "codec/channel_state.h"
#include "codec/codec.h"
#include "runtime/tuning/auto_codecs.h"
#include "runtime/tuning/error_samples.h"
#include "runtime/tuning/tuning_codecs.h"

namespace tersum {
namespace {

constexpr uint64_t kSeed = 20261122;
constexpr int kRanks = 4;
constexpr size_t kCount = 100'003;
using Values = std::vector<float>;

CallOptions within(double rel_error, std::string_view site = {}) {
  CallOptions options;
  options.codec = "auto";
  options.max_rel_error = rel_error;
  options.site = site;
  return options;
}

const std::vector<AutoCodec>& ladder() { return find_auto_codecs("auto").value()->codecs; }

CallArguments sum_of(const Values& values) {
  return {Collective::kAllReduce, values.data(), nullptr, values.size()};
}

// Two-step: all contributions but the owner's are coded, and so is the sum.
constexpr PlanErrorTerms kTwoStep{kRanks - 1, 0, 1};

std::vector<Values> bell_shaped(uint64_t seed, double outlier = 1) {
  std::vector<Values> contributions(kRanks, Values(kCount));
  std::mt19937_64 random(seed);
  std::normal_distribution<float> bell;
  for (Values& values : contributions) {
    for (size_t i = 0; i < kCount; ++i) {
      values[i] = bell(random) * static_cast<float>(i % 64 == 7 ? outlier : 1);
    }
  }
  return contributions;
}

// The group's sample of one call, whether or not it is due. `channels`: what each rank knows.
void measure(std::vector<ErrorSamples>& ranks, const std::vector<Values>& contributions,
             const CallOptions& options, uint64_t number = 0,
             const std::vector<const ChannelState*>& channels = {}) {
  const auto known = [&](size_t rank) { return channels.empty() ? nullptr : channels[rank]; };
  std::vector<double> summed;
  for (size_t rank = 0; rank < contributions.size(); ++rank) {
    const Values& values = contributions[rank];
    const auto message =
        ErrorSamples::measure(sum_of(values), options, values.size(), number, known(rank));
    summed.resize(message.size());
    for (size_t i = 0; i < message.size(); ++i) summed[i] += message[i];
  }
  for (size_t rank = 0; rank < ranks.size(); ++rank) {
    ranks[rank].learn(sum_of(contributions[rank]), options, contributions[rank].size(), number,
                      summed, kTwoStep, kRanks, known(rank));
  }
}

Values coded(const Codec& codec, const Values& values, const SlicePlace& place) {
  std::vector<std::byte> wire(codec.wire_bytes(values.size()));
  Values result(values.size());
  codec.encode(values.data(), values.size(), wire.data(), place);
  codec.decode(wire.data(), values.size(), result.data(), place);
  return result;
}

// Of a whole two-step sum whose owner is the last rank.
double whole_error(std::string_view spec, const std::vector<Values>& contributions,
                   const ChannelState* channels = nullptr) {
  const Codec& codec = *find_codec(spec, DataType::kFloat32, ReduceOp::kSum).value();
  SlicePlace place;
  if (channels != nullptr) place.factors = channels->factors();
  std::vector<double> exact(kCount);
  Values sums(kCount);
  for (int rank = 0; rank < kRanks; ++rank) {
    const Values& values = contributions[static_cast<size_t>(rank)];
    const Values sent = rank == kRanks - 1 ? values : coded(codec, values, place);
    for (size_t i = 0; i < kCount; ++i) {
      exact[i] += static_cast<double>(values[i]);
      sums[i] += sent[i];
    }
  }
  const Values result = coded(codec.gathered(kRanks), sums, place);
  double moved = 0, size = 0;
  for (size_t i = 0; i < kCount; ++i) {
    moved += std::pow(static_cast<double>(result[i]) - exact[i], 2);
    size += exact[i] * exact[i];
  }
  return std::sqrt(moved / size);
}

TEST(ErrorSamples, FindWhatWholeSumsLose) {
  for (const double outlier : {1.0, 30.0}) {
    const auto contributions = bell_shaped(kSeed, outlier);
    std::vector<ErrorSamples> ranks(kRanks);
    measure(ranks, contributions, within(1));
    for (const AutoCodec& candidate : ladder()) {
      if (candidate.codec->flattens()) continue;  // knows nothing yet
      const std::string& spec = candidate.spec;
      const double error = whole_error(spec, contributions);
      // The codec itself or a cheaper one holds a little above its error, not a little below.
      const auto above = ranks[0].cheapest(sum_of(contributions[0]), within(1), error * 1.08);
      ASSERT_TRUE(above.has_value());
      EXPECT_LE(whole_error(above->codec, contributions), error * 1.16) << spec;
      const auto below = ranks[0].cheapest(sum_of(contributions[0]), within(1), error * 0.92);
      EXPECT_NE(below->codec, spec) << outlier << ": " << error;
    }
  }
}

TEST(ErrorSamples, BringWhatCodingCostsOnAverage) {
  const auto contributions = bell_shaped(kSeed);
  const size_t measured = tuning_codecs().size();
  std::vector<double> summed;
  for (int rank = 0; rank < kRanks; ++rank) {
    std::vector<CodingSeconds> coding;
    for (size_t i = 0; i < measured + ladder().size(); ++i) {
      const double seconds = 1e-10 * (rank + 1) * static_cast<double>(i + 1);
      coding.push_back({seconds, 2 * seconds, 3 * seconds});
    }
    const auto message =
        ErrorSamples::measure(sum_of(contributions[0]), within(1), kCount, 0, nullptr, coding);
    summed.resize(message.size());
    for (size_t i = 0; i < message.size(); ++i) summed[i] += message[i];
  }
  ErrorSamples samples;
  const CallArguments arguments = sum_of(contributions[0]);
  EXPECT_FALSE(samples.within(arguments, within(1), 1).has_value());
  EXPECT_FALSE(samples.within_bits(arguments, within(1), 1).has_value());
  samples.learn(arguments, within(1), kCount, 0, summed, kTwoStep, kRanks);
  constexpr double kMean = 1e-10 * (kRanks + 1) / 2;
  for (const double allowed : {1e-9, 3e-3, 1e-2, 0.1, 1.0}) {
    const auto found = samples.within(arguments, within(1), allowed);
    ASSERT_TRUE(found.has_value());
    for (size_t i = 0; i < measured; ++i) {
      const CodingSeconds& coding = found->measured_coding[i];
      EXPECT_NEAR(coding.encode, kMean * static_cast<double>(i + 1), 1e-15);
      EXPECT_DOUBLE_EQ(coding.decode_add, 2 * coding.encode);
      EXPECT_DOUBLE_EQ(coding.finish, 3 * coding.encode);
    }
    uint32_t bits = 0;
    for (const SampledCodec& codec : found->within) {
      size_t place = 0;
      while (ladder()[place].spec != codec.codec) ++place;
      bits |= uint32_t{1} << place;
      EXPECT_LE(codec.rel_error, allowed);
      EXPECT_NEAR(codec.coding.encode, kMean * static_cast<double>(measured + place + 1), 1e-15);
      EXPECT_DOUBLE_EQ(codec.coding.decode_add, 2 * codec.coding.encode);
      EXPECT_DOUBLE_EQ(codec.coding.finish, 3 * codec.coding.encode);
    }
    EXPECT_EQ(samples.within_bits(arguments, within(1), allowed), bits);
    const auto cheapest = samples.cheapest(arguments, within(1), allowed);
    EXPECT_EQ(cheapest->codec, found->within.empty() ? "exact" : found->within.front().codec);
  }
}

TEST(ErrorSamples, WhatIsKnownIsSaidOfCallsThatAreNotDue) {
  std::vector<ErrorSamples> ranks(1);
  const ErrorSamples& samples = ranks.front();
  const auto contributions = bell_shaped(kSeed);
  const CallArguments arguments = sum_of(contributions[0]);
  const CallOptions options = within(1e-2);
  for (uint64_t sample = 0; sample < 2; ++sample) {
    EXPECT_FALSE(samples.known_bits(arguments, options, kCount, 1000).has_value());
    measure(ranks, contributions, options, sample);
  }
  int due = 0, known = 0;
  for (uint64_t call = 2; call < 2000; ++call) {
    const auto bits = samples.known_bits(arguments, options, kCount, call);
    if (samples.is_due(arguments, options, kCount, call)) {
      ++due;
      EXPECT_FALSE(bits.has_value()) << call;
    } else {
      ++known;
      EXPECT_EQ(bits, samples.within_bits(arguments, options, 1e-2)) << call;
    }
  }
  EXPECT_GT(due, 0);
  EXPECT_GT(known, 1000);
  EXPECT_FALSE(samples.known_bits(arguments, within(1e-2, "elsewhere"), kCount, 1000).has_value());
}

// What is asked again is remembered, until the site learns or forgets.
TEST(ErrorSamples, TheSetIsAsOfTheLastSample) {
  std::vector<ErrorSamples> ranks(1);
  ErrorSamples& samples = ranks.front();
  const Values values(kCount);
  const auto expect_set = [&](double allowed) {
    for (int asked = 0; asked < 2; ++asked) {
      size_t found = 0;
      const uint32_t bits = samples.within_bits(sum_of(values), within(1), allowed).value();
      for (size_t i = 0; i < ladder().size(); ++i) found += bits >> i & 1;
      EXPECT_EQ(found, samples.within(sum_of(values), within(1), allowed)->within.size());
    }
    return *samples.within_bits(sum_of(values), within(1), allowed);
  };
  measure(ranks, bell_shaped(kSeed), within(1), 0);
  const uint32_t before = expect_set(1e-2);
  EXPECT_NE(expect_set(0.1), before);
  EXPECT_EQ(expect_set(1e-2), before);
  measure(ranks, bell_shaped(kSeed + 1, 30), within(1), 1);
  EXPECT_NE(expect_set(1e-2), before) << "outliers cost int8 its place";
}

TEST(ErrorSamples, AreTheSameOnAllRanks) {
  std::vector<ErrorSamples> ranks(kRanks);
  measure(ranks, bell_shaped(kSeed), within(1));
  const auto contributions = bell_shaped(kSeed + 1, 10);
  measure(ranks, contributions, within(1), 1);
  for (const double allowed : {1e-6, 3e-3, 1e-2, 3e-2, 0.1, 0.3, 1.0}) {
    const auto first = ranks[0].cheapest(sum_of(contributions[0]), within(1), allowed);
    for (size_t rank = 1; rank < ranks.size(); ++rank) {
      EXPECT_EQ(ranks[rank].cheapest(sum_of(contributions[rank]), within(1), allowed), first);
    }
  }
}

TEST(ErrorSamples, TakeTheFewestBitsThatHold) {
  std::vector<ErrorSamples> ranks(kRanks);
  const auto contributions = bell_shaped(kSeed);
  measure(ranks, contributions, within(1), 1);
  const auto codec = [&](double allowed) {
    return ranks[0].cheapest(sum_of(contributions[0]), within(1), allowed)->codec;
  };
  EXPECT_EQ(codec(1e-5), "exact");
  EXPECT_EQ(codec(5e-3), "bf16");
  EXPECT_EQ(codec(0.0095), "int8/128");
  EXPECT_EQ(codec(0.02), "int7/128");
  EXPECT_EQ(codec(0.04), "int6/128");
  EXPECT_EQ(codec(0.4), "int3/64+hadamard");
  EXPECT_EQ(codec(0.5), "five/32");
}

TEST(ErrorSamples, AWorseSampleCountsForFourSamples) {
  std::vector<ErrorSamples> ranks(kRanks);
  const auto calm = bell_shaped(kSeed);
  const auto wild = bell_shaped(kSeed, 100);
  const auto codec = [&] { return ranks[0].cheapest(sum_of(calm[0]), within(1), 0.0105)->codec; };
  uint64_t number = 0;
  const auto sample = [&](const std::vector<Values>& contributions) {
    measure(ranks, contributions, within(1), number++);
  };
  sample(calm);
  EXPECT_EQ(codec(), "int8/128");
  sample(wild);
  EXPECT_NE(codec(), "int8/128");
  for (int i = 0; i < 3; ++i) sample(calm);
  EXPECT_NE(codec(), "int8/128");
  sample(calm);
  EXPECT_EQ(codec(), "int8/128");
}

TEST(ErrorSamples, AreTakenTwiceAndThenByLot) {
  std::vector<ErrorSamples> ranks(kRanks);
  for (const size_t count : {size_t{1000}, size_t{300'000}, size_t{3'000'000}}) {
    const std::vector<Values> ones(kRanks, Values(count, 1.0F));
    const CallArguments arguments = sum_of(ones[0]);
    for (uint64_t number = 0; number < 2; ++number) {
      EXPECT_TRUE(ranks[0].is_due(arguments, within(1), arguments.count, number));
      measure(ranks, ones, within(1), number);
    }
    size_t taken = 0;
    for (uint64_t number = 0; number < 51'200; ++number) {
      const bool due = ranks[0].is_due(arguments, within(1), arguments.count, number);
      EXPECT_EQ(ranks[1].is_due(arguments, within(1), arguments.count, number), due);
      taken += due ? 1 : 0;
    }
    const double expected = 51'200.0 / static_cast<double>(ErrorSamples::calls_per_sample(count));
    EXPECT_NEAR(static_cast<double>(taken), expected, 5 * std::sqrt(expected));
    EXPECT_TRUE(ranks[0].is_due(arguments, within(1, "elsewhere"), arguments.count, 0));
  }
}

TEST(ErrorSamples, AreRareWhereSumsAreShort) {
  EXPECT_EQ(ErrorSamples::calls_per_sample(0), 256U);
  EXPECT_EQ(ErrorSamples::calls_per_sample(65'536), 256U);
  EXPECT_EQ(ErrorSamples::calls_per_sample(512 << 10), 32U);
  EXPECT_EQ(ErrorSamples::calls_per_sample(1 << 20), 16U);
  EXPECT_EQ(ErrorSamples::calls_per_sample(size_t{1} << 40), 16U);
  // Of a list, or of parts, the whole counts, not what one call names.
  std::vector<ErrorSamples> ranks(kRanks);
  const std::vector<Values> ones(kRanks, Values(kCount, 1.0F));
  for (uint64_t number = 0; number < 2; ++number) measure(ranks, ones, within(1), number);
  size_t often = 0;
  for (uint64_t number = 0; number < 1600; ++number) {
    often += ranks[0].is_due(sum_of(ones[0]), within(1), 1 << 20, number) ? 1 : 0;
  }
  EXPECT_NEAR(static_cast<double>(often), 100, 50);
}

TEST(ErrorSamples, ACallInWhichRanksDisagreeLeavesNoTrace) {
  std::vector<ErrorSamples> ranks(kRanks);
  auto contributions = bell_shaped(kSeed);
  contributions[1].resize(kCount - 1);  // another call, whose message is as long
  measure(ranks, contributions, within(1));
  for (size_t rank = 0; rank < ranks.size(); ++rank) {
    EXPECT_FALSE(ranks[rank].cheapest(sum_of(contributions[rank]), within(1), 1).has_value());
  }
  contributions[1] = contributions[0];
  for (uint64_t number = 0; number < 2; ++number) {
    for (const ErrorSamples& rank : ranks) {
      EXPECT_TRUE(rank.is_due(sum_of(contributions[0]), within(1), kCount, number));
    }
    measure(ranks, contributions, within(1), number);
  }
  for (uint64_t number = 0; number < 1000; ++number) {
    for (const ErrorSamples& rank : ranks) {
      EXPECT_EQ(rank.is_due(sum_of(contributions[0]), within(1), kCount, number),
                ranks[0].is_due(sum_of(contributions[0]), within(1), kCount, number));
    }
  }
}

TEST(ErrorSamples, WhatIsNoNumberTeachesNothing) {
  std::vector<ErrorSamples> ranks(kRanks);
  auto contributions = bell_shaped(kSeed);
  for (float& value : contributions[2]) value = std::numeric_limits<float>::infinity();
  measure(ranks, contributions, within(1));
  EXPECT_FALSE(ranks[0].cheapest(sum_of(contributions[0]), within(1), 0.5).has_value());
}

TEST(ErrorSamples, ZerosCostNothingWhereNothingElseIs) {
  std::vector<ErrorSamples> ranks(kRanks);
  const std::vector<Values> zeros(kRanks, Values(700));
  measure(ranks, zeros, within(1));
  EXPECT_EQ(ranks[0].cheapest(sum_of(zeros[0]), within(1), 1e-9)->codec, ladder().back().spec);
  // Of many values the sample may have missed the others.
  const std::vector<Values> many(kRanks, Values(kCount));
  measure(ranks, many, within(1));
  EXPECT_FALSE(ranks[0].cheapest(sum_of(many[0]), within(1), 1).has_value());
}

TEST(ErrorSamples, ShortArraysAreTakenWhole) {
  const size_t costs = ErrorSamples::kCodingTimes * (ladder().size() + tuning_codecs().size());
  const size_t behind = ladder().size() + costs + ErrorSamples::kDigests;
  for (const size_t count : {size_t{1}, size_t{511}, size_t{512}, size_t{513}, size_t{4096}}) {
    const Values ones(count, 1.0F);
    EXPECT_EQ(ErrorSamples::measure(sum_of(ones), within(1), count, 7).size(), count + behind);
  }
  const Values more(4099, 1.0F);
  EXPECT_LE(ErrorSamples::measure(sum_of(more), within(1), more.size(), 7).size(),
            ErrorSamples::kRuns * ErrorSamples::kRunValues + behind);
}

TEST(ErrorSamples, SumsThatCancelAreMeasuredAsSuch) {
  // Ranks that hold nearly opposite values: small sums of large contributions.
  auto contributions = bell_shaped(kSeed);
  for (size_t i = 0; i < kCount; ++i) {
    contributions[1][i] = 0.01F * contributions[1][i] - contributions[0][i];
    contributions[3][i] = 0.01F * contributions[3][i] - contributions[2][i];
  }
  std::vector<ErrorSamples> ranks(kRanks);
  measure(ranks, contributions, within(1), 1);
  EXPECT_GT(whole_error("int8/128", contributions), 0.3);
  EXPECT_EQ(ranks[0].cheapest(sum_of(contributions[0]), within(1), 0.1)->codec, "exact");
}

TEST(ErrorSamples, SitesBeyondTheRoomAreMeasuredByLotOnly) {
  std::vector<ErrorSamples> ranks(kRanks);
  const std::vector<Values> ones(kRanks, Values(100, 1.0F));
  const CallArguments arguments = sum_of(ones[0]);
  std::vector<std::string> names;
  names.reserve(ErrorSamples::kSitesKept + 1);
  for (size_t i = 0; i <= ErrorSamples::kSitesKept; ++i) names.push_back(std::to_string(i));
  for (size_t i = 0; i < ErrorSamples::kSitesKept; ++i) {
    for (uint64_t number = 0; number < 2; ++number) {
      EXPECT_TRUE(ranks[0].is_due(arguments, within(1, names[i]), arguments.count, number));
      measure(ranks, ones, within(1, names[i]), number);
    }
  }
  size_t due = 0;
  for (uint64_t number = 0; number < 2560; ++number) {
    due += ranks[0].is_due(arguments, within(1, names.back()), arguments.count, number) ? 1 : 0;
  }
  EXPECT_LT(due, 30U);
  // One that the lot fell on takes the place of the one measured longest ago.
  measure(ranks, ones, within(1, names.back()));
  EXPECT_TRUE(ranks[0].cheapest(arguments, within(1, names.back()), 1).has_value());
  EXPECT_FALSE(ranks[0].cheapest(arguments, within(1, names.front()), 1).has_value());
}

}  // namespace
}  // namespace tersum
