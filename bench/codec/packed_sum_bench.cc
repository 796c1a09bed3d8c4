// Packed codes against plain loops over them, on one core.
//
//   packed_sum_bench [--rounds N]
//
// Sums without unpacking: 2-bit codes by table (pair_sum.h) and bit planes (plane_sum.h), against
// the scalar reference. Decoding of nf4 against a loop over nibbles. 262,144 codes a stream. Every
// round times the loop and the kernel once; medians over the rounds.
#include <algorithm>
#include <charconv>
#include <cstdio>
#include <cstring>
#include <string>
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
Timing time_both(size_t rounds, const Reference& reference, const Kernel& kernel) {
  const SystemClock clock;
  std::vector<double> slow;
  std::vector<double> fast;
  std::vector<double> times;
  for (size_t round = 0; round < rounds; ++round) {
    slow.push_back(seconds_of(clock, reference, 1));
    fast.push_back(seconds_of(clock, kernel, 20));
    times.push_back(slow.back() / fast.back());
  }
  constexpr double kGiga = 1e-9 * static_cast<double>(kCodes);
  return {kGiga / median(slow), kGiga / median(fast), median(times)};
}

void print(const std::string& name, const Timing& timing) {
  std::printf("%-24s reference %7.2f G codes/s | kernel %7.2f | %6.1fx\n", name.c_str(),
              timing.reference, timing.kernel, timing.times);
}

// Two looks into the table a byte.
void decode_nibbles(const ElementFormat& format, const std::byte* wire, float* values) {
  const std::byte* const codes = wire + codes_offset(format, kCodes);
  for (size_t first = 0; first < kCodes; first += kNibbleGroup) {
    const std::byte* const group = codes + first / 2;
    const float scale = load_scale(wire + first / format.block * scale_bytes(format.rule));
    for (size_t i = 0; i < kNibbleGroupBytes; ++i) {
      const auto byte = static_cast<uint8_t>(group[i]);
      values[first + i] = format.levels[byte & 15U] * scale;
      values[first + kNibbleGroupBytes + i] = format.levels[byte >> 4] * scale;
    }
  }
}

void run_nibbles(size_t rounds) {
  const Codec& codec = *find_codec("nf4/64", DataType::kFloat32, ReduceOp::kSum).value();
  const ElementFormat& format = *codec.element_format();
  const Arrays a(codec, kCodes);
  const auto loop = [&] { decode_nibbles(format, a.pointers[0], a.out.data()); };
  const auto kernel = [&] { codec.decode(a.pointers[0], kCodes, a.copy.data(), a.place); };
  loop();
  kernel();
  TERSUM_CHECK(std::equal(a.out.data(), a.out.data() + kCodes, a.copy.data()));
  print("nf4/64 decode", time_both(rounds, loop, kernel));
}

void run(size_t rounds) {
  run_nibbles(rounds);
  const Streams s;
  const PairTable table = mean_pair_table();
  const size_t bytes = kCodes / kPairCodes;
  for (const int64_t target : available_targets()) {
    if (target == kReferenceTarget) continue;
    const auto add = [&](int64_t which) {
      return
          [&, which] { add_pairs_of(which)(table, s.a.data(), s.b.data(), bytes, s.sum.data()); };
    };
    print("2-bit table, " + std::string(target_name(target)),
          time_both(rounds, add(kReferenceTarget), add(target)));
  }
  for (size_t bits = 1; bits < kWidest; ++bits) {
    const auto reference = [&] {
      add_planes_reference(s.a.data(), bits, s.b.data(), bits, kCodes, s.sum.data());
    };
    const auto kernel = [&] {
      add_planes(s.a.data(), bits, s.b.data(), bits, kCodes, s.sum.data());
    };
    print(std::to_string(bits) + " planes", time_both(rounds, reference, kernel));
  }
}

}  // namespace
}  // namespace tersum

int main(int argc, char** argv) {
  size_t rounds = 31;
  const bool has_rounds = argc == 3 && std::string(argv[1]) == "--rounds";
  if (argc > 1 && !has_rounds) {
    std::fprintf(stderr, "usage: packed_sum_bench [--rounds N]\n");
    return 2;
  }
  if (has_rounds) std::from_chars(argv[2], argv[2] + std::strlen(argv[2]), rounds);
  tersum::run(rounds < 1 ? 1 : rounds);
  return 0;
}
