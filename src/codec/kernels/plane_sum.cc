#include "codec/kernels/plane_sum.h"

#include <algorithm>
#include <cstring>

#include "codec/kernels/element_format.h"

namespace tersum {
namespace {

constexpr size_t kGroupBytes = kPlaneGroup / 8;

// A plane of a group, which has `bytes` of them; the rest of the word is 0.
template <bool kWhole>
uint32_t load_plane(const std::byte* from, size_t bytes) {
  uint32_t word = 0;
  std::memcpy(&word, from, kWhole ? kGroupBytes : bytes);
  return word;
}

// kBits: of both streams, known when the loop is compiled; 0: any.
template <size_t kBits, bool kWhole>
void add_group(const std::byte* a, size_t a_bits, const std::byte* b, size_t b_bits, size_t bytes,
               std::byte* sum) {
  const size_t size = kWhole ? kGroupBytes : bytes;
  const size_t planes = kBits > 0 ? kBits : std::max(a_bits, b_bits);
  uint32_t carry = 0;
  uint32_t from_a = 0;
  uint32_t from_b = 0;
  for (size_t plane = 0; plane < planes; ++plane) {
    // Beyond its own planes a code goes on with its sign.
    if (kBits > 0 || plane < a_bits) from_a = load_plane<kWhole>(a + plane * size, size);
    if (kBits > 0 || plane < b_bits) from_b = load_plane<kWhole>(b + plane * size, size);
    const uint32_t half = from_a ^ from_b;
    const uint32_t bit = half ^ carry;
    carry = (from_a & from_b) | (carry & half);
    std::memcpy(sum + plane * size, &bit, size);
  }
  const uint32_t sign = from_a ^ from_b ^ carry;
  std::memcpy(sum + planes * size, &sign, size);
}

template <size_t kBits>
void add_groups(const std::byte* a, size_t a_bits, const std::byte* b, size_t b_bits, size_t groups,
                std::byte* sum) {
  const size_t sum_bits = std::max(a_bits, b_bits) + 1;
  for (size_t g = 0; g < groups; ++g) {
    add_group<kBits, true>(a + g * a_bits * kGroupBytes, a_bits, b + g * b_bits * kGroupBytes,
                           b_bits, kGroupBytes, sum + g * sum_bits * kGroupBytes);
  }
}

using AddGroups = void (*)(const std::byte*, size_t, const std::byte*, size_t, size_t, std::byte*);
constexpr AddGroups kEqualWidths[] = {add_groups<0>, add_groups<1>, add_groups<2>,
                                      add_groups<3>, add_groups<4>, add_groups<5>,
                                      add_groups<6>, add_groups<7>, add_groups<8>};

uint32_t bit_at(const std::byte* planes, size_t plane, size_t bytes, size_t i) {
  return static_cast<uint32_t>(planes[plane * bytes + i / 8]) >> (i % 8) & 1U;
}

int64_t code_at(const std::byte* planes, size_t bits, size_t bytes, size_t i) {
  int64_t code = 0;
  for (size_t plane = 0; plane < bits; ++plane) {
    const int64_t weight = int64_t{1} << plane;
    const int64_t one = bit_at(planes, plane, bytes, i);
    code += plane + 1 == bits ? -one * weight : one * weight;
  }
  return code;
}

}  // namespace

size_t plane_bytes(size_t bits, size_t count) {
  return bits * (count / kPlaneGroup * kGroupBytes + (count % kPlaneGroup + 7) / 8);
}

void add_planes(const std::byte* a, size_t a_bits, const std::byte* b, size_t b_bits, size_t count,
                std::byte* sum) {
  const size_t sum_bits = std::max(a_bits, b_bits) + 1;
  const bool known = a_bits == b_bits && a_bits < std::size(kEqualWidths);
  kEqualWidths[known ? a_bits : 0](a, a_bits, b, b_bits, count / kPlaneGroup, sum);
  const size_t rest = count % kPlaneGroup;
  if (rest == 0) return;
  const size_t done = count - rest;
  add_group<0, false>(a + plane_bytes(a_bits, done), a_bits, b + plane_bytes(b_bits, done), b_bits,
                      (rest + 7) / 8, sum + plane_bytes(sum_bits, done));
}

void add_planes_reference(const std::byte* a, size_t a_bits, const std::byte* b, size_t b_bits,
                          size_t count, std::byte* sum) {
  const size_t sum_bits = std::max(a_bits, b_bits) + 1;
  std::fill_n(sum, plane_bytes(sum_bits, count), std::byte{0});
  for (size_t i = 0; i < count; ++i) {
    const size_t begin = i / kPlaneGroup * kPlaneGroup;
    const size_t in_group = std::min(kPlaneGroup, count - begin);
    const size_t bytes = (in_group + 7) / 8;
    const size_t at = i - begin;
    const int64_t total = code_at(a + plane_bytes(a_bits, begin), a_bits, bytes, at) +
                          code_at(b + plane_bytes(b_bits, begin), b_bits, bytes, at);
    std::byte* const group = sum + plane_bytes(sum_bits, begin);
    for (size_t plane = 0; plane < sum_bits; ++plane) {
      const auto bit = static_cast<uint32_t>(total >> plane) & 1U;
      group[plane * bytes + at / 8] |= static_cast<std::byte>(bit << (at % 8));
    }
  }
}

}  // namespace tersum
