// Denormals: kernels need the default floating-point control word, and then keep them on every
// target.
//
// Threads of other libraries (XLA's among them) run with denormals flushed to zero. The kernels do
// not set the control word themselves: that costs more than a small slice, so the runtime does it
// once around its work. This test is the contract between the two.
#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "codec/codec.h"
#include "codec/force_isa.h"
#include "codec/kernels/numbers.h"
#include "platform/fp_control.h"
#include "support/flush_denormals.h"

namespace tersum {
namespace {

using testing::FlushDenormals;

std::vector<float> tiny_values() {
  std::vector<float> values(1500);
  for (size_t i = 0; i < values.size(); ++i) {
    // Denormal float32s, and normal ones whose scale is denormal.
    const float magnitude =
        i / 300 % 2 == 0 ? 0x1p-136f * static_cast<float>(i % 300) : 0x1.8p-124f;
    values[i] = i % 3 == 0 ? -magnitude : magnitude;
  }
  return values;
}

// Wire and values of a combine of the tiny values with themselves.
std::vector<std::byte> combine_tiny(std::string_view spec, const std::vector<float>& values) {
  const Codec& codec = *find_codec(spec, DataType::kFloat32, ReduceOp::kSum).value();
  const size_t count = values.size();
  std::vector<std::byte> wire(codec.wire_bytes(count));
  codec.encode(values.data(), count, wire.data());
  const std::vector<const std::byte*> wires = {wire.data()};
  std::vector<std::byte> result(2 * wire.size() + 4 * count);
  std::memcpy(result.data(), wire.data(), wire.size());
  codec.combine(wires, values.data(), 1, count, {ReduceOp::kAverage, 3},
                result.data() + wire.size(), result.data() + 2 * wire.size());
  return result;
}

// Every kind of format that needs nothing to be learned, registered or shared before.
constexpr const char* kSpecs[] = {"exact",           "bf16",
                                  "int8/32",         "int8/1024",
                                  "int4/128",        "int6/128",
                                  "int3/32",         "int1/64",
                                  "five/32",         "fp8e4m3/128",
                                  "fp8e5m2/128",     "mxfp8:e4m3",
                                  "mxfp6:e3m2",      "mxfp4",
                                  "mxint8",          "nvfp4",
                                  "nf4/64",          "int8/128+hadamard",
                                  "nvfp4+hadamard",  "int4/32+sparse:1%",
                                  "int4/64+mixed",   "int4/128+adaptive",
                                  "int8/32+sr",      "mxint8+shiftadd",
                                  "int8/32+rows:300"};

TEST(Denormals, SurviveOnEveryTargetUnderTheDefaultControlWord) {
  const std::vector<float> values = tiny_values();
  for (const char* const spec : kSpecs) {
    ASSERT_TRUE(force_isa("scalar").ok());
    const std::vector<std::byte> expected = combine_tiny(spec, values);
    for (const std::string& isa : available_isas()) {
      ASSERT_TRUE(force_isa(isa).ok());
      EXPECT_EQ(combine_tiny(spec, values), expected) << spec << " on " << isa;
    }
  }
  ASSERT_TRUE(force_isa("").ok());
  const Codec& codec = *find_codec("int8/32", DataType::kFloat32, ReduceOp::kSum).value();
  std::vector<float> back(values.size());
  std::vector<std::byte> wire(codec.wire_bytes(values.size()));
  codec.encode(values.data(), values.size(), wire.data());
  codec.decode(wire.data(), values.size(), back.data());
  // Not flushed: denormals come back within half a step of the least scale, 2^-133, with their
  // sign.
  EXPECT_NEAR(back[250] / 0x1p-136f, 250, 4);
  EXPECT_NEAR(back[252] / 0x1p-136f, -252, 4);
  EXPECT_NEAR(back[400] / 0x1.8p-124f, 1, 0.005);
  EXPECT_NEAR(back[402] / 0x1.8p-124f, -1, 0.005);
}

TEST(Denormals, AThreadThatFlushesThemGetsTheSameBitsInsideTheGuard) {
  if (!FlushDenormals::kWorks) GTEST_SKIP() << "no way to flush denormals on this architecture";
  const std::vector<float> values = tiny_values();
  for (const char* const spec : kSpecs) {
    const std::vector<std::byte> expected = combine_tiny(spec, values);
    const FlushDenormals flush;
    // The guard is needed: without it a sum of denormals is 0.
    if (std::string_view(spec) == "exact") {
      EXPECT_NE(combine_tiny(spec, values), expected);
    }
    const FpControlGuard guard;
    EXPECT_EQ(combine_tiny(spec, values), expected) << spec;
  }
}

}  // namespace
}  // namespace tersum
