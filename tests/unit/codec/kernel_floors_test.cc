// Which speeds codec_bench --check holds: those of every spec that has a floor, however many
// modifiers stand beside the one that gives it.
#include "bench/codec/kernel_floors.h"

#include <gtest/gtest.h>

#include "codec/codec.h"

namespace tersum {
namespace {

double floor_of(const char* spec, const char* kernel) {
  return kernel_floor(parse_codec_spec(spec).value(), kernel);
}

TEST(KernelFloors, ARotationHasItsOwn) {
  for (const char* spec :
       {"int8/128+hadamard", "int4/32+flatten", "five/32+hadamard", "nvfp4+hadamard",
        "mxfp6:e2m3+hadamard", "int4/32+hadamard+sr", "mxfp4+flatten+floor+hops"}) {
    EXPECT_EQ(floor_of(spec, "encode"), 0.16) << spec;
    EXPECT_EQ(floor_of(spec, "decode_add"), 0.25) << spec;
    EXPECT_EQ(floor_of(spec, "hop"), 0) << spec;
  }
}

TEST(KernelFloors, SoDoPlainFormatsOfTheList) {
  EXPECT_EQ(floor_of("int8", "encode"), 0.70);
  EXPECT_EQ(floor_of("int8", "combine_3"), 0.19);
  for (const char* spec : {"nf4/64", "int4/32", "int6/128", "mxfp8"}) {
    EXPECT_EQ(floor_of(spec, "encode"), 0.30) << spec;
  }
}

TEST(KernelFloors, WhatIsCodedMoreThanOnceHasNone) {
  for (const char* spec : {"int4/128+mixed", "int4/128+hadamard+mixed", "nf4/64+sr", "five/32",
                           "int8/128+hadamard+shiftadd", "int4/32+flatten+sparse:1%"}) {
    EXPECT_EQ(floor_of(spec, "encode"), 0) << spec;
  }
}

}  // namespace
}  // namespace tersum
