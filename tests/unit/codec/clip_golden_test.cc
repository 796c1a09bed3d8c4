// Calls with a learned clip: the golden payloads, sums, refusals and states of an independent
// encoder, on every instruction set.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <span>
#include <sstream>
#include <string>
#include <vector>

#include "codec/clip_report.h"
#include "codec/codec.h"
#include "codec/force_isa.h"
#include "codec/learned_clip.h"
#include "hex_bytes.h"

namespace tersum {
namespace {

using Bytes = std::vector<std::byte>;
using Wires = std::vector<const std::byte*>;
using testing::HasSubstr;

struct GoldenCall {
  const Codec* codec = nullptr;
  uint32_t ranks = 0;
  size_t count = 0;
  uint32_t owner = 0;
  uint32_t divisor = 1;
  ClipFactors clips;
  Bytes values, payloads, partial, sum, decoded, plain;
  std::string name;

  [[nodiscard]] const std::byte* row(uint32_t rank) const {
    return values.data() + rank * count * element_bytes(codec->value_type());
  }
  [[nodiscard]] const std::byte* payload(uint32_t rank) const {
    return payloads.data() + rank * (payloads.size() / ranks);
  }
  [[nodiscard]] SlicePlace place() const {
    SlicePlace place;
    place.clips = &clips;
    place.divisor = divisor;
    return place;
  }
  [[nodiscard]] ReduceOp op() const { return divisor > 1 ? ReduceOp::kAverage : ReduceOp::kSum; }
};

GoldenCall read_call(const std::string& line) {
  std::istringstream fields(line);
  GoldenCall call;
  std::string spec, dtype, layout, clips, hex;
  fields >> call.name >> spec >> dtype >> layout >> call.ranks >> call.count >> call.owner >>
      call.divisor >> clips;
  const Codec& named = *find_codec(spec, parse_data_type(dtype).value(), call.op()).value();
  call.codec = layout == "held" ? named.held() : &named;
  call.name += " " + spec + " " + dtype + " " + layout;
  const Bytes both = read_hex(clips);
  std::memcpy(&call.clips.contribution, both.data(), sizeof(float));
  std::memcpy(&call.clips.sum, both.data() + sizeof(float), sizeof(float));
  call.clips.ranks = call.ranks;
  for (Bytes* part :
       {&call.values, &call.payloads, &call.partial, &call.sum, &call.decoded, &call.plain}) {
    fields >> hex;
    *part = read_hex(hex);
  }
  return call;
}

void check_contributions(const GoldenCall& call) {
  const size_t size = call.codec->wire_bytes(call.count);
  ASSERT_EQ(size * call.ranks, call.payloads.size());
  for (uint32_t rank = 0; rank < call.ranks; ++rank) {
    Bytes payload(size);
    call.codec->encode(call.row(rank), call.count, payload.data(), call.place());
    EXPECT_TRUE(std::equal(payload.begin(), payload.end(), call.payload(rank))) << rank;
    EXPECT_TRUE(call.codec->check_wire(payload.data(), call.count).ok());
  }
}

// Rank 1 adds its values to what rank 0 has sent.
void check_partial(const GoldenCall& call) {
  if (call.partial.empty()) return;
  Bytes sent(call.partial.size());
  const Wires wires = {call.payload(0)};
  call.codec->combine(wires, call.row(1), 1, call.count, {call.op(), 1}, sent.data(), nullptr,
                      call.place());
  EXPECT_EQ(sent, call.partial);
  EXPECT_TRUE(call.codec->check_wire(sent.data(), call.count).ok());
}

void check_sum(const GoldenCall& call) {
  Wires others;
  Wires all;
  for (uint32_t rank = 0; rank < call.ranks; ++rank) {
    if (rank != call.owner) others.push_back(call.payload(rank));
    all.push_back(call.payload(rank));
  }
  Bytes sum(call.sum.size()), values(call.decoded.size());
  call.codec->combine(others, call.row(call.owner), call.owner, call.count,
                      {call.op(), call.divisor, call.ranks}, sum.data(), values.data(),
                      call.place());
  EXPECT_EQ(sum, call.sum);
  EXPECT_EQ(values, call.decoded);
  EXPECT_TRUE(call.codec->check_wire(sum.data(), call.count).ok());
  call.codec->decode(sum.data(), call.count, values.data(), call.place());
  EXPECT_EQ(values, call.decoded);
  call.codec->combine(all, nullptr, 0, call.count, {call.op(), call.divisor}, nullptr,
                      values.data(), call.place());
  EXPECT_EQ(values, call.plain);
}

TEST(ClipGolden, CallsAreTheGoldenOnesOnEveryInstructionSet) {
  std::ifstream file(TERSUM_GOLDEN_CLIPS "/clips.txt");
  size_t calls = 0;
  for (std::string line; std::getline(file, line); ++calls) {
    const GoldenCall call = read_call(line);
    for (const std::string& isa : available_isas()) {
      SCOPED_TRACE(call.name + " " + isa);
      ASSERT_TRUE(force_isa(isa).ok());
      check_contributions(call);
      if (call.count == 0) continue;
      check_partial(call);
      check_sum(call);
    }
  }
  EXPECT_GE(calls, 90U);
  ASSERT_TRUE(force_isa("").ok());
}

// "block:1", as the golden file says it, as a message does.
std::string phrase(const std::string& where) {
  const size_t colon = where.find(':');
  if (colon == std::string::npos) return "the slice's scale";
  const std::string rest = where.substr(colon + 1);
  return where.starts_with("report") ? "report of " + rest
                                     : where.substr(0, colon) + " " + rest + " ";
}

TEST(ClipGolden, WhatNoEncoderOfHeldCallsWritesIsNamed) {
  std::ifstream file(TERSUM_GOLDEN_CLIPS "/refused_clips.txt");
  size_t cases = 0;
  for (std::string line; std::getline(file, line); ++cases) {
    std::istringstream fields(line);
    std::string name, spec, dtype, hex, where;
    size_t count = 0;
    ASSERT_TRUE(fields >> name >> spec >> dtype >> count >> hex >> where);
    SCOPED_TRACE(name);
    const Bytes payload = read_hex(hex);
    const Codec& held =
        *find_codec(spec, parse_data_type(dtype).value(), ReduceOp::kSum).value()->held();
    if (where.starts_with("bytes:")) {
      EXPECT_EQ("bytes:" + std::to_string(held.wire_bytes(count)), where);
      EXPECT_NE(held.wire_bytes(count), payload.size());
      continue;
    }
    const Status refused = held.check_wire(payload.data(), count);
    EXPECT_EQ(refused.code(), StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(refused.message()), HasSubstr(phrase(where)));
  }
  EXPECT_GE(cases, 13U);
}

TEST(ClipGolden, SitesLearnWhatTheGoldenOnesDo) {
  std::ifstream file(TERSUM_GOLDEN_CLIPS "/clip_states.txt");
  LearnedClip site;
  std::string last;
  size_t calls = 0;
  for (std::string line; std::getline(file, line); ++calls) {
    std::istringstream fields(line);
    std::string name, report_hex, state_hex;
    bool is_held = false;
    bool is_held_replicated = false;
    fields >> name >> report_hex >> state_hex >> is_held >> is_held_replicated;
    if (name != last) site = LearnedClip();
    last = name;
    SCOPED_TRACE(name + ", line " + std::to_string(calls + 1));
    const Bytes report = read_hex(report_hex);
    site.learn(read_clip_report(report.data()));
    Bytes saved(LearnedClip::kSavedBytes);
    site.save(saved);
    EXPECT_EQ(saved, read_hex(state_hex));
    EXPECT_EQ(site.holds(true), is_held);
    EXPECT_EQ(site.holds(false), is_held_replicated);
    LearnedClip loaded;
    ASSERT_TRUE(loaded.load(saved));
    EXPECT_EQ(loaded.digest(), site.digest());
  }
  EXPECT_GE(calls, 200U);
}

}  // namespace
}  // namespace tersum
