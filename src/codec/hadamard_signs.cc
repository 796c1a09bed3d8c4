#include "codec/hadamard_signs.h"

#include <bit>
#include <memory>

namespace tersum {
namespace {

// The sign of a value by its place in the block: bit 0 of a mix of the index (the finalizer of
// MurmurHash3), so that no structured data lines up with the transform's rows.
float sign_at(uint32_t index) {
  uint32_t h = index + 1;
  h = (h ^ (h >> 16)) * 0x85ebca6bU;
  h = (h ^ (h >> 13)) * 0xc2b2ae35U;
  return ((h ^ (h >> 16)) & 1U) != 0 ? -1.0F : 1.0F;
}

}  // namespace

HadamardSigns::HadamardSigns(uint32_t block) {
  for (uint32_t i = 0; i < block; ++i) {
    undo[i] = sign_at(i);
    forward[i] = undo[i] / static_cast<float>(block);
  }
}

const HadamardSigns& hadamard_signs(uint32_t block) {
  constexpr int kLeastLog2 = 4;
  constexpr size_t kSizes = 7;  // 16 to 1,024
  static const auto* const tables = [] {
    auto* made = new std::array<std::unique_ptr<const HadamardSigns>, kSizes>();
    for (size_t i = 0; i < kSizes; ++i) {
      (*made)[i] = std::make_unique<const HadamardSigns>(1U << (kLeastLog2 + i));
    }
    return made;
  }();
  return *(*tables)[static_cast<size_t>(std::countr_zero(block) - kLeastLog2)];
}

}  // namespace tersum
