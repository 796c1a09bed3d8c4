#include "base/bytes.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <array>
#include <cstdint>
#include <limits>
#include <vector>

namespace tersum {
namespace {

TEST(BytesTest, TheLeastSignificantByteComesFirst) {
  std::array<uint8_t, 8> bytes{};
  store_le<uint64_t>(bytes.data(), 0x0807060504030201);
  EXPECT_EQ(bytes, (std::array<uint8_t, 8>{1, 2, 3, 4, 5, 6, 7, 8}));
  EXPECT_EQ(load_le<uint32_t>(bytes.data()), 0x04030201u);
  EXPECT_EQ(load_le<uint16_t>(bytes.data() + 1), 0x0302u);
  EXPECT_EQ(load_le<uint8_t>(bytes.data() + 7), 8u);
}

TEST(BytesTest, FloatsTravelAsTheirBits) {
  std::array<uint8_t, 4> bytes{};
  store_le(bytes.data(), 1.0f);  // 0x3f800000
  EXPECT_EQ(bytes, (std::array<uint8_t, 4>{0, 0, 0x80, 0x3f}));
  EXPECT_EQ(load_le<float>(bytes.data()), 1.0f);
}

TEST(BytesTest, NothingOutsideTheNumberIsTouched) {
  std::vector<uint8_t> bytes(12, 0xee);
  store_le<uint32_t>(bytes.data() + 5, 0);
  for (size_t i = 0; i < bytes.size(); ++i) EXPECT_EQ(bytes[i], i >= 5 && i < 9 ? 0 : 0xee) << i;
}

TEST(BytesTest, ReversingTwiceGivesTheValueBack) {
  using bytes_internal::reverse_bytes;
  EXPECT_EQ(reverse_bytes<uint8_t>(0xab), 0xab);
  EXPECT_EQ(reverse_bytes<uint16_t>(0x1234), 0x3412);
  EXPECT_EQ(reverse_bytes<uint32_t>(0x12345678u), 0x78563412u);
  EXPECT_EQ(reverse_bytes<uint64_t>(0x0102030405060708u), 0x0807060504030201u);
}

template <typename T>
void round_trips_at_any_offset(T value, size_t offset) {
  std::array<uint8_t, 24> bytes{};
  store_le(bytes.data() + offset, value);
  RC_ASSERT(load_le<T>(bytes.data() + offset) == value);
}

RC_GTEST_PROP(BytesProperty, IntegersRoundTripUnaligned, (uint64_t bits)) {
  const auto offset = *rc::gen::inRange<size_t>(0, 16);
  round_trips_at_any_offset<uint64_t>(bits, offset);
  round_trips_at_any_offset<int64_t>(static_cast<int64_t>(bits), offset);
  round_trips_at_any_offset<uint32_t>(static_cast<uint32_t>(bits), offset);
  round_trips_at_any_offset<int32_t>(static_cast<int32_t>(bits), offset);
  round_trips_at_any_offset<uint16_t>(static_cast<uint16_t>(bits), offset);
  round_trips_at_any_offset<uint8_t>(static_cast<uint8_t>(bits), offset);
}

TEST(BytesTest, AlignUpReachesTheNextMultiple) {
  EXPECT_EQ(align_up(0, 64), 0u);
  EXPECT_EQ(align_up(1, 64), 64u);
  EXPECT_EQ(align_up(64, 64), 64u);
  EXPECT_EQ(align_up(65, 64), 128u);
  EXPECT_EQ(align_up(13, 1), 13u);
}

}  // namespace
}  // namespace tersum
