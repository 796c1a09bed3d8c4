// The finalizer of SplitMix64: every bit of the result depends on all bits of the number.
//
// Pure.
#pragma once

#include <cstdint>

namespace tersum {

inline uint64_t mix_bits(uint64_t h) {
  h = (h ^ (h >> 30)) * 0xbf58476d1ce4e5b9U;
  h = (h ^ (h >> 27)) * 0x94d049bb133111ebU;
  return h ^ (h >> 31);
}

}  // namespace tersum
