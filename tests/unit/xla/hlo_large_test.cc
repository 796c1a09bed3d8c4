// Large modules: time grows with the size, not with its square, also where a module is built to
// make the proofs walk far.

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <string>

#include "hlo_test_module.h"

namespace tersum::hlo_test {
namespace {

void append_varint(std::string& out, uint64_t value) {
  for (; value > 127; value >>= 7) out += static_cast<char>(value | 128);
  out += static_cast<char>(value);
}

std::string bytes_field(uint32_t number, const std::string& value) {
  std::string out;
  append_varint(out, uint64_t{number} << 3 | 2);
  append_varint(out, value.size());
  return out + value;
}

std::string number_field(uint32_t number, uint64_t value) {
  std::string out;
  append_varint(out, uint64_t{number} << 3);
  append_varint(out, value);
  return out;
}

// The handmade module "promoted" with `count` sums instead of one, each behind its own convert and
// all fed from and feeding one long chain of copies.
std::string large_module(int count) {
  const std::string seed = golden(kHandmadeFolder, "promoted");
  const auto instructions = instructions_of(seed);
  const std::string& reduce = instructions.at(1).at(2);
  const std::string shape = value_of(reduce, 3);
  std::string main = bytes_field(1, "main") + number_field(5, 2);
  main += bytes_field(2, instructions.at(1).at(0)) + bytes_field(2, instructions.at(1).at(1));
  uint64_t last = 202;  // the convert to f32
  uint64_t id = 1000;
  for (int i = 0; i < count; ++i) {
    const uint64_t copy = id++;
    const uint64_t sum = id++;
    main +=
        bytes_field(2, bytes_field(1, "copy." + std::to_string(copy)) + bytes_field(2, "copy") +
                           bytes_field(3, shape) + number_field(35, copy) + number_field(36, last));
    std::string one = bytes_field(1, "all-reduce." + std::to_string(sum)) +
                      bytes_field(2, "all-reduce") + bytes_field(3, shape) + number_field(26, 1) +
                      number_field(35, sum) + number_field(36, copy) + number_field(38, 1) +
                      number_field(71, 1);
    main += bytes_field(2, one);
    last = copy;
  }
  std::string out;
  for (const Field& field : split(seed)) {
    const bool is_main = field.number == 3 && value_of(field.value, 1) == "main";
    out += is_main ? bytes_field(3, main) : field.raw;
  }
  return out;
}

// Exact, so that the proofs run.
HloPassOptions exact_options() {
  auto options = all_options();
  options.codec = "exact";
  return options;
}

double best_seconds(const std::string& module, size_t expected_rows) {
  double best = 1e9;
  for (int i = 0; i < 3; ++i) {
    const auto start = std::chrono::steady_clock::now();
    const auto result = run_hlo_pass(module, exact_options());
    const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - start;
    EXPECT_TRUE(result.ok() && result.value().rows.size() == expected_rows);
    best = std::min(best, taken.count());
  }
  return best;
}

TEST(HloLarge, ManySumsAreRewritten) {
  const auto output = run_checked(large_module(1000), exact_options());
  ASSERT_EQ(output.rows.size(), 1000u);
  EXPECT_EQ(output.rows.back().operation, 999);
  EXPECT_EQ(output.rows.back().outcome, HloOutcome::kRewritten);
}

// 8 times the size takes at most 8 times the proofs' bound on top of 8 times the rest; a quadratic
// pass would take 64 times as long. Sizes are beyond the proofs' limit, so each walk costs the
// same.
TEST(HloLarge, TimeIsLinear) {
  const double small = best_seconds(large_module(500), 500);
  const double large = best_seconds(large_module(4000), 4000);
  EXPECT_LT(large, 24 * small) << small << " s and " << large << " s";
}

}  // namespace
}  // namespace tersum::hlo_test
