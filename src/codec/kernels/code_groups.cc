#include "codec/kernels/code_groups.h"

#include <algorithm>
#include <array>

namespace tersum {
namespace {

void pack_planes(const uint8_t* codes, size_t count, size_t bits, std::byte* wire) {
  const size_t plane_bytes = (count + 7) / 8;
  std::fill_n(wire, bits * plane_bytes, std::byte{0});
  for (size_t bit = 0; bit < bits; ++bit) {
    for (size_t i = 0; i < count; ++i) {
      const auto one = static_cast<std::byte>(((codes[i] >> bit) & 1) << (i % 8));
      wire[bit * plane_bytes + i / 8] |= one;
    }
  }
}

void unpack_planes(const std::byte* wire, size_t count, size_t bits, uint8_t* codes) {
  const size_t plane_bytes = (count + 7) / 8;
  std::fill_n(codes, count, uint8_t{0});
  for (size_t bit = 0; bit < bits; ++bit) {
    for (size_t i = 0; i < count; ++i) {
      const auto byte = static_cast<uint32_t>(wire[bit * plane_bytes + i / 8]);
      codes[i] |= static_cast<uint8_t>(((byte >> (i % 8)) & 1U) << bit);
    }
  }
}

void pack_triples(const ElementFormat& format, const uint8_t* codes, size_t count,
                  std::byte* wire) {
  const size_t third = (count + 2) / 3;
  const auto code_at = [&](size_t i) { return i < count ? codes[i] : format.zero_code; };
  std::array<uint8_t, kPlaneGroup> triples{};
  for (size_t i = 0; i < third; ++i) {
    triples[i] =
        static_cast<uint8_t>(code_at(i) + 5 * code_at(third + i) + 25 * code_at(2 * third + i));
  }
  pack_planes(triples.data(), third, kTripleBits, wire);
}

void unpack_triples(const std::byte* wire, size_t count, uint8_t* codes) {
  const size_t third = (count + 2) / 3;
  std::array<uint8_t, kPlaneGroup> triples{};
  unpack_planes(wire, third, kTripleBits, triples.data());
  for (size_t i = 0; i < third; ++i) {
    const bool known = triples[i] < 125;
    codes[i] = known ? triples[i] % 5 : kNoTriple;
    codes[third + i] = known ? triples[i] / 5 % 5 : kNoTriple;
    codes[2 * third + i] = known ? triples[i] / 25 : kNoTriple;
  }
}

}  // namespace

void pack_group(const ElementFormat& format, const uint8_t* codes, size_t count, std::byte* wire) {
  switch (format.packing) {
    case Packing::kBytes:
      for (size_t i = 0; i < count; ++i) wire[i] = std::byte{codes[i]};
      return;
    case Packing::kNibbles: {
      const size_t half = (count + 1) / 2;
      for (size_t i = 0; i < half; ++i) {
        const int high = half + i < count ? codes[half + i] : 0;
        wire[i] = static_cast<std::byte>(codes[i] | high << 4);
      }
      return;
    }
    case Packing::kPlanes:
      pack_planes(codes, count, format.bits, wire);
      return;
    case Packing::kTriples:
      pack_triples(format, codes, count, wire);
      return;
  }
}

void unpack_group(const ElementFormat& format, const std::byte* wire, size_t count,
                  uint8_t* codes) {
  switch (format.packing) {
    case Packing::kBytes:
      for (size_t i = 0; i < count; ++i) codes[i] = static_cast<uint8_t>(wire[i]);
      return;
    case Packing::kNibbles: {
      const size_t half = (count + 1) / 2;
      for (size_t i = 0; i < half; ++i) {
        codes[i] = static_cast<uint8_t>(wire[i] & std::byte{15});
        codes[half + i] = static_cast<uint8_t>(wire[i] >> 4);
      }
      return;
    }
    case Packing::kPlanes:
      unpack_planes(wire, count, format.bits, codes);
      return;
    case Packing::kTriples:
      unpack_triples(wire, count, codes);
      return;
  }
}

}  // namespace tersum
