// The stated bounds: no element is ever off by more, and they are not far too wide.
#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "block_places.h"
#include "codec/codec.h"
#include "codec/format_registry.h"
#include "codec/kernels/block_reference.h"
#include "golden_tables.h"
#include "golden_transforms.h"
#include "nasty_values.h"

namespace tersum {
namespace {

std::string any_lossy_spec() {
  const auto rows = format_rows();
  const auto tables = golden_tables();
  const size_t drawn = *rc::gen::inRange<size_t>(1, rows.size() + tables.size());
  if (drawn >= rows.size()) {
    const std::string modifiers = *rc::gen::element("", "/32", "/256+hadamard", "+sparse:3%");
    return tables[drawn - rows.size()] + modifiers;
  }
  const FormatRow& row = rows[drawn];
  std::string spec(row.name);
  if (!row.has_blocks()) return spec;
  uint32_t block = row.block_min;
  while (block < row.block_max && *rc::gen::arbitrary<bool>()) block *= 2;
  spec += "/" + std::to_string(block);
  if (row.shares) {
    const std::string rounded = spec + *rc::gen::element("", "+sr");
    return parse_codec_spec(rounded).ok() ? rounded : spec;
  }
  spec += *rc::gen::element("", "", "", "+rows:7", "+rows:100", "+rows:2049");
  spec += *rc::gen::element("", "", "+sparse:0.2%", "+sparse:10%");
  std::vector<std::string> turns = {"", "+hadamard"};
  for (const std::string& transform : golden_transforms(block)) turns.push_back(transform);
  if (row.rotates) spec += *rc::gen::elementOf(turns);
  // Not every format takes each of these.
  const std::string laid_out =
      spec + *rc::gen::element("", "+mixed", "+adaptive", "+sr", "+sr", "+shiftadd",
                               "+clip:learned", "+floor", "+floor", "+shiftadd+floor");
  return parse_codec_spec(laid_out).ok() ? laid_out : spec;
}

ValueKind kind_of(DataType type) {
  if (type == DataType::kBFloat16) return ValueKind::kBFloat16;
  return type == DataType::kFloat16 ? ValueKind::kFloat16 : ValueKind::kFloat32;
}

std::vector<double> as_doubles(const std::vector<std::byte>& bytes, DataType type) {
  std::vector<double> values(bytes.size() / element_bytes(type));
  for (size_t i = 0; i < values.size(); ++i) {
    values[i] = load_value(kind_of(type), bytes.data(), i);
  }
  return values;
}

// What a block that holds no number must come back as.
bool is_faithful(const Codec& codec, double sent, double got) {
  if (!places_are_blocks(codec) && std::isfinite(sent)) return !std::isinf(got);
  if (codec.spec().block > 1 || std::isnan(sent)) return std::isnan(got);
  return !std::isinf(sent) || got == sent;
}

// Encodes and decodes; the largest share of its bound that an element used, infinite where the rule
// for NaN and Inf was broken or the error of a zero bound is not zero.
double used_share(const Codec& codec, const std::vector<std::byte>& values) {
  const size_t count = values.size() / element_bytes(codec.value_type());
  std::vector<std::byte> wire(codec.wire_bytes(count));
  std::vector<std::byte> back(values.size());
  codec.encode(values.data(), count, wire.data());
  codec.decode(wire.data(), count, back.data());
  const std::vector<double> sent = as_doubles(values, codec.value_type());
  const std::vector<double> got = as_doubles(back, codec.value_type());
  double used = 0;
  for (const auto [begin, end] : block_places(codec, count)) {
    double absmax = 0;
    bool finite = true;
    for (size_t i = begin; i < end; ++i) {
      finite = finite && std::isfinite(sent[i]);
      absmax = std::max(absmax, std::fabs(sent[i]));
    }
    const double bound = codec.block_error_bound(absmax);
    for (size_t i = begin; i < end; ++i) {
      if (!finite) {
        if (!is_faithful(codec, sent[i], got[i])) return INFINITY;
        continue;
      }
      const double error = std::fabs(got[i] - sent[i]);
      // Not "error > bound": a NaN must not pass.
      if (!(error <= bound) || !std::isfinite(bound)) return INFINITY;
      if (bound > 0) used = std::max(used, error / bound);
    }
  }
  return used;
}

RC_GTEST_PROP(CodecBound, HoldsForEveryElement, ()) {
  const std::string spec = any_lossy_spec();
  const DataType type =
      *rc::gen::element(DataType::kFloat32, DataType::kBFloat16, DataType::kFloat16);
  const Codec& codec = *find_codec(spec, type, ReduceOp::kSum).value();
  const auto seed = *rc::gen::arbitrary<uint64_t>();
  const auto count = *rc::gen::inRange<size_t>(1, 3000);
  RC_LOG() << spec << " " << std::string(data_type_name(type)) << " seed " << seed << "\n";
  RC_ASSERT(used_share(codec, nasty_elements(seed, count, type)) <= 1.0);
}

// Sums are bounded by what they may be at most, and +sparse leaves a block with less than it had.
TEST(CodecBound, IsNoLessForLargerBlocks) {
  for (const char* spec : {"mxfp8+floor", "mxfp4+floor+hadamard", "mxfp6+floor+sparse:1%",
                           "mxint8+floor", "int3+shiftadd+floor", "mxfp8", "int4", "nf4+sr"}) {
    const Codec& codec = *find_codec(spec, DataType::kFloat32, ReduceOp::kSum).value();
    double before = 0;
    // Powers of two are among them.
    for (int step = -1000; step <= 1000; ++step) {
      const double absmax = std::ldexp(1 + (step & 63) / 64.0, step >> 6);
      const double bound = codec.block_error_bound(absmax);
      EXPECT_GE(bound, before) << spec << " at " << absmax;
      before = bound;
    }
  }
}

// A block of one large value and ties beside it: the worst case is half a step, and nearly reached.
TEST(CodecBound, IsReachedWithinATwentieth) {
  for (const char* spec : {"int8/128", "int4/32", "int8/1024", "bf16"}) {
    const Codec& codec = *find_codec(spec, DataType::kFloat32, ReduceOp::kSum).value();
    double used = 0;
    for (int k = 1; k < 2000; ++k) {
      const float absmax = 1.0f + static_cast<float>(k) / 2000.0f;
      std::vector<std::byte> values(codec.block() * 4);
      for (size_t i = 0; i < codec.block(); ++i) {
        const float x = i == 0 ? absmax : absmax * static_cast<float>(i) / codec.block();
        store_unaligned(values.data() + 4 * i, x);
      }
      used = std::max(used, used_share(codec, values));
    }
    EXPECT_LE(used, 1.0) << spec;
    EXPECT_GE(used, 0.95) << spec;
  }
}

// codecs.md of the project's references: what one quantization costs on N(0,1).
TEST(CodecBound, RelativeErrorOnNormalDataIsWhatTheoryPredicts) {
  const uint64_t seed = 7;
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  std::mt19937_64 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> values(262144);
  for (float& value : values) value = normal(random);
  struct Expectation {
    const char* spec;
    double relative_error;
  };
  // Scales rounded up to bf16 lose up to 2^-7 of resolution, hence not below; 3 % covers the draw.
  for (const Expectation& e : {Expectation{"int8/32", 0.0055},
                               {"int8/256", 0.0070},
                               {"int8/1024", 0.0079},
                               {"int4/32", 0.0974},
                               {"int4/128", 0.118},
                               {"int4/1024", 0.144},
                               {"int6/128", 0.0266},
                               {"int5/128", 0.0550},
                               {"int3/32", 0.227},
                               {"int2/32", 0.658},
                               {"five/32", 0.341},
                               {"fp8e4m3/128", 0.0258},
                               {"fp8e5m2/128", 0.0513},
                               {"mxfp8:e4m3", 0.0266},
                               {"mxfp6:e2m3", 0.0284},
                               {"mxfp4", 0.115},
                               {"mxint8", 0.0083},
                               {"nvfp4", 0.0949},
                               {"nf4/64", 0.0922}}) {
    const Codec& codec = *find_codec(e.spec, DataType::kFloat32, ReduceOp::kSum).value();
    std::vector<std::byte> wire(codec.wire_bytes(values.size()));
    std::vector<float> back(values.size());
    codec.encode(values.data(), values.size(), wire.data());
    codec.decode(wire.data(), values.size(), back.data());
    double error = 0;
    double energy = 0;
    for (size_t i = 0; i < values.size(); ++i) {
      error += std::pow(double{back[i]} - values[i], 2);
      energy += std::pow(double{values[i]}, 2);
    }
    EXPECT_NEAR(std::sqrt(error / energy), e.relative_error, 0.03 * e.relative_error) << e.spec;
  }
}

TEST(CodecBound, NoFiniteBlockDecodesToInfinity) {
  for (const char* spec :
       {"int8/32", "int4/32", "bf16", "mxint8", "mxfp8", "mxfp4", "int6/32", "int8/32+sparse:5%",
        "mxfp4+sparse:10%", "int8+shiftadd", "int4+shiftadd"}) {
    for (const DataType type : {DataType::kFloat32, DataType::kBFloat16, DataType::kFloat16}) {
      const Codec& codec = *find_codec(spec, type, ReduceOp::kSum).value();
      const float largest = type == DataType::kFloat32    ? std::numeric_limits<float>::max()
                            : type == DataType::kBFloat16 ? bf16_to_float(0x7f7f)
                                                          : 65504.0f;
      std::vector<std::byte> values(64 * element_bytes(type));
      for (size_t i = 0; i < 64; ++i) {
        store_value(kind_of(type), values.data(), i, i % 3 == 0 ? largest : -largest);
      }
      std::vector<std::byte> wire(codec.wire_bytes(64));
      std::vector<std::byte> back(values.size());
      codec.encode(values.data(), 64, wire.data());
      codec.decode(wire.data(), 64, back.data());
      const double bound = codec.block_error_bound(largest);
      for (size_t i = 0; i < 64; ++i) {
        const double got = load_value(kind_of(type), back.data(), i);
        ASSERT_TRUE(std::isfinite(got)) << spec << " " << data_type_name(type);
        EXPECT_LE(std::fabs(got - load_value(kind_of(type), values.data(), i)), bound);
      }
      EXPECT_LE(bound, 0.27 * largest);
    }
  }
}

TEST(CodecBound, OfZeroAndOfNoNumber) {
  for (const char* spec : {"int8", "int4", "bf16"}) {
    const Codec& codec = *find_codec(spec, DataType::kFloat32, ReduceOp::kSum).value();
    EXPECT_EQ(codec.block_error_bound(0), 0);
    EXPECT_EQ(codec.block_error_bound(INFINITY), INFINITY);
    EXPECT_EQ(codec.block_error_bound(NAN), INFINITY);
  }
  const Codec& exact = *find_codec("exact", DataType::kFloat32, ReduceOp::kSum).value();
  EXPECT_EQ(exact.block_error_bound(1e30), 0);
}

}  // namespace
}  // namespace tersum
