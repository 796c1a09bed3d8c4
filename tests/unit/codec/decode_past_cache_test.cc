// decode_past_cache: the bits of decode(), wherever the array begins and ends, and nothing beside.
#include "codec/decode_past_cache.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>
#include <vector>

#include "codec/force_isa.h"
#include "tersum/isa.h"

namespace tersum {
namespace {

constexpr size_t kMargin = 128;
constexpr std::byte kUntouched{0x5A};

// Values in [-4, 4) as the codec's type holds them; one seed, so that a failure repeats.
std::vector<std::byte> wire_of(const Codec& codec, size_t count) {
  std::mt19937 random(20260917);
  std::uniform_real_distribution<float> uniform(-4, 4);
  std::vector<float> values(count);
  for (float& value : values) value = uniform(random);
  std::vector<std::byte> wire(codec.wire_bytes(count));
  codec.encode(values.data(), count, wire.data());
  return wire;
}

void expect_same_bits(const std::string& spec, size_t count, size_t offset) {
  const Codec& codec = *find_codec(spec, DataType::kFloat32, ReduceOp::kSum).value();
  const std::vector<std::byte> wire = wire_of(codec, count);
  std::vector<float> expected(count);
  codec.decode(wire.data(), count, expected.data());
  std::vector<std::byte> scratch;
  std::vector<std::byte> memory(4 * count + 2 * kMargin, kUntouched);
  std::byte* const to = memory.data() + kMargin + 4 * offset;
  decode_past_cache(codec, wire.data(), count, to, scratch);
  const auto* const as_decoded = reinterpret_cast<const std::byte*>(expected.data());
  EXPECT_TRUE(std::equal(to, to + 4 * count, as_decoded)) << spec << " " << count;
  const auto untouched = [](std::byte byte) { return byte == kUntouched; };
  EXPECT_TRUE(std::all_of(memory.data(), to, untouched)) << spec << " " << count << " " << offset;
  EXPECT_TRUE(std::all_of(to + 4 * count, memory.data() + memory.size(), untouched))
      << spec << " " << count << " " << offset;
}

TEST(DecodePastCache, GivesTheBitsOfDecodeOnEveryIsa) {
  for (const std::string& isa : available_isas()) {
    SCOPED_TRACE(isa);
    ASSERT_TRUE(force_isa(isa).ok());
    for (const char* spec : {"exact", "bf16", "int8/128", "int4/32"}) {
      for (const size_t count : {size_t{0}, size_t{1}, size_t{15}, size_t{16}, size_t{17},
                                 size_t{128}, size_t{1000}, size_t{16'384}}) {
        for (size_t offset = 0; offset < 17; ++offset) expect_same_bits(spec, count, offset);
      }
    }
  }
  ASSERT_TRUE(force_isa("").ok());
}

}  // namespace
}  // namespace tersum
