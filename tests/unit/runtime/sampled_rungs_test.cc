// Which codec samples choose, against an exhaustive measurement of whole two-step sums by every
// codec of the ladder; and codecs that flatten, judged by what a site knows of its channels.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "codec/channel_state.h"
#include "codec/codec.h"
#include "runtime/tuning/auto_codecs.h"
#include "runtime/tuning/error_samples.h"

namespace tersum {
namespace {

using Values = std::vector<float>;

constexpr uint64_t kSeed = 20261124;
constexpr size_t kChannels = 512;
constexpr size_t kCount = 256 * kChannels;

CallOptions within(double rel_error, std::string_view codec = "auto") {
  CallOptions options;
  options.codec = codec;
  options.max_rel_error = rel_error;
  options.channels = kChannels;
  return options;
}

CallArguments sum_of(const Values& values) {
  return {Collective::kAllReduce, values.data(), nullptr, values.size()};
}

// Kinds of reference data: "plain" N(0,1); "act": one channel in 128 a hundredfold; "grad": each
// position has a magnitude of its own, exp(1.5 N), the same on all ranks.
std::vector<Values> data_of(std::string_view kind, size_t ranks, uint64_t seed = kSeed) {
  std::vector<Values> contributions(ranks, Values(kCount));
  std::mt19937_64 random(seed);
  std::normal_distribution<float> bell;
  Values sizes(kCount, 1);
  for (size_t i = 0; i < kCount; ++i) {
    if (kind == "act" && i % 128 == 7) sizes[i] = 100;
    if (kind == "grad") sizes[i] = std::exp(1.5F * bell(random));
  }
  for (Values& values : contributions) {
    for (size_t i = 0; i < kCount; ++i) values[i] = bell(random) * sizes[i];
  }
  return contributions;
}

Values exact_sum(const std::vector<Values>& contributions) {
  Values sum(kCount);
  for (size_t i = 0; i < kCount; ++i) {
    double exact = 0;
    for (const Values& values : contributions) exact += static_cast<double>(values[i]);
    sum[i] = static_cast<float>(exact);
  }
  return sum;
}

// What a site knows after one call with those sums.
ChannelState taught_by(const Values& sums) {
  ChannelState state(kChannels);
  state.observe(sums.data(), sums.size(), DataType::kFloat32, 1);
  EXPECT_NE(state.factors(), nullptr);
  return state;
}

Values coded(const Codec& codec, const Values& values, const SlicePlace& place) {
  std::vector<std::byte> wire(codec.wire_bytes(values.size()));
  Values result(values.size());
  codec.encode(values.data(), values.size(), wire.data(), place);
  codec.decode(wire.data(), values.size(), result.data(), place);
  return result;
}

// Of a whole two-step sum whose owner is the last rank.
double whole_error(const Codec& codec, const std::vector<Values>& contributions,
                   const ChannelState* channels) {
  SlicePlace place;
  if (channels != nullptr) place.factors = channels->factors();
  const Values exact = exact_sum(contributions);
  Values sums = contributions.back();
  for (size_t rank = 0; rank + 1 < contributions.size(); ++rank) {
    const Values sent = coded(codec, contributions[rank], place);
    for (size_t i = 0; i < kCount; ++i) sums[i] += sent[i];
  }
  const auto ranks = static_cast<uint32_t>(contributions.size());
  const Values result = coded(codec.gathered(ranks), sums, place);
  double moved = 0, size = 0;
  for (size_t i = 0; i < kCount; ++i) {
    moved += std::pow(static_cast<double>(result[i]) - static_cast<double>(exact[i]), 2);
    size += std::pow(static_cast<double>(exact[i]), 2);
  }
  return std::sqrt(moved / size);
}

struct Group {
  explicit Group(size_t ranks) : samples(ranks) {}

  void sample(const std::vector<Values>& contributions, const CallOptions& options,
              const std::vector<const ChannelState*>& channels) {
    const auto ranks = static_cast<int>(samples.size());
    std::vector<double> summed;
    for (size_t rank = 0; rank < samples.size(); ++rank) {
      const auto message =
          ErrorSamples::measure(sum_of(contributions[rank]), options, kCount, call, channels[rank]);
      summed.resize(message.size());
      for (size_t i = 0; i < message.size(); ++i) summed[i] += message[i];
    }
    const PlanErrorTerms two_step{static_cast<uint32_t>(ranks - 1), 0, 1};
    for (size_t rank = 0; rank < samples.size(); ++rank) {
      samples[rank].learn(sum_of(contributions[rank]), options, kCount, call, summed, two_step,
                          ranks, channels[rank]);
    }
    ++call;
  }
  void sample(const std::vector<Values>& contributions, const CallOptions& options,
              const ChannelState* channels = nullptr) {
    sample(contributions, options, std::vector<const ChannelState*>(samples.size(), channels));
  }
  // The same on all ranks.
  std::string choice(double allowed, const Values& values, std::string_view codec = "auto") const {
    const auto first = samples[0].cheapest(sum_of(values), within(1, codec), allowed);
    for (const ErrorSamples& rank : samples) {
      EXPECT_EQ(rank.cheapest(sum_of(values), within(1, codec), allowed), first);
    }
    return first.has_value() ? std::string(first->codec) : "none";
  }

  std::vector<ErrorSamples> samples;
  uint64_t call = 0;
};

const AutoCodec& rung(std::string_view spec) {
  const auto& codecs = find_auto_codecs("auto").value()->codecs;
  return *std::find_if(codecs.begin(), codecs.end(),
                       [&](const AutoCodec& codec) { return codec.spec == spec; });
}

class SampledRungs : public testing::TestWithParam<size_t> {};

TEST_P(SampledRungs, AreTheCheapestThatHold) {
  const auto ranks = static_cast<int>(GetParam());
  for (const std::string_view kind : {"plain", "act", "grad"}) {
    const auto contributions = data_of(kind, GetParam());
    const ChannelState channels = taught_by(exact_sum(data_of(kind, GetParam(), kSeed + 1)));
    Group group(GetParam());
    for (int i = 0; i < 4; ++i) group.sample(contributions, within(1), &channels);
    const auto& codecs = find_auto_codecs("auto").value()->codecs;
    std::vector<double> errors;
    for (const AutoCodec& codec : codecs) {
      errors.push_back(whole_error(*codec.codec, contributions, &channels));
    }
    // What 4,096 values say of so uneven ones differs from sample to sample.
    const double doubt = kind == "grad" ? 0.3 : kind == "act" ? 0.15 : 0.1;
    for (const double allowed : {0.003, 0.006, 0.012, 0.025, 0.05, 0.1, 0.2, 0.4, 0.9}) {
      const std::string choice = group.choice(allowed, contributions[0]);
      size_t cost = std::numeric_limits<size_t>::max();
      for (size_t i = 0; i < codecs.size(); ++i) {
        if (codecs[i].spec != choice) continue;
        EXPECT_LE(errors[i], allowed * (1 + doubt)) << kind << " " << choice;
        cost = wire_cost(codecs[i], ranks);
      }
      for (size_t i = 0; i < codecs.size(); ++i) {
        if (wire_cost(codecs[i], ranks) >= cost) continue;
        const double margin = codecs[i].is_sectioned ? ErrorSamples::kSectionDoubt : 1;
        EXPECT_GT(errors[i] * margin, allowed * (1 - 1.5 * doubt))
            << kind << ": " << codecs[i].spec << " is cheaper than " << choice;
      }
    }
  }
}

TEST_P(SampledRungs, FlattenWhereChannelsAreKnown) {
  const auto contributions = data_of("act", GetParam());
  Group group(GetParam());
  group.sample(contributions, within(1));
  const std::string before = group.choice(0.03, contributions[0]);
  EXPECT_EQ(before.find("flatten"), std::string::npos) << before;
  const ChannelState channels = taught_by(exact_sum(contributions));
  group.sample(contributions, within(1), &channels);
  const std::string behind = group.choice(0.03, contributions[0]);
  EXPECT_NE(behind.find("+flatten"), std::string::npos) << behind;
  // Plain int8 loses more there, of 2 bits more.
  EXPECT_GT(whole_error(*rung("int8/128").codec, contributions, nullptr), 0.03);
  EXPECT_LE(wire_cost(rung(behind), 2), wire_cost(rung("int6/128+flatten"), 2));
  EXPECT_LE(whole_error(*rung(behind).codec, contributions, &channels), 0.033);
}

// Until then all calls of a site teach (has_judged_channels()).
TEST_P(SampledRungs, ChannelsAreJudgedByAsManyRowsAsAreRemembered) {
  const auto contributions = data_of("act", GetParam());
  const Values sums = exact_sum(contributions);
  Group group(GetParam());
  const auto judged = [&] {
    const bool first = group.samples[0].has_judged_channels(sum_of(sums), within(1));
    for (const ErrorSamples& rank : group.samples) {
      EXPECT_EQ(rank.has_judged_channels(sum_of(sums), within(1)), first);
    }
    return first;
  };
  const auto taught = [&](size_t rows) {
    ChannelState state(kChannels);
    state.observe(sums.data(), rows * kChannels, DataType::kFloat32, 1);
    return state;
  };
  const ChannelState few = taught(ChannelState::kRowsRemembered - 1);
  const ChannelState enough = taught(ChannelState::kRowsRemembered);
  EXPECT_FALSE(judged());
  group.sample(contributions, within(1));
  EXPECT_FALSE(judged()) << "nothing was known";
  group.sample(contributions, within(1), &few);
  EXPECT_FALSE(judged());
  auto poisoned = contributions;
  for (float& value : poisoned[0]) value = std::numeric_limits<float>::infinity();
  group.sample(poisoned, within(1), &enough);
  EXPECT_FALSE(judged()) << "a sample that is not finite judges nothing";
  group.sample(contributions, within(1), &enough);
  EXPECT_TRUE(judged());
  for (ErrorSamples& rank : group.samples) rank.forget_channels();
  EXPECT_TRUE(judged()) << "by samples alone it changes, which all ranks take alike";
  std::vector<const ChannelState*> channels(GetParam(), &enough);
  channels.back() = &few;
  group.sample(contributions, within(1), channels);
  EXPECT_FALSE(judged()) << "ranks knew different things";
}

TEST_P(SampledRungs, RanksThatKnowOtherThingsDoNotFlatten) {
  const auto contributions = data_of("act", GetParam());
  const ChannelState one = taught_by(exact_sum(contributions));
  const ChannelState other = taught_by(exact_sum(data_of("plain", GetParam())));
  for (const ChannelState* last : {&other, static_cast<const ChannelState*>(nullptr)}) {
    Group group(GetParam());
    std::vector<const ChannelState*> channels(GetParam(), &one);
    channels.back() = last;
    group.sample(contributions, within(1), channels);
    const std::string choice = group.choice(0.03, contributions[0]);
    EXPECT_NE(choice, "none");
    EXPECT_EQ(choice.find("flatten"), std::string::npos) << choice;
  }
}

TEST_P(SampledRungs, WhatWasPutInIsJudgedAnew) {
  const auto contributions = data_of("act", GetParam());
  const ChannelState channels = taught_by(exact_sum(contributions));
  Group group(GetParam());
  group.sample(contributions, within(1), &channels);
  EXPECT_NE(group.choice(0.03, contributions[0]).find("flatten"), std::string::npos);
  for (ErrorSamples& rank : group.samples) rank.forget_channels();
  EXPECT_EQ(group.choice(0.03, contributions[0]).find("flatten"), std::string::npos);
  group.sample(contributions, within(1), &channels);
  EXPECT_NE(group.choice(0.03, contributions[0]).find("flatten"), std::string::npos);
}

TEST_P(SampledRungs, OtherDataTakeADearerOne) {
  const auto calm = data_of("plain", GetParam());
  const ChannelState channels = taught_by(exact_sum(calm));
  Group group(GetParam());
  group.sample(calm, within(1), &channels);
  const std::string before = group.choice(0.04, calm[0]);
  // Ranks that nearly cancel: sums of a fifth, which lose as much as before.
  auto wild = calm;
  for (size_t rank = 1; rank < GetParam(); rank += 2) {
    for (size_t i = 0; i < kCount; ++i) wild[rank][i] = 0.2F * wild[rank][i] - wild[rank - 1][i];
  }
  group.sample(wild, within(1), &channels);
  const std::string behind = group.choice(0.04, calm[0]);
  EXPECT_GT(wire_cost(rung(behind), 2), wire_cost(rung(before), 2)) << before << ", " << behind;
}

TEST_P(SampledRungs, OfNamedCodecsOneIsTaken) {
  const std::string_view list = "auto:int8/128|int6/128+flatten|int4/32+sparse:0.1%";
  const auto contributions = data_of("act", GetParam());
  const ChannelState channels = taught_by(exact_sum(contributions));
  Group group(GetParam());
  group.sample(contributions, within(1, list), &channels);
  EXPECT_EQ(group.choice(0.03, contributions[0], list), "int6/128+flatten");
  EXPECT_EQ(group.choice(0.9, contributions[0], list), "int4/32+sparse:0.1%");
  EXPECT_EQ(group.choice(0.001, contributions[0], list), "exact");
  // Another list is another site.
  EXPECT_EQ(group.choice(0.03, contributions[0]), "none");
}

INSTANTIATE_TEST_SUITE_P(Ranks, SampledRungs, testing::Values(2U, 4U));

}  // namespace
}  // namespace tersum
