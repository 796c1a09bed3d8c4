// Specs, the table of codecs, and what public callers are told about them.
#include "codec/codec_spec.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <string_view>
#include <thread>

#include "codec/codec.h"
#include "tersum/codec_info.h"

namespace tersum {
namespace {

using testing::HasSubstr;

TEST(CodecSpec, NormalForms) {
  for (const auto& [text, normal] :
       {std::pair{"exact", "exact"},
        {"bf16", "bf16"},
        {"int8", "int8/128"},
        {"int8/128", "int8/128"},
        {"int8/32", "int8/32"},
        {"int4", "int4/128"},
        {"int4/1024", "int4/1024"},
        {"int6+hadamard", "int6/128+hadamard"},
        {"five", "five/32"},
        {"mxfp8", "mxfp8:e4m3/32"},
        {"mxfp6:e3m2/32", "mxfp6:e3m2/32"},
        {"nvfp4", "nvfp4/16"},
        {"nf4", "nf4/64"},
        {"sum8", "sum8/256"},
        {"sum8/32+sr", "sum8/32+sr"},
        {"sum8+sr+hadamard", "sum8/256+hadamard+sr"},
        {"sum8+sr+rows:96+hadamard", "sum8/256+rows:96+hadamard+sr"},
        {"sum8:tensor+hadamard", "sum8:tensor/1024+hadamard"},
        {"lut2+rows:4096", "lut2/32+rows:4096"},
        // What has no blocks has none that rows could cut.
        {"bf16+rows:4096", "bf16"},
        {"exact+rows:2", "exact"},
        // The default, spelled out.
        {"int4+nearest+hadamard", "int4/128+hadamard"},
        {"sum8+nearest+rows:8", "sum8/256+rows:8"},
        {"mxfp8+nearest", "mxfp8:e4m3/32"},
        {"kmeans:16+nearest", "kmeans:16/64"},
        {"bf16+nearest", "bf16"},
        {"exact+nearest+rows:3", "exact"},
        {"lut2", "lut2/32"},
        {"sum:exp", "sum:exp/1024"},
        {"nf4+sparse:0.20%", "nf4/64+sparse:0.2%"},
        {"int8+hadamard+sparse:1%+rows:4096", "int8/128+rows:4096+sparse:1%+hadamard"},
        {"int4+mixed", "int4/128+mixed"},
        {"int3+mixed+hadamard+sparse:1%", "int3/32+sparse:1%+hadamard+mixed"},
        {"int4+adaptive", "int4/128+adaptive"},
        {"nf4+adaptive+rows:64", "nf4/64+rows:64+adaptive"},
        {"mxfp4+rows:2", "mxfp4/32+rows:2"},
        {"five+rows:65536", "five/32+rows:65536"},
        {"int4+hadamard+sparse:10%", "int4/128+sparse:10%+hadamard"},
        {"mxfp8+hops+floor+hadamard", "mxfp8:e4m3/32+hadamard+floor+hops"},
        {"int4+sr+hadamard", "int4/128+hadamard+sr"},
        {"mxfp8+sr+hops", "mxfp8:e4m3/32+hops+sr"},
        {"shiftadd", "int8/128+shiftadd"},
        {"shiftadd/32+hadamard", "int8/32+hadamard+shiftadd"},
        {"mxint8+floor+shiftadd", "mxint8/32+shiftadd+floor"},
        {"int2+sparse:1%+feedback", "int2/32+feedback+sparse:1%"},
        {"mxfp4+sparse:0.01%", "mxfp4/32+sparse:0.01%"},
        {"five+sparse:1.50%", "five/32+sparse:1.5%"},
        {"int4/32+flatten+sparse:0.5%", "int4/32+sparse:0.5%+flatten"},
        {"int8+sparse:2.0%", "int8/128+sparse:2%"},
        {"int8+sparse:9.07%", "int8/128+sparse:9.07%"}}) {
    const auto got = normalize_codec(text);
    ASSERT_TRUE(got.ok()) << text;
    EXPECT_EQ(got.value(), normal);
    const auto parsed = parse_codec_spec(text);
    ASSERT_TRUE(parsed.ok());
    EXPECT_EQ(parsed.value(), parse_codec_spec(normal).value());
  }
}

std::string error_of(std::string_view text) {
  const auto parsed = parse_codec_spec(text);
  EXPECT_FALSE(parsed.ok()) << text;
  EXPECT_EQ(parsed.status().code(), StatusCode::kInvalidArgument);
  const auto found = find_codec(text, DataType::kInt32, ReduceOp::kMax);
  EXPECT_FALSE(found.ok()) << "a bad spec is refused on the exact path, too";
  EXPECT_EQ(found.status().message(), parsed.status().message());
  return std::string(parsed.status().message());
}

TEST(CodecSpec, ErrorsNameWhatIsAllowed) {
  EXPECT_THAT(error_of("int9"), HasSubstr("exact, bf16, int8, int7"));
  EXPECT_THAT(error_of("int9"), HasSubstr("did you mean \"int8\"?"));
  EXPECT_THAT(error_of("INT4"), HasSubstr("did you mean \"int4\"?"));
  EXPECT_THAT(error_of("bfloat16"), HasSubstr("did you mean \"bf16\"?"));
  EXPECT_THAT(error_of("float32"), HasSubstr("did you mean \"exact\"?"));
  EXPECT_THAT(error_of("zstandard"), testing::Not(HasSubstr("did you mean")));
  EXPECT_THAT(error_of(""), HasSubstr("known codecs"));
  for (const char* text : {"int8/100", "int8/16", "int8/2048", "int8/", "int4/032", "int8/-32",
                           "int8/32 ", "int8/4294967328", "int8/32/32"}) {
    EXPECT_THAT(error_of(text), HasSubstr("32, 64, 128, 256, 512, 1024")) << text;
  }
  EXPECT_THAT(error_of("bf16/32"), HasSubstr("write \"bf16\""));
  EXPECT_THAT(error_of("exact/32"), HasSubstr("write \"exact\""));
  EXPECT_THAT(error_of("mxfp8/64"), HasSubstr("it is always 32"));
  EXPECT_THAT(error_of("nvfp4/32"), HasSubstr("it is always 16"));
  EXPECT_THAT(error_of("auto"), HasSubstr("a call's choice"));
}

TEST(CodecSpec, ErrorsNameWhatAFormatOfSumsTakes) {
  for (const char* modifier : {"flatten", "sparse:1%", "feedback", "adaptive", "clip:learned"}) {
    const std::string spec = std::string("sum8+") + modifier;
    EXPECT_THAT(error_of(spec), HasSubstr("takes rows, hadamard and sr alone")) << spec;
  }
  EXPECT_THAT(error_of("lut2+hadamard"), HasSubstr("takes rows alone"));
  for (const char* spec : {"lut2+sr", "lut2/64+rows:66+sr", "lut2+sr+rows:8"}) {
    EXPECT_THAT(error_of(spec), HasSubstr("sums would be biased all the same")) << spec;
  }
  EXPECT_THAT(error_of("sum8:tensor+flatten"), HasSubstr("takes hadamard and sr alone"));
  EXPECT_THAT(error_of("sum:exp+hadamard"), HasSubstr("takes no modifier"));
  for (const char* text : {"sum8:tensor+rows:8", "sum8:tensor+hadamard+rows:8", "sum:exp+rows:8",
                           "int4+clip:learned+rows:8"}) {
    EXPECT_THAT(error_of(text), HasSubstr("by definition, so that there are no blocks")) << text;
  }
  EXPECT_THAT(error_of("sum8+hadamard+flatten"), HasSubstr("is refused: "));
}

TEST(CodecSpec, ErrorsNameWhatModifiersStandOn) {
  EXPECT_THAT(error_of("int4/32+hadamar"), HasSubstr("unknown modifier \"hadamar\""));
  EXPECT_THAT(error_of("int4+"), HasSubstr("unknown modifier \"\""));
  EXPECT_THAT(error_of("int4+hadamard+hadamard"), HasSubstr("stands twice"));
  EXPECT_THAT(error_of("bf16+hadamard"), HasSubstr("takes no modifier"));
  EXPECT_THAT(error_of("int4+nearest+sr"), HasSubstr("write one of them"));
  EXPECT_THAT(error_of("int4+sr+nearest"), HasSubstr("write one of them"));
  EXPECT_THAT(error_of("sum:exp+nearest"), HasSubstr("rounded at random as it is"));
  EXPECT_THAT(error_of("int4+nearest+nearest"), HasSubstr("stands twice"));
  EXPECT_THAT(error_of("int4+nearest:up"), HasSubstr("is written \"nearest\""));
  EXPECT_THAT(error_of("int8+floor"), HasSubstr("only the MX formats"));
  EXPECT_THAT(error_of("nvfp4+hops"), HasSubstr("only the MX formats"));
  EXPECT_THAT(error_of("mxfp4+shiftadd"), HasSubstr("only int2 to int8 and mxint8"));
  EXPECT_THAT(error_of("int1+shiftadd"), HasSubstr("only int2 to int8 and mxint8"));
  EXPECT_THAT(error_of("int8+shiftadd+sparse:1%"), HasSubstr("outliers are added as floats"));
  EXPECT_THAT(error_of("int4+mixed+shiftadd"), HasSubstr("differ from rank to rank"));
  EXPECT_THAT(error_of("int4+shiftadd+sr"), HasSubstr("the same random numbers"));
  EXPECT_THAT(error_of("shiftadd+shiftadd"), HasSubstr("stands twice"));
  EXPECT_THAT(error_of("shiftadd/16"), HasSubstr("32, 64, 128"));
  EXPECT_THAT(error_of("int8+shiftadd:8"), HasSubstr("is written \"shiftadd\""));
  EXPECT_THAT(error_of("mxfp4+floor:1"), HasSubstr("is written \"floor\""));
  for (const char* text :
       {"int4+sparse", "int4+sparse:", "int4+sparse:%", "int4+sparse:0%", "int4+sparse:0.00%",
        "int4+sparse:10.01%", "int4+sparse:11%", "int4+sparse:0.2", "int4+sparse:.2%",
        "int4+sparse:0.002%", "int4+sparse:2.%", "int4+sparse:02%", "int4+sparse:-1%",
        "int4+sparse:1e0%", "int4+sparse: 1%", "int4+sparse:100%", "int4+sparse:1.-%"}) {
    EXPECT_THAT(error_of(text), HasSubstr("P from 0.01 to 10")) << text;
  }
  for (const char* text :
       {"int8+rows", "int8+rows:", "int8+rows:1", "int8+rows:0", "int8+rows:65537", "int8+rows:064",
        "int8+rows:-2", "int8+rows:4k", "int8+rows:4.0", "int8+rows: 4", "int8+rows:99999999999"}) {
    EXPECT_THAT(error_of(text), HasSubstr("N from 2 to 65536")) << text;
  }
  EXPECT_THAT(error_of("int4+rows:8+rows:8"), HasSubstr("stands twice"));
  for (const char* text : {"int8+mixed", "int2+mixed", "nf4+mixed", "bf16+mixed", "mxint8+mixed"}) {
    EXPECT_THAT(error_of(text), HasSubstr("only int3 to int7")) << text;
  }
  EXPECT_THAT(error_of("int4+mixed+adaptive"), HasSubstr("blocks of one size"));
  EXPECT_THAT(error_of("int4+mixed:2"), HasSubstr("is written \"mixed\""));
  EXPECT_THAT(error_of("mxfp4+adaptive"), HasSubstr("one size only"));
  EXPECT_THAT(error_of("exact+adaptive"), HasSubstr("one size only"));
  EXPECT_THAT(error_of("int1/64+adaptive"), HasSubstr("means"));
  EXPECT_THAT(error_of("five/64+adaptive"), HasSubstr("groups of 96"));
  EXPECT_THAT(error_of("fp8e5m2+adaptive"), HasSubstr("closer where values are small"));
  EXPECT_THAT(error_of("int4+hadamard+adaptive"), HasSubstr("a rotation spreads"));
  EXPECT_THAT(error_of("int4/32+adaptive"), HasSubstr("are the smallest already"));
  for (const char* text : {"int4/256+adaptive", "nf4/512+adaptive", "int4/1024+adaptive"}) {
    EXPECT_THAT(error_of(text), HasSubstr("1.25 times the error of blocks of 32")) << text;
    EXPECT_THAT(error_of(text), HasSubstr("write 64 or 128, or sparse")) << text;
  }
  EXPECT_THAT(error_of("bf16+rows:1"), HasSubstr("N from 2 to 65536"));
  EXPECT_THAT(error_of("bf16+rows:8+rows:8"), HasSubstr("stands twice"));
  EXPECT_THAT(error_of("int4+sparse:1%+sparse:2%"), HasSubstr("stands twice"));
  EXPECT_THAT(error_of("exact+sparse:1%"), HasSubstr("no blocks"));
}

TEST(CodecTable, WhatACodecCannotServeTakesTheExactPath) {
  const auto served = [](std::string_view spec, DataType type, ReduceOp op) {
    return codec_info(spec, type, op).value().spec;
  };
  for (const DataType type : {DataType::kFloat32, DataType::kBFloat16, DataType::kFloat16}) {
    EXPECT_EQ(served("int8/64", type, ReduceOp::kSum), "int8/64");
    EXPECT_EQ(served("int4", type, ReduceOp::kAverage), "int4/128");
    EXPECT_EQ(served("int8", type, ReduceOp::kMax), "exact");
    EXPECT_EQ(served("bf16", type, ReduceOp::kMin), "exact");
  }
  EXPECT_EQ(served("bf16", DataType::kFloat32, ReduceOp::kSum), "bf16");
  EXPECT_EQ(served("bf16", DataType::kFloat16, ReduceOp::kSum), "bf16");
  EXPECT_EQ(served("bf16", DataType::kBFloat16, ReduceOp::kSum), "exact");
  for (const DataType type :
       {DataType::kFloat64, DataType::kInt32, DataType::kInt64, DataType::kUint8}) {
    for (const char* spec : {"int8", "int4/32", "bf16", "exact"}) {
      EXPECT_EQ(served(spec, type, ReduceOp::kSum), "exact");
    }
  }
}

TEST(CodecTable, SameSpecSameObject) {
  const auto find = [](std::string_view spec) {
    return find_codec(spec, DataType::kFloat32, ReduceOp::kSum).value();
  };
  EXPECT_EQ(find("int8"), find("int8/128"));
  EXPECT_NE(find("int8"), find("int4"));
  EXPECT_NE(find("int8/32"), find("int8/64"));
  for (const char* spec : {"exact", "bf16", "int8/1024", "int4/32"}) {
    EXPECT_EQ(find(spec)->spec().to_string(), spec);
    EXPECT_EQ(find(spec)->value_type(), DataType::kFloat32);
  }
}

// Three in turn, which a thread remembers, and ten, which it does not; each, asked twice, as in a
// thread that remembers nothing. Some specs begin alike, and some are longer than is remembered.
TEST(CodecTable, WhatWasFoundLastDoesNotStandForAnother) {
  const std::vector<std::string_view> specs = {"int8",
                                               "int4",
                                               "int8/64",
                                               "int8/128",
                                               "exact",
                                               "bf16",
                                               "int4/128+hadamard",
                                               "int4/128+hadamard+feedback",
                                               "int3/128+hadamard+feedback",
                                               "int4/1024+sparse:0.2%"};
  const auto expect_own = [](std::string_view spec, DataType type, ReduceOp op) {
    const Codec* there = nullptr;
    std::thread([&] { there = find_codec(spec, type, op).value(); }).join();
    for (int asked = 0; asked < 2; ++asked) {
      EXPECT_EQ(find_codec(spec, type, op).value(), there)
          << spec << ' ' << data_type_name(type) << ' ' << asked;
    }
  };
  for (int round = 0; round < 3; ++round) {
    for (const DataType type : {DataType::kFloat32, DataType::kBFloat16, DataType::kInt32}) {
      for (const size_t in_turn : {size_t{3}, specs.size()}) {
        for (size_t i = 0; i < 3 * in_turn; ++i) {
          expect_own(specs[i % in_turn], type, ReduceOp::kSum);
        }
      }
      for (const ReduceOp op : {ReduceOp::kMax, ReduceOp::kSum, ReduceOp::kMin}) {
        expect_own("int8", type, op);
      }
    }
    EXPECT_FALSE(find_codec("", DataType::kFloat32, ReduceOp::kSum).ok());
    EXPECT_FALSE(find_codec("int9", DataType::kFloat32, ReduceOp::kSum).ok());
  }
}

TEST(CodecInfo, BytesOnTheWire) {
  EXPECT_EQ(codec_wire_bytes("exact", 1000).value(), 4000u);
  EXPECT_EQ(codec_wire_bytes("bf16", 1000).value(), 2000u);
  EXPECT_EQ(codec_wire_bytes("int8", 1000).value(), 1000u + 2 * 8);
  EXPECT_EQ(codec_wire_bytes("int4/32", 1001).value(), 501u + 2 * 32);
  EXPECT_EQ(codec_wire_bytes("int4/32", 0).value(), 0u);
  EXPECT_EQ(codec_wire_bytes("int8", 10, DataType::kFloat64).value(), 80u);
  EXPECT_DOUBLE_EQ(codec_info("int8/128").value().wire_bits, 8.125);
  EXPECT_DOUBLE_EQ(codec_info("int4/32").value().wire_bits, 4.5);
  EXPECT_DOUBLE_EQ(codec_info("exact", DataType::kUint8).value().wire_bits, 8);
  EXPECT_FALSE(codec_wire_bytes("int8/1", 10).ok());
}

TEST(CodecInfo, SlicesCutAtBlocksAddUp) {
  for (const char* spec : {"exact", "bf16", "int8/32", "int8/1024", "int4/32", "int4/256",
                           "int6/128", "five/64", "mxfp4", "nf4/32"}) {
    const Codec& codec = *find_codec(spec, DataType::kFloat32, ReduceOp::kSum).value();
    const size_t count = 10007;
    for (size_t cut = 0; cut <= count; cut += codec.block()) {
      ASSERT_EQ(codec.wire_bytes(cut) + codec.wire_bytes(count - cut), codec.wire_bytes(count));
    }
  }
}

}  // namespace
}  // namespace tersum
