#include "codec/kernels/wide_codes.h"

#include "base/check.h"
#include "codec/kernels/code_groups.h"

namespace tersum {

WideCodes::WideCodes(uint32_t bits) {
  TERSUM_CHECK(bits >= kBitsMin && bits <= kBitsMax);
  planes_.packing = Packing::kPlanes;
  planes_.bits = bits - kBitsMin;
}

void WideCodes::add(const std::byte* wire, size_t count, size_t begin, size_t part,
                    int32_t* sums) const {
  TERSUM_CHECK(part <= kTileValues && begin % kPlaneGroup == 0);
  const std::byte* const low = wire + begin;
  if (planes_.bits == 0) {
    for (size_t i = 0; i < part; ++i) sums[i] += static_cast<int8_t>(low[i]);
    return;
  }
  alignas(64) uint8_t high[kTileMemory];
  const std::byte* const planes = wire + count + code_bytes(planes_, begin);
  const size_t whole = part / kPlaneGroup * kPlaneGroup;
  element_kernels().unpack(planes_, planes, whole / kPlaneGroup, high);
  if (whole < part) {
    unpack_group(planes_, planes + code_bytes(planes_, whole), part - whole, high + whole);
  }
  const int32_t sign = 1 << (planes_.bits - 1);
  for (size_t i = 0; i < part; ++i) {
    const int32_t upper = (int32_t{high[i]} ^ sign) - sign;
    sums[i] += upper * 256 + static_cast<int32_t>(low[i]);
  }
}

void WideCodes::write(const int32_t* sums, size_t begin, size_t part, size_t count,
                      std::byte* wire) const {
  TERSUM_CHECK(part <= kTileValues && begin % kPlaneGroup == 0);
  std::byte* const low = wire + begin;
  for (size_t i = 0; i < part; ++i) low[i] = static_cast<std::byte>(sums[i]);
  if (planes_.bits == 0) return;
  alignas(64) uint8_t high[kTileMemory];
  const auto mask = static_cast<uint32_t>((1 << planes_.bits) - 1);
  for (size_t i = 0; i < part; ++i) {
    high[i] = static_cast<uint8_t>((static_cast<uint32_t>(sums[i]) >> 8) & mask);
  }
  std::byte* const planes = wire + count + code_bytes(planes_, begin);
  const size_t whole = part / kPlaneGroup * kPlaneGroup;
  element_kernels().pack(planes_, high, whole / kPlaneGroup, planes);
  if (whole == part) return;
  pack_group(planes_, high + whole, part - whole, planes + code_bytes(planes_, whole));
}

}  // namespace tersum
