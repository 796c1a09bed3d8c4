#include "runtime/call_descriptor.h"

#include <gtest/gtest.h>

#include <array>
#include <string>
#include <utility>

#include "support/golden_frames.h"

namespace tersum {
namespace {

CallDescriptor sample() {
  return {Collective::kBroadcast,
          ReduceOp::kMax,
          DataType::kInt64,
          PlanKind::kRing,
          3,
          uint64_t{1} << 40,
          "int4/32",
          0,
          0,
          {}};
}

CallDescriptor open_sample() {
  CallDescriptor descriptor = sample();
  descriptor.arrays = {{2, 7}, 0x1000, uint64_t{1} << 47};
  return descriptor;
}

TEST(CallDescriptor, SurvivesTheWire) {
  std::array<std::byte, kOpenDescriptorBytes> bytes{};
  ASSERT_EQ(encode_descriptor(sample(), bytes), kDescriptorBytes);
  const auto read = decode_descriptor(std::span(bytes).first(kDescriptorBytes));
  ASSERT_TRUE(read.has_value());
  EXPECT_TRUE(compare_descriptors(sample(), 0, *read, 1).ok());
  EXPECT_EQ(read->arrays.grant.key, 0u);
}

TEST(CallDescriptor, SaysWhereOpenArraysAreAndDoesNotCompareThem) {
  std::array<std::byte, kOpenDescriptorBytes> bytes{};
  ASSERT_EQ(encode_descriptor(open_sample(), bytes), kOpenDescriptorBytes);
  const auto read = decode_descriptor(bytes);
  ASSERT_TRUE(read.has_value());
  EXPECT_TRUE(compare_descriptors(sample(), 0, *read, 1).ok());
  EXPECT_EQ(read->arrays.grant.slot, 2u);
  EXPECT_EQ(read->arrays.grant.key, 7u);
  EXPECT_EQ(read->arrays.input, 0x1000u);
  EXPECT_EQ(read->arrays.output, uint64_t{1} << 47);
}

TEST(CallDescriptor, RefusesASlotThatThereIsNotAndArraysWithoutAKey) {
  std::array<std::byte, kOpenDescriptorBytes> bytes{};
  encode_descriptor(open_sample(), bytes);
  for (const size_t at : {129, 132, 135}) {
    auto broken = bytes;
    broken[at] = std::byte{1};
    EXPECT_FALSE(decode_descriptor(broken).has_value()) << at;
  }
  for (const auto& [at, value] : {std::pair<size_t, int>{128, kArrayGrantsMax}, {136, 0}}) {
    auto broken = bytes;
    broken[at] = static_cast<std::byte>(value);
    EXPECT_FALSE(decode_descriptor(broken).has_value()) << at;
  }
}

TEST(CallDescriptor, RefusesWhatIsNone) {
  std::array<std::byte, kOpenDescriptorBytes> bytes{};
  encode_descriptor(sample(), bytes);
  for (const size_t at : {0, 1, 2, 3, 16}) {
    auto broken = bytes;
    broken[at] = std::byte{200};
    EXPECT_FALSE(decode_descriptor(std::span(broken).first(kDescriptorBytes)).has_value())
        << "byte " << at;
  }
}

TEST(CallDescriptor, RefusesEveryOtherLengthAndWhatStandsBehindTheCodec) {
  std::array<std::byte, 2 * kDescriptorBytes> bytes{};
  encode_descriptor(open_sample(), std::span(bytes).first<kOpenDescriptorBytes>());
  for (size_t size = 0; size <= bytes.size(); ++size) {
    EXPECT_EQ(decode_descriptor(std::span(bytes).first(size)).has_value(),
              size == kDescriptorBytes || size == kOpenDescriptorBytes);
  }
  for (size_t at = 17 + sample().codec.size(); at < 17 + kCodecTextBytesMax; ++at) {
    auto broken = bytes;
    broken[at] = std::byte{1};
    EXPECT_FALSE(decode_descriptor(std::span(broken).first(kDescriptorBytes)).has_value()) << at;
  }
}

CallDescriptor golden_descriptor(const GoldenFrame& frame, const std::string& codec) {
  return {frame.number<Collective>("collective"),
          frame.number<ReduceOp>("op"),
          frame.number<DataType>("type"),
          frame.number<PlanKind>("plan"),
          frame.number<uint32_t>("root"),
          frame.number<uint64_t>("count"),
          codec,
          frame.number<uint64_t>("tensors"),
          frame.number<uint64_t>("flatten"),
          {{frame.number<uint32_t>("slot"), frame.number<uint64_t>("key")},
           frame.number<uint64_t>("input"),
           frame.number<uint64_t>("output")}};
}

// The frames that tests/reference/read_frames.py reads and refuses.
TEST(CallDescriptor, GoldenFramesAreTheDocumentedBytes) {
  const std::vector<GoldenFrame> frames = golden_frames(TERSUM_GOLDEN_FRAMES, "descriptor");
  ASSERT_GE(frames.size(), 10u);
  for (const GoldenFrame& frame : frames) {
    const std::optional<CallDescriptor> read = decode_descriptor(frame.bytes);
    ASSERT_EQ(read.has_value(), !frame.is_refused) << frame.name;
    if (frame.is_refused) continue;
    std::array<std::byte, kOpenDescriptorBytes> bytes{};
    const std::string codec = frame.text("codec");
    const size_t used = encode_descriptor(golden_descriptor(frame, codec), bytes);
    const auto end = bytes.begin() + static_cast<std::ptrdiff_t>(used);
    EXPECT_EQ(std::vector<std::byte>(bytes.begin(), end), frame.bytes) << frame.name;
    EXPECT_TRUE(compare_descriptors(golden_descriptor(frame, codec), 0, *read, 1).ok());
  }
}

TEST(CallDescriptor, BothRanksReadTheSameSentence) {
  CallDescriptor other = sample();
  other.count = 7;
  const Status here = compare_descriptors(sample(), 4, other, 2);
  const Status there = compare_descriptors(other, 2, sample(), 4);
  EXPECT_EQ(here.code(), StatusCode::kDisagreement);
  EXPECT_EQ(here.message(), there.message());
}

TEST(CancelNotice, SurvivesTheWireAndIsCut) {
  std::array<std::byte, 8 + kCancelTextBytesMax> bytes{};
  const std::string text(3000, 'x');
  const size_t used = encode_cancel({StatusCode::kTimeout, false, text}, bytes);
  const auto read = decode_cancel(std::span(bytes).first(used));
  ASSERT_TRUE(read.has_value());
  EXPECT_EQ(read->code, StatusCode::kTimeout);
  EXPECT_FALSE(read->poisons);
  EXPECT_EQ(read->text.size(), kCancelTextBytesMax);
  for (size_t size = 0; size < 8; ++size) {
    EXPECT_FALSE(decode_cancel(std::span(bytes).first(size)).has_value());
  }
}

TEST(CancelNotice, IsCutBetweenCharacters) {
  std::array<std::byte, 8 + kCancelTextBytesMax> bytes{};
  std::string text(kCancelTextBytesMax - 1, 'x');
  text += "\xc3\xa4";  // a letter of two bytes, of which one would still fit
  const size_t used = encode_cancel({StatusCode::kTimeout, false, text}, bytes);
  const auto read = decode_cancel(std::span(bytes).first(used));
  ASSERT_TRUE(read.has_value());
  EXPECT_EQ(read->text, std::string(kCancelTextBytesMax - 1, 'x'));
}

TEST(CancelNotice, RefusesWhatIsNone) {
  std::array<std::byte, 8> bytes{};
  ASSERT_EQ(encode_cancel({StatusCode::kAborted, true, ""}, bytes), 8u);
  ASSERT_TRUE(decode_cancel(bytes).has_value());
  // Codes that there are not, or that are no error; a flag that is neither; reserved bytes.
  for (const auto& [at, value] :
       {std::pair{0, 0}, {0, 99}, {1, 1}, {3, 255}, {4, 2}, {5, 1}, {7, 1}}) {
    auto broken = bytes;
    broken[static_cast<size_t>(at)] = static_cast<std::byte>(value);
    EXPECT_FALSE(decode_cancel(broken).has_value()) << at << " " << value;
  }
}

}  // namespace
}  // namespace tersum
