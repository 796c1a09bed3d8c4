// +kronecker: matrices from numbers and from files, what is refused, and that blocks come back as
// the document says: products in float64 are the oracle.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <limits>
#include <sstream>
#include <string>
#include <vector>

#include "codec/codec.h"
#include "codec/force_isa.h"
#include "codec/kronecker_matrix.h"
#include "codec/kronecker_transforms.h"
#include "coded_slices.h"
#include "golden_transforms.h"
#include "normal_floats.h"
#include "tersum/codec_info.h"

namespace tersum {
namespace {

using testing::HasSubstr;
using Floats = std::vector<float>;
using Bytes = std::vector<std::byte>;

constexpr uint64_t kSeed = 20261122;

// Orthogonal by Gram and Schmidt, its columns then multiplied by numbers up to `stretch`.
Floats random_matrix(size_t side, double stretch, uint64_t seed) {
  const Floats drawn = normal_floats(seed, side * side);
  std::vector<std::vector<double>> rows(side);
  for (size_t r = 0; r < side; ++r) {
    rows[r].assign(drawn.begin() + static_cast<ptrdiff_t>(r * side),
                   drawn.begin() + static_cast<ptrdiff_t>((r + 1) * side));
    for (size_t k = 0; k < r; ++k) {
      double dot = 0;
      for (size_t i = 0; i < side; ++i) dot += rows[r][i] * rows[k][i];
      for (size_t i = 0; i < side; ++i) rows[r][i] -= dot * rows[k][i];
    }
    double norm = 0;
    for (const double x : rows[r]) norm += x * x;
    for (double& x : rows[r]) x /= std::sqrt(norm);
  }
  Floats matrix(side * side);
  for (size_t r = 0; r < side; ++r) {
    for (size_t c = 0; c < side; ++c) {
      const double part = side > 1 ? static_cast<double>(c) / static_cast<double>(side - 1) : 0;
      matrix[r * side + c] = static_cast<float>(rows[r][c] * std::pow(stretch, part));
    }
  }
  return matrix;
}

struct Sides {
  size_t rows;
  size_t columns;
  double stretch;
  size_t channels;
};

std::string registered(const Sides& sides) {
  const Floats p1 = random_matrix(sides.rows, sides.stretch, kSeed);
  const Floats p2 = random_matrix(sides.columns, sides.stretch, kSeed + 1);
  Floats diagonal = normal_floats(kSeed + 2, sides.channels);
  for (float& factor : diagonal) factor += factor < 0 ? -0.1F : 0.1F;
  return register_kronecker(p1, p2, diagonal).value();
}

const Codec& codec_of(const std::string& spec, DataType type = DataType::kFloat32) {
  const Result<const Codec*> found = find_codec(spec, type, ReduceOp::kSum);
  EXPECT_TRUE(found.ok()) << spec << ": " << found.status().message();
  return *found.value();
}

SlicePlace place_at(size_t first) {
  SlicePlace place;
  place.first = first;
  return place;
}

class KroneckerSides : public testing::TestWithParam<Sides> {};

// The error is that of the format and what stretched matrices make of it; a wrong product would be
// off by as much as the values are.
TEST_P(KroneckerSides, GiveBackWhatTheyWere) {
  const Sides& sides = GetParam();
  const size_t block = sides.rows * sides.columns;
  const std::string base = block == 16 ? "nvfp4" : "int8/" + std::to_string(block);
  const Codec& codec = codec_of(base + "+" + registered(sides));
  for (const size_t count : {1UL, 31UL, 2 * block, 7001UL}) {
    const SlicePlace place = place_at(3 * size_t{codec.block()});
    const Floats values = normal_floats(kSeed + count, count);
    const Floats back = decode(codec, encode(codec, values, place), count, place);
    double error = 0;
    double energy = 0;
    double largest = 0;
    for (size_t i = 0; i < count; ++i) {
      error += std::pow(double{back[i]} - values[i], 2);
      energy += double{values[i]} * values[i];
      largest = std::max(largest, std::abs(double{values[i]}));
    }
    const double plain = block == 16 ? 0.15 : 0.03;
    EXPECT_LE(std::sqrt(error / energy), plain * sides.stretch * sides.stretch) << count;
    for (size_t i = 0; i < count; ++i) {
      ASSERT_LE(std::abs(double{back[i]} - values[i]), codec.block_error_bound(largest)) << i;
    }
  }
}

// The payload is that of the plain format for P1^T X P2 d, to float32's rounding.
TEST_P(KroneckerSides, CodeTheProduct) {
  const Sides& sides = GetParam();
  const size_t block = sides.rows * sides.columns;
  if (block == 16) return;  // int8 has no such blocks
  const std::string base = "int8/" + std::to_string(block);
  const std::string modifier = registered(sides);
  const KroneckerTransform& transform =
      kronecker_transform(find_kronecker_transform(modifier.substr(10)).value());
  const Floats values = normal_floats(kSeed, block);
  std::vector<double> half(block);
  Floats product(block);
  const size_t columns = sides.columns;
  const auto factor = [&](size_t i) {
    return transform.diagonal == nullptr ? 1.0 : double{transform.diagonal[i % sides.channels]};
  };
  for (size_t i = 0; i < block; ++i) {
    for (size_t k = 0; k < sides.rows; ++k) {
      const size_t at = k * columns + i % columns;
      half[i] +=
          double{transform.there.left[i / columns * sides.rows + k]} * values[at] * factor(at);
    }
  }
  for (size_t i = 0; i < block; ++i) {
    double sum = 0;
    for (size_t k = 0; k < columns; ++k) {
      sum += half[i / columns * columns + k] *
             double{transform.there.right[k * columns + i % columns]};
    }
    product[i] = static_cast<float>(sum);
  }
  const Bytes plain = encode(codec_of(base), product);
  const Bytes coded = encode(codec_of(base + "+" + modifier), values);
  ASSERT_EQ(plain.size(), coded.size());
  size_t differing = 0;
  for (size_t i = 2; i < plain.size(); ++i) differing += plain[i] != coded[i] ? 1 : 0;
  // A value beside the middle between two codes may go either way.
  EXPECT_LE(differing, 1 + block / 64);
}

TEST_P(KroneckerSides, SumsAreThoseOfTheirDecodings) {
  const Sides& sides = GetParam();
  const size_t block = sides.rows * sides.columns;
  const std::string base = block == 16 ? "nvfp4" : "int6/" + std::to_string(block);
  const Codec& codec = codec_of(base + "+" + registered(sides));
  constexpr size_t kCount = 5000;
  const SlicePlace place = place_at(5 * size_t{codec.block()});
  const Floats own = normal_floats(1, kCount);
  std::vector<Bytes> wires;
  std::vector<const std::byte*> pointers;
  std::vector<double> exact(own.begin(), own.end());
  for (uint64_t peer = 0; peer < 3; ++peer) {
    wires.push_back(encode(codec, normal_floats(peer + 2, kCount), place));
    const Floats decoded = decode(codec, wires.back(), kCount, place);
    for (size_t i = 0; i < kCount; ++i) exact[i] += decoded[i];
  }
  for (const Bytes& wire : wires) pointers.push_back(wire.data());
  Floats sum(kCount);
  codec.combine(pointers, own.data(), 1, kCount, {}, nullptr, sum.data(), place);
  for (size_t i = 0; i < kCount; ++i) EXPECT_NEAR(sum[i], exact[i], 1e-3) << i;
  Bytes out(codec.wire_bytes(kCount));
  Floats seen(kCount);
  codec.combine(pointers, own.data(), 1, kCount, {}, out.data(), seen.data(), place);
  EXPECT_EQ(seen, decode(codec, out, kCount, place));
}

TEST_P(KroneckerSides, EveryInstructionSetGivesTheSameBits) {
  const Sides& sides = GetParam();
  const size_t block = sides.rows * sides.columns;
  const std::string base = block == 16 ? "nvfp4" : "int8/" + std::to_string(block);
  const Codec& codec = codec_of(base + "+" + registered(sides));
  const Floats values = normal_floats(kSeed, 9001);
  const SlicePlace place = place_at(7 * size_t{codec.block()});
  Bytes wire;
  Floats back;
  for (const std::string& isa : available_isas()) {
    ASSERT_TRUE(force_isa(isa).ok());
    const Bytes coded = encode(codec, values, place);
    const Floats decoded = decode(codec, coded, values.size(), place);
    if (wire.empty()) {
      wire = coded;
      back = decoded;
    }
    EXPECT_EQ(coded, wire) << isa;
    EXPECT_EQ(decoded, back) << isa;
  }
  ASSERT_TRUE(force_isa("").ok());
}

INSTANTIATE_TEST_SUITE_P(Matrices, KroneckerSides,
                         testing::Values(Sides{4, 4, 1, 0}, Sides{1, 32, 1, 0}, Sides{32, 1, 1, 3},
                                         Sides{2, 16, 2, 7}, Sides{8, 8, 1, 0}, Sides{8, 16, 1, 0},
                                         Sides{8, 16, 2, 96}, Sides{1, 128, 1, 5000},
                                         Sides{16, 32, 1, 1}, Sides{32, 32, 2, 384},
                                         Sides{128, 8, 1, 0}));

TEST(KroneckerCodecs, ABlockWithNoNumberArrivesAsNaN) {
  for (const std::string& modifier : golden_transforms(32)) {
    const Codec& codec = codec_of("int6/32" + modifier);
    for (const float bad :
         {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity(),
          -std::numeric_limits<float>::infinity()}) {
      for (size_t place = 32; place < 64; ++place) {
        Floats values(100, 0);
        values[place] = bad;
        const Floats back = decode(codec, encode(codec, values), values.size());
        for (size_t i = 0; i < values.size(); ++i) {
          EXPECT_EQ(std::isnan(back[i]), i >= 32 && i < 64) << bad << " at " << place << ", " << i;
        }
      }
    }
  }
}

TEST(KroneckerCodecs, HugeValuesDoNotBecomeInfinite) {
  for (const size_t block : {16, 32, 64, 128}) {
    for (const std::string& modifier : golden_transforms(block)) {
      const std::string base = block == 16 ? "nvfp4" : "fp8e5m2/" + std::to_string(block);
      const Codec& codec = codec_of(base + modifier);
      Floats values(2 * block + 5, std::numeric_limits<float>::max());
      for (size_t i = 0; i < values.size(); i += 3) values[i] = -values[i];
      for (const float back : decode(codec, encode(codec, values), values.size())) {
        EXPECT_TRUE(std::isfinite(back)) << base << modifier;
      }
    }
  }
}

// The sum is beyond float32, though not where it is coded.
TEST(KroneckerCodecs, ASumThatOverflowsArrivesAsNaN) {
  for (const std::string& modifier : golden_transforms(32)) {
    const Codec& codec = codec_of("int8/32" + modifier);
    Floats values(64, 1);
    std::fill_n(values.begin(), 32, 0.75F * std::numeric_limits<float>::max());
    const Bytes wire = encode(codec, values);
    const std::byte* const pointers[] = {wire.data(), wire.data()};
    Bytes out(wire.size());
    Floats sum(64);
    codec.combine(pointers, values.data(), 0, 64, {}, out.data(), sum.data(), {});
    for (size_t i = 0; i < 64; ++i) EXPECT_EQ(std::isnan(sum[i]), i < 32) << modifier << " " << i;
  }
}

TEST(KroneckerMatrices, InversesAreNearTheirs) {
  for (const size_t side : {1, 2, 16, 64}) {
    const SquareMatrix matrix{side, random_matrix(side, 3, kSeed + side)};
    const SquareMatrix found = inverse(matrix);
    EXPECT_LE(inverse_residual(matrix, found), 1e-6 * static_cast<double>(side)) << side;
  }
  EXPECT_EQ(inverse({2, {1, 2, 2, 4}}).side, 0u);
  EXPECT_EQ(inverse({2, {0, 0, 0, 0}}).side, 0u);
}

TEST(GoldenTransforms, AreNamedByTheDigestOfTheirNumbers) {
  size_t files = 0;
  for (const auto& file : std::filesystem::directory_iterator(TERSUM_GOLDEN_TRANSFORMS)) {
    const auto number = find_kronecker_transform(file.path().string());
    ASSERT_TRUE(number.ok()) << number.status().message();
    EXPECT_EQ(kronecker_transform(number.value()).name, file.path().stem().string());
    ++files;
  }
  EXPECT_GE(files, 5u);
}

class TransformFile {
 public:
  explicit TransformFile(const std::string& text) {
    static int files = 0;
    path_ = std::filesystem::temp_directory_path() /
            ("tersum_transform_" + std::to_string(getpid()) + "_" + std::to_string(files++));
    std::ofstream(path_) << text;
  }
  ~TransformFile() { std::filesystem::remove(path_); }
  TransformFile(const TransformFile&) = delete;
  TransformFile& operator=(const TransformFile&) = delete;

  [[nodiscard]] std::string modifier() const { return "+kronecker:" + path_.string(); }

 private:
  std::filesystem::path path_;
};

// A file of 4 x 4 and 8 x 8 unit matrices and `channels` ones, with `word` as number `at`.
std::string unit_file(size_t channels = 0, size_t at = 1000, const std::string& word = "") {
  std::ostringstream text;
  text << "# units\ntersum-kronecker 1\n4, 8, " << channels << "\n";
  size_t number = 0;
  for (const size_t side : {4, 8}) {
    for (size_t i = 0; i < side * side; ++i, ++number) {
      text << (number == at ? word : i % (side + 1) == 0 ? "1" : "0") << " ";
    }
  }
  for (size_t i = 0; i < channels; ++i, ++number) text << (number == at ? word : "1") << "\n";
  return text.str();
}

std::string error_of(const std::string& spec) {
  const auto normal = normalize_codec(spec);
  EXPECT_FALSE(normal.ok()) << spec;
  EXPECT_EQ(normal.status().code(), StatusCode::kInvalidArgument);
  return std::string(normal.status().message());
}

TEST(KroneckerFiles, AreThoseOfTheSameNumbers) {
  const TransformFile file(unit_file(2));
  Floats four(16);
  Floats eight(64);
  for (size_t i = 0; i < 4; ++i) four[5 * i] = 1;
  for (size_t i = 0; i < 8; ++i) eight[9 * i] = 1;
  four[1] = -0.0F;
  const std::string modifier = register_kronecker(four, eight, Floats{1, 1}).value();
  EXPECT_EQ(normalize_codec("int4/32+sr" + file.modifier() + "+sparse:1%").value(),
            "int4/32+sparse:1%+" + modifier + "+sr");
  EXPECT_EQ(&codec_of("nf4/32" + file.modifier()), &codec_of("nf4/32+" + modifier));
  const std::string other = register_kronecker(four, eight).value();
  EXPECT_NE(other, modifier);
}

TEST(KroneckerFiles, AreRefusedWithWhatIsWrongAndWhere) {
  const std::string whole = unit_file(2);
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"", "begins with nothing"},
      {"-1 0 1", "begins with \"-1\""},
      {"tersum-kronecker 2 4 8 0", "not with \"tersum-kronecker\" \"1\""},
      {"tersum-kronecker 1 4 8", "does not say its sizes"},
      {"tersum-kronecker 1 256 8 0", "does not say its sizes"},
      {"tersum-kronecker 1 4 -8 0", "does not say its sizes"},
      {"tersum-kronecker 1 4 8 0 1 2", "nothing where a number stands: P1, row 0, column 2"},
      {unit_file(2, 16 + 17, "x1"), "\"x1\" where a number stands: P2, row 2, column 1"},
      {unit_file(2, 81, "1e99"), "\"1e99\" where a number stands: the diagonal, channel 1"},
      {whole + "7", "goes on with \"7\" after the last number"},
      {unit_file(0, 3, "nan"), "P1: row 0, column 3 is not finite"},
      {unit_file(0, 17, "inf"), "P2: row 0, column 1 is not finite"},
      {unit_file(0, 15, "0"), "P1 (4 x 4) is singular"},
      {unit_file(0, 15, "1e-40"), "P1 (4 x 4) is nearly singular"},
      {unit_file(0, 15, "1e-6"), "P1 (4 x 4) is nearly singular: its condition number (1-norm) is"},
      {unit_file(2, 80, "0"), "the factor of channel 0 is zero or not finite"},
      {unit_file(3, 82, "-2e3"), "factors are 2000 times apart, more than 1024"},
      {"tersum-kronecker 1 3 8 0" + whole.substr(40), "goes on with"},
      {"tersum-kronecker 1 1 1 0 1 1", "for blocks of 1 values; blocks have 16 to 1024"},
  };
  for (const auto& [text, expected] : cases) {
    const TransformFile file(text);
    const std::string message = error_of("int4/32" + file.modifier());
    EXPECT_THAT(message, HasSubstr(expected));
    EXPECT_THAT(message, HasSubstr(file.modifier().substr(11)));
  }
}

TEST(KroneckerFiles, WhatDoesNotComposeIsRefusedWithTheReason) {
  const TransformFile file(unit_file());
  const std::string with = file.modifier();
  EXPECT_THAT(error_of("int8" + with),
              HasSubstr("its matrices are 4 x 4 and 8 x 8, for blocks of 32"));
  EXPECT_THAT(error_of("nvfp4" + with), HasSubstr("for blocks of 32"));
  EXPECT_THAT(error_of("int8/32+hadamard" + with), HasSubstr("take the place of hadamard"));
  EXPECT_THAT(error_of("int8/32+flatten" + with), HasSubstr("that of flatten"));
  EXPECT_THAT(error_of("int8/32" + with + "+adaptive"), HasSubstr("rotation spreads"));
  EXPECT_THAT(error_of("bf16" + with), HasSubstr("no blocks"));
  EXPECT_THAT(error_of("int8/32" + with + with), HasSubstr("stands twice"));
  EXPECT_THAT(error_of("int8/32+kronecker"), HasSubstr("kronecker:FILE"));
  EXPECT_THAT(error_of("int8/32+kronecker:"), HasSubstr("kronecker:FILE"));
  EXPECT_THAT(error_of("int8/32+kronecker:/no/such"), HasSubstr("neither a file here nor"));
  EXPECT_THAT(error_of("int8/32+kronecker:/dev/zero"), HasSubstr("neither a file here nor"));
}

TEST(KroneckerFiles, NumbersThatAreNoMatrixAreRefused) {
  const Floats unit = {1};
  EXPECT_THAT(register_kronecker(Floats(5, 1), unit).status().message(), HasSubstr("P1 has 5"));
  EXPECT_THAT(register_kronecker(unit, Floats(9, 1)).status().message(), HasSubstr("P2 has 9"));
  EXPECT_THAT(register_kronecker(Floats(), unit).status().message(), HasSubstr("P1 has 0"));
  EXPECT_THAT(register_kronecker(Floats(256 * 256, 1), unit).status().message(),
              HasSubstr("P1 has 65536"));
}

}  // namespace
}  // namespace tersum
