// Packed codes against plain loops over them, on one core.
//
//   packed_sum_bench [--rounds N] [--check] [--json FILE]
//
// Sums without unpacking: 2-bit codes by table (pair_sum.h) and bit planes (plane_sum.h), against
// the scalar reference, 262,144 codes a stream. Decoding of nf4 against a loop over nibbles, with
// values in L1 and in L2. Every round times the loop and the kernel once; medians over the rounds.
// --check fails below 10 times for tables and 5 times for nf4 in L1: reference/codecs.md section 3,
// DeepGEMM (LUT), identical to the scalar reference, 73 against 4.5 G elements/s (16x), and FLUTE,
// decode bit-exact, in-register permute 5.3x a nibble loop. (In L2 the kernel writes as fast as
// memcpy, 44 GB/s on a Xeon, so that its 3.8 to 5.0 times there say how fast that is.)
#include <algorithm>
#include <charconv>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <string>
#include <string_view>
#include <vector>

#include "base/check.h"
#include "codec/codec.h"
#include "codec/kernels/dispatch.h"
#include "codec/kernels/element_format.h"
#include "codec/kernels/pair_sum.h"
#include "codec/kernels/plane_sum.h"
#include "timed_kernels.h"

namespace tersum {
namespace {

constexpr size_t kCodes = 262'144;
constexpr size_t kDecodedInL1 = 4096;
constexpr size_t kDecodedInL2 = 65'536;
constexpr size_t kWidest = 9;

struct Streams {
  Streams() : a(kCodes * kWidest / 8, 0), b(kCodes * kWidest / 8, 1), sum(kCodes * kWidest / 8, 2) {
    std::mt19937_64 random(1);
    for (size_t i = 0; i < kCodes * kWidest / 8; ++i) {
      a.data()[i] = static_cast<std::byte>(random());
      b.data()[i] = static_cast<std::byte>(random());
    }
  }
  Array<std::byte> a, b, sum;
};

struct Timing {
  double reference = 0;  // codes per nanosecond
  double kernel = 0;
  double times = 0;  // the median of the ratios
};

template <class Reference, class Kernel>
Timing time_both(size_t rounds, size_t codes, const Reference& reference, const Kernel& kernel,
                 size_t repeats = 1) {
  const SystemClock clock;
  std::vector<double> slow;
  std::vector<double> fast;
  std::vector<double> times;
  for (size_t round = 0; round < rounds; ++round) {
    slow.push_back(seconds_of(clock, reference, repeats));
    fast.push_back(seconds_of(clock, kernel, 20 * repeats));
    times.push_back(slow.back() / fast.back());
  }
  const double giga = 1e-9 * static_cast<double>(codes);
  return {giga / median(slow), giga / median(fast), median(times)};
}

struct Row {
  std::string name;
  Timing timing;
  double floor = 0;  // of times
  [[nodiscard]] bool is_low() const { return timing.times < floor; }
};

void print(const Row& row) {
  std::printf("%-24s reference %7.2f G codes/s | kernel %7.2f | %6.1fx%s\n", row.name.c_str(),
              row.timing.reference, row.timing.kernel, row.timing.times,
              row.is_low() ? " (LOW)" : "");
}

void write_json(const std::string& path, const std::vector<Row>& rows) {
  std::ofstream file(path);
  for (size_t i = 0; i < rows.size(); ++i) {
    file << (i == 0 ? "[\n" : ",\n") << R"( {"kernel": ")" << rows[i].name
         << R"(", "reference_giga_codes_s": )" << rows[i].timing.reference
         << R"(, "giga_codes_s": )" << rows[i].timing.kernel << R"(, "times_reference": )"
         << rows[i].timing.times << R"(, "floor": )" << rows[i].floor << "}";
  }
  file << "\n]\n";
}

// Two looks into the table a byte.
void decode_nibbles(const ElementFormat& format, const std::byte* wire, size_t count,
                    float* values) {
  const std::byte* const codes = wire + codes_offset(format, count);
  for (size_t first = 0; first < count; first += kNibbleGroup) {
    const std::byte* const group = codes + first / 2;
    const float scale = load_scale(wire + first / format.block * scale_bytes(format.rule));
    for (size_t i = 0; i < kNibbleGroupBytes; ++i) {
      const auto byte = static_cast<uint8_t>(group[i]);
      values[first + i] = format.levels[byte & 15U] * scale;
      values[first + kNibbleGroupBytes + i] = format.levels[byte >> 4] * scale;
    }
  }
}

Row run_nibbles(size_t rounds, const std::string& where, size_t count, double floor) {
  const Codec& codec = *find_codec("nf4/64", DataType::kFloat32, ReduceOp::kSum).value();
  const ElementFormat& format = *codec.element_format();
  const Arrays a(codec, count);
  const auto loop = [&] { decode_nibbles(format, a.pointers[0], count, a.out.data()); };
  const auto kernel = [&] { codec.decode(a.pointers[0], count, a.copy.data(), a.place); };
  loop();
  kernel();
  TERSUM_CHECK(std::equal(a.out.data(), a.out.data() + count, a.copy.data()));
  return {"nf4/64 decode, " + where, time_both(rounds, count, loop, kernel, kDecodedInL2 / count),
          floor};
}

std::vector<Row> run(size_t rounds) {
  std::vector<Row> rows = {run_nibbles(rounds, "L1", kDecodedInL1, 5),
                           run_nibbles(rounds, "L2", kDecodedInL2, 0)};
  const Streams s;
  const PairTable table = mean_pair_table();
  const size_t bytes = kCodes / kPairCodes;
  for (const int64_t target : available_targets()) {
    if (target == kReferenceTarget) continue;
    const auto add = [&](int64_t which) {
      return
          [&, which] { add_pairs_of(which)(table, s.a.data(), s.b.data(), bytes, s.sum.data()); };
    };
    rows.push_back({"2-bit table, " + std::string(target_name(target)),
                    time_both(rounds, kCodes, add(kReferenceTarget), add(target)), 10});
  }
  for (size_t bits = 1; bits < kWidest; ++bits) {
    const auto reference = [&] {
      add_planes_reference(s.a.data(), bits, s.b.data(), bits, kCodes, s.sum.data());
    };
    const auto kernel = [&] {
      add_planes(s.a.data(), bits, s.b.data(), bits, kCodes, s.sum.data());
    };
    rows.push_back(
        {std::to_string(bits) + " planes", time_both(rounds, kCodes, reference, kernel)});
  }
  return rows;
}

}  // namespace
}  // namespace tersum

int main(int argc, char** argv) {
  size_t rounds = 31;
  bool check = false;
  std::string json;
  for (int i = 1; i < argc; ++i) {
    const std::string_view flag = argv[i];
    if (flag == "--check") {
      check = true;
    } else if (flag == "--rounds" && i + 1 < argc) {
      const char* const value = argv[++i];
      std::from_chars(value, value + std::strlen(value), rounds);
    } else if (flag == "--json" && i + 1 < argc) {
      json = argv[++i];
    } else {
      std::fprintf(stderr, "usage: packed_sum_bench [--rounds N] [--check] [--json FILE]\n");
      return 2;
    }
  }
  const std::vector<tersum::Row> rows = tersum::run(std::max<size_t>(rounds, 1));
  bool low = false;
  for (const tersum::Row& row : rows) {
    tersum::print(row);
    low = low || row.is_low();
  }
  if (!json.empty()) tersum::write_json(json, rows);
  return check && low ? 1 : 0;
}
