#include "runtime/call_descriptor.h"

#include <gtest/gtest.h>

#include <array>
#include <string>

namespace tersum {
namespace {

CallDescriptor sample() {
  return {Collective::kBroadcast, ReduceOp::kMax, DataType::kInt64, PlanKind::kRing, 3,
          uint64_t{1} << 40,      "int4/32"};
}

TEST(CallDescriptor, SurvivesTheWire) {
  std::array<std::byte, kDescriptorBytes> bytes{};
  encode_descriptor(sample(), bytes);
  const auto read = decode_descriptor(bytes);
  ASSERT_TRUE(read.has_value());
  EXPECT_TRUE(compare_descriptors(sample(), 0, *read, 1).ok());
}

TEST(CallDescriptor, RefusesWhatIsNone) {
  std::array<std::byte, kDescriptorBytes> bytes{};
  encode_descriptor(sample(), bytes);
  EXPECT_FALSE(decode_descriptor(std::span(bytes).first(kDescriptorBytes - 1)).has_value());
  for (const size_t at : {0, 1, 2, 3, 16}) {
    auto broken = bytes;
    broken[at] = std::byte{200};
    EXPECT_FALSE(decode_descriptor(broken).has_value()) << "byte " << at;
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
  EXPECT_FALSE(decode_cancel(std::span(bytes).first(7)).has_value());
}

}  // namespace
}  // namespace tersum
