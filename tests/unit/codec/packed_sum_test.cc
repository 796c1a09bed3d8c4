// Sums of packed codes that nobody unpacks: 2-bit codes by table, bit planes by carry.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <random>
#include <vector>

#include "codec/element_formats.h"
#include "codec/kernels/code_groups.h"
#include "codec/kernels/dispatch.h"
#include "codec/kernels/pair_sum.h"
#include "codec/kernels/plane_sum.h"
#include "nasty_values.h"

namespace tersum {
namespace {

using Bytes = std::vector<std::byte>;

constexpr uint64_t kSeed = 20261122;

Bytes noise(std::mt19937_64& random, size_t count) {
  Bytes bytes(count);
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(random());
  return bytes;
}

uint8_t pair_code(const Bytes& bytes, size_t i) {
  return static_cast<uint8_t>(static_cast<uint32_t>(bytes[i / 4]) >> (2 * (i % 4)) & 3U);
}

// reference/codecs.md section 3, DeepGEMM: the table add is the scalar reference, bit for bit.
TEST(PairSum, EveryInstructionSetLooksUpWhatTheTableSays) {
  std::mt19937_64 random(kSeed);
  for (int round = 0; round < 40; ++round) {
    PairTable table = mean_pair_table();
    // Any table will do, not only those that are symmetric or sums.
    if (round > 0) std::generate(table.begin(), table.end(), [&] { return random() % 4; });
    for (const size_t bytes : {0U, 1U, 15U, 16U, 17U, 63U, 64U, 65U, 191U, 1009U}) {
      const Bytes a = noise(random, bytes);
      const Bytes b = noise(random, bytes);
      Bytes expected(bytes);
      for (size_t i = 0; i < bytes * kPairCodes; ++i) {
        const uint32_t code = table[pair_code(a, i) + size_t{4} * pair_code(b, i)];
        expected[i / 4] |= static_cast<std::byte>(code << (2 * (i % 4)));
      }
      for (const int64_t target : available_targets()) {
        GuardedBytes out(bytes, 3);
        add_pairs_of(target)(table, a.data(), b.data(), bytes, out.data());
        ASSERT_TRUE(out.intact());
        ASSERT_EQ(out.copy(), expected) << target_name(target) << ", " << bytes << " bytes";
        Bytes in_place = b;
        add_pairs_of(target)(table, a.data(), in_place.data(), bytes, in_place.data());
        ASSERT_EQ(in_place, expected) << target_name(target);
      }
    }
  }
}

// Every pair of codes, in levels: half steps -3, -1, 1, 3, and twice those for the sum.
TEST(PairSum, TheMeanTableIsTheNearestAndLeansToNoSide) {
  const PairTable table = mean_pair_table();
  int drift = 0;
  for (int a = 0; a < 4; ++a) {
    for (int b = 0; b < 4; ++b) {
      const int sum = 2 * a - 3 + 2 * b - 3;
      const int got = 2 * (2 * table[static_cast<size_t>(a + 4 * b)] - 3);
      EXPECT_LE(std::abs(got - sum), 2) << a << " " << b;
      EXPECT_TRUE(a != b || got == sum) << a;
      drift += got - sum;
    }
  }
  EXPECT_EQ(drift, 0);
}

// Codes of `bits` in planes, by the packing of the element formats' scalar reference.
Bytes packed(size_t bits, const std::vector<int>& codes) {
  ElementFormat format = integer_format<8>();
  format.bits = static_cast<uint32_t>(bits);
  format.packing = Packing::kPlanes;
  Bytes wire(plane_bytes(bits, codes.size()));
  for (size_t at = 0; at < codes.size(); at += kPlaneGroup) {
    const size_t in_group = std::min(kPlaneGroup, codes.size() - at);
    std::array<uint8_t, kPlaneGroup> group{};
    for (size_t i = 0; i < in_group; ++i) group[i] = static_cast<uint8_t>(codes[at + i]);
    pack_group(format, group.data(), in_group, wire.data() + plane_bytes(bits, at));
  }
  return wire;
}

// Up to 32 bits, sign-extended.
std::vector<int> unpacked(size_t bits, const Bytes& wire, size_t count) {
  std::vector<int> codes(count);
  for (size_t i = 0; i < count; ++i) {
    const size_t begin = i / kPlaneGroup * kPlaneGroup;
    const size_t bytes = (std::min(kPlaneGroup, count - begin) + 7) / 8;
    int64_t code = 0;
    for (size_t plane = 0; plane < bits; ++plane) {
      const size_t at = plane_bytes(bits, begin) + plane * bytes + (i - begin) / 8;
      code |= int64_t{static_cast<int>(wire[at]) >> (i % 8) & 1} << plane;
    }
    if ((code >> (bits - 1) & 1) != 0) code -= int64_t{1} << bits;
    codes[i] = static_cast<int>(code);
  }
  return codes;
}

std::vector<int> random_codes(std::mt19937_64& random, size_t bits, size_t count) {
  const int half = 1 << (bits - 1);
  std::vector<int> codes(count);
  for (int& code : codes) code = static_cast<int>(random() % (2U << (bits - 1))) - half;
  return codes;
}

// reference/codecs.md section 3, ABQ-LLM: 42,312 codes, all widths, ragged lengths, 0 round-trip
// and 0 sum errors.
TEST(PlaneSum, AllWidthsAndRaggedLengthsAddExactly) {
  std::mt19937_64 random(kSeed);
  std::vector<size_t> lengths(102);
  for (size_t i = 0; i < lengths.size(); ++i) lengths[i] = i;
  lengths.push_back(138);
  size_t codes = 0;
  size_t round_trip_errors = 0;
  size_t sum_errors = 0;
  for (size_t bits = 1; bits <= 8; ++bits) {
    for (const size_t count : lengths) {
      const std::vector<int> a = random_codes(random, bits, count);
      const std::vector<int> b = random_codes(random, bits, count);
      const Bytes wire_a = packed(bits, a);
      const Bytes wire_b = packed(bits, b);
      Bytes sum(plane_bytes(bits + 1, count), std::byte{0xa5});
      Bytes reference(sum.size(), std::byte{0x5a});
      add_planes(wire_a.data(), bits, wire_b.data(), bits, count, sum.data());
      add_planes_reference(wire_a.data(), bits, wire_b.data(), bits, count, reference.data());
      ASSERT_EQ(sum, reference) << bits << " bits, " << count << " codes, seed " << kSeed;
      const std::vector<int> back = unpacked(bits, wire_a, count);
      const std::vector<int> total = unpacked(bits + 1, sum, count);
      for (size_t i = 0; i < count; ++i) {
        round_trip_errors += back[i] != a[i] ? 1 : 0;
        sum_errors += total[i] != a[i] + b[i] ? 1 : 0;
      }
      codes += count;
    }
  }
  EXPECT_EQ(codes, 42'312u);
  EXPECT_EQ(round_trip_errors, 0u) << "seed " << kSeed;
  EXPECT_EQ(sum_errors, 0u) << "seed " << kSeed;
}

// A sum of many ranks grows a bit with every stream; the streams stay as wide as they are.
TEST(PlaneSum, SumsOfManyStreamsOfAnyWidth) {
  std::mt19937_64 random(kSeed);
  for (size_t bits = 1; bits <= 8; ++bits) {
    constexpr size_t kCount = 331;
    std::vector<int> total = random_codes(random, bits, kCount);
    Bytes sum = packed(bits, total);
    size_t sum_bits = bits;
    for (size_t rank = 1; rank < 12; ++rank) {
      const size_t width = 1 + random() % 8;
      const std::vector<int> codes = random_codes(random, width, kCount);
      const Bytes wire = packed(width, codes);
      const size_t next_bits = std::max(sum_bits, width) + 1;
      Bytes next(plane_bytes(next_bits, kCount));
      Bytes reference(next.size());
      add_planes(sum.data(), sum_bits, wire.data(), width, kCount, next.data());
      add_planes_reference(sum.data(), sum_bits, wire.data(), width, kCount, reference.data());
      ASSERT_EQ(next, reference);
      for (size_t i = 0; i < kCount; ++i) total[i] += codes[i];
      ASSERT_EQ(unpacked(next_bits, next, kCount), total) << "seed " << kSeed;
      sum = next;
      sum_bits = next_bits;
    }
  }
}

}  // namespace
}  // namespace tersum
