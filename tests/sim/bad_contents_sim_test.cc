// Peers that code wrongly: contributions, and what they hand in towards scales that ranks share,
// with bits flipped and with contents that no encoder writes (scales that are NaN, infinite or
// negative, codes of `five` from 125 on, outliers outside of their section or twice at one place).
// No call crashes or hangs, and all ranks end alike: with the same bits, or each with an error. So
// does the next call, which uses what they have learned of that one.
//
// Only what goes to the owner of a chunk is altered: what it makes of that everybody gets. A sum
// that is altered on its way to one rank, or a scale where everybody adds up everything (one_shot,
// which agrees on few scales of up to 8 ranks), would be that rank's alone: against a wire that
// changes bytes stand the transports, not codecs.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <random>
#include <span>
#include <string>

#include "broken_calls.h"
#include "wire/message.h"

namespace tersum::testing {
namespace {

using Payload = std::span<std::byte>;
using Change = std::function<void(Payload)>;
using Outcome = BrokenGroup::Outcome;

constexpr uint64_t kRandomRounds = 8;

// Where ranks agree on scales, too many for one_shot to be chosen, and for lut2 a power of two.
constexpr int kFewRanks = 4;
int ranks_of(const BrokenCase& broken) {
  const std::string codec = broken.codec;
  if (codec.starts_with("lut2")) return 16;
  return codec.starts_with("sum") ? 9 : kFewRanks;
}

bool is_for_an_owner(const MessageHeader& header) {
  return header.kind == MessageKind::kData && plan_phase(header.phase) == FlowPhase::kReduce;
}

struct Altered {
  int of_values = 0;
  int of_scales = 0;
};

// `change` on what goes to owners, all of it or that of scales alone.
Alter to_owners(Altered& altered, const Change& change, bool only_scales = false) {
  return [&altered, change, only_scales](MessageHeader& header, Payload payload) {
    const bool of_scales = header.phase == FlowPhase::kScaleReduce;
    if (!is_for_an_owner(header) || payload.empty() || (only_scales && !of_scales)) return 1;
    change(payload);
    ++(of_scales ? altered.of_scales : altered.of_values);
    return 1;
  };
}

void expect_alike(const Outcome& outcome, const std::string& name) {
  const bool are_ok = are_all_ok(outcome);
  for (const Status& status : outcome.statuses) {
    EXPECT_EQ(status.ok(), are_ok) << name << ": " << status.to_string();
  }
  if (are_ok) {
    EXPECT_TRUE(are_all_equal(outcome)) << name;
  }
  EXPECT_LT(outcome.took_ns, kBrokenTimeoutMs * 1'000'000 / 4) << name;
}

// A call with altered contributions, and one after it without.
void expect_survived(const BrokenCase& broken, const Change& change, const std::string& name) {
  for (const bool only_scales : {false, true}) {
    Altered altered;
    BrokenGroup group(ranks_of(broken), to_owners(altered, change, only_scales));
    group.learn(broken);
    const Outcome outcome = group.call(broken.codec, broken.count, 1);
    expect_alike(outcome, name);
    group.alter_no_more();
    const Outcome next = group.call(broken.codec, broken.count, 2);
    expect_alike(next, name + ", the next call");
    EXPECT_EQ(are_all_ok(next), are_all_ok(outcome)) << name;
    const bool shares = ranks_of(broken) > kFewRanks;
    EXPECT_EQ(altered.of_scales > 0, shares) << name;
    EXPECT_EQ(altered.of_values > 0, !only_scales) << name;
    if (!shares) return;
  }
}

// Every other message: some of it is right, and has to get along with what is not.
Change flip_bits(uint64_t seed) {
  return [random = std::mt19937_64(seed)](Payload payload) mutable {
    if (random() % 2 == 0) return;
    for (uint64_t i = 0; i < 1 + random() % 8; ++i) {
      payload[random() % payload.size()] ^= static_cast<std::byte>(1U << (random() % 8));
    }
  };
}

Change fill(std::byte value) {
  return [value](Payload payload) { std::ranges::fill(payload, value); };
}

// Two bytes, little-endian, everywhere or only where most formats have their first scale.
Change repeat(uint16_t pair, size_t bytes) {
  return [pair, bytes](Payload payload) {
    for (size_t i = 0; i < std::min(bytes, payload.size()); ++i) {
      payload[i] = static_cast<std::byte>(i % 2 == 0 ? pair : pair >> 8U);
    }
  };
}

// In place of the last bytes, where outliers and reports lie.
Change copy_to_the_end(size_t bytes) {
  return [bytes](Payload payload) {
    const size_t here = std::min(bytes, payload.size() / 2);
    std::copy_n(payload.begin(), here, payload.end() - static_cast<std::ptrdiff_t>(here));
  };
}

// Changes arrive, or what is survived below would prove nothing.
TEST(BadContentsSim, AreWhatTheOwnerReads) {
  Altered altered;
  BrokenGroup group(kFewRanks, to_owners(altered, fill(std::byte{0xff})));
  group.alter_from_now();
  const BrokenCase exact{"exact"};
  const Outcome outcome = group.call(exact.codec, exact.count, 1);
  ASSERT_TRUE(are_all_ok(outcome));
  ASSERT_GT(altered.of_values, 0);
  for (const auto& sum : outcome.sums) {
    EXPECT_TRUE(std::ranges::all_of(sum, [](float value) { return std::isnan(value); }));
  }
}

class BadContentsSim : public ::testing::TestWithParam<BrokenCase> {};

TEST_P(BadContentsSim, FlippedBitsEndAlike) {
  for (uint64_t seed = 0; seed < kRandomRounds; ++seed) {
    expect_survived(GetParam(), flip_bits(seed), "seed " + std::to_string(seed));
  }
}

TEST_P(BadContentsSim, WhatNoEncoderWritesEndsAlike) {
  for (const unsigned value : {0x00U, 0x01U, 0x7dU, 0x80U, 0xffU}) {
    expect_survived(GetParam(), fill(static_cast<std::byte>(value)),
                    "all bytes " + std::to_string(value));
  }
  // bf16: NaN, the infinities, -1, the largest, the least.
  constexpr std::array<uint16_t, 6> kScales = {0x7fc0, 0x7f80, 0xff80, 0xbf80, 0x7f7f, 0x0001};
  for (const uint16_t scale : kScales) {
    const std::string name = "scale " + std::to_string(scale);
    expect_survived(GetParam(), repeat(scale, 2), name);
    expect_survived(GetParam(), repeat(scale, SIZE_MAX), name + " everywhere");
  }
  for (const size_t bytes : {size_t{4}, size_t{16}, size_t{64}}) {
    expect_survived(GetParam(), copy_to_the_end(bytes), std::to_string(bytes) + " bytes twice");
  }
}

INSTANTIATE_TEST_SUITE_P(Codecs, BadContentsSim, ::testing::ValuesIn(kBrokenCases));

constexpr BrokenCase kMoreCases[] = {
    {"five/32"},       {"five/32", 1600}, {"int8/32+sparse:5%", 1600},
    {"fp8e4m3/32"},    {"nf4/32"},        {"int4/32+flatten+sparse:2%", 640},
    {"mxfp4+hadamard"}};
INSTANTIATE_TEST_SUITE_P(MoreCodecs, BadContentsSim, ::testing::ValuesIn(kMoreCases));

}  // namespace
}  // namespace tersum::testing
