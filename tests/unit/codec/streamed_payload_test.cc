// StreamedPayload: the bytes that the codec writes, at their place and nowhere else.
#include "codec/streamed_payload.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include "normal_floats.h"

namespace tersum {
namespace {

constexpr size_t kMargin = 64;
constexpr std::byte kUntouched{0x5A};

void expect_same_payload(const std::string& spec, size_t count, const AddedTerms& added,
                         StreamedPayload& streamed) {
  const Codec& codec = *find_codec(spec, DataType::kFloat32, ReduceOp::kSum).value();
  // One seed, so that a failure repeats; values that begin between two lines.
  const std::vector<float> values = normal_floats(20261123, count + 1);
  SlicePlace place;
  place.added = added;
  const size_t bytes = codec.wire_bytes(count);
  std::vector<std::byte> expected(bytes);
  codec.encode(values.data() + 1, count, expected.data(), place);
  std::vector<std::byte> memory(bytes + 2 * kMargin, kUntouched);
  std::byte* const payload = memory.data() + kMargin;
  streamed.encode(codec, values.data() + 1, count, {payload, bytes}, place);
  EXPECT_TRUE(std::equal(expected.begin(), expected.end(), payload)) << spec << ' ' << count;
  const auto untouched = [](std::byte byte) { return byte == kUntouched; };
  EXPECT_TRUE(std::all_of(memory.data(), payload, untouched)) << spec << ' ' << count;
  EXPECT_TRUE(std::all_of(payload + bytes, memory.data() + memory.size(), untouched))
      << spec << ' ' << count;
}

TEST(StreamedPayload, HasTheBytesThatTheCodecWrites) {
  StreamedPayload streamed;  // one for all, as an operation has
  const std::vector<float> residual = normal_floats(7, 9000);
  for (const char* spec : {"exact", "bf16", "int8/128", "int4/32", "int6/128+hadamard", "mxfp8",
                           "nvfp4", "int4/1024+sparse:0.2%", "int8/128+rows:48"}) {
    for (const size_t count : {1u, 31u, 128u, 4097u, 8191u}) {
      expect_same_payload(spec, count, {}, streamed);
      expect_same_payload(spec, count, {residual.data(), nullptr, 1}, streamed);
    }
  }
}

TEST(StreamedPayload, MovesWhatWasMadeInItsRoom) {
  StreamedPayload streamed;
  for (const size_t bytes : {size_t{1}, size_t{64}, size_t{70'001}, size_t{100}}) {
    std::byte* const room = streamed.room(bytes);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(room) % 64, 0u);
    for (size_t i = 0; i < bytes; ++i) room[i] = static_cast<std::byte>(i * 37);
    std::vector<std::byte> payload(bytes);
    streamed.write(payload);
    EXPECT_EQ(std::memcmp(payload.data(), room, bytes), 0) << bytes;
  }
}

}  // namespace
}  // namespace tersum
