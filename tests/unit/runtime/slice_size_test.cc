// How large the slices of a plan are, whatever the format has once a slice.
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>

#include "codec/codec.h"
#include "runtime/compiled_plan.h"

namespace tersum {
namespace {

constexpr size_t kEagerBytes = 64 * 1024;  // what may travel before the receiver is ready

size_t slice_bytes_of(const std::string& spec, size_t count, const SliceLimits& limits) {
  const Codec* codec = find_codec(spec, DataType::kFloat32, ReduceOp::kSum).value();
  PlanRequest request;
  request.collective = Collective::kAllReduce;
  request.kind = PlanKind::kTwoStep;
  request.size = 2;
  request.count = count;
  const auto plan = compile_plan(request, *codec, 0, limits).value();
  return std::max(plan->codec->wire_bytes(plan->slice_values),
                  plan->gathered->wire_bytes(plan->slice_values));
}

TEST(SliceSize, OnOneHostIsWhatMayTravelUnasked) {
  SliceLimits limits;
  limits.least_slice_bytes = kLeastSliceBytesOnOneHost;
  for (const char* spec : {"exact", "bf16", "int8/128", "int4/32", "nvfp4", "int8/128+clip:learned",
                           "int4/128+clip:learned", "int4/128+adaptive", "int4/1024+sparse:0.2%"}) {
    for (const size_t count : {size_t{1} << 18, size_t{1} << 22}) {
      const size_t bytes = slice_bytes_of(spec, count, limits);
      EXPECT_LE(bytes, kEagerBytes) << spec << ' ' << count;
      EXPECT_GT(bytes, kEagerBytes * 9 / 10) << spec << ' ' << count;
    }
  }
}

TEST(SliceSize, OnWiresIsASixteenthOfAShortChunk) {
  const size_t bytes = slice_bytes_of("exact", size_t{1} << 18, {});  // chunks of 512 KiB
  EXPECT_EQ(bytes, 32u * 1024);
  EXPECT_EQ(slice_bytes_of("exact", size_t{1} << 13, {}), 8u * 1024);  // of 16 KiB
}

}  // namespace
}  // namespace tersum
