// Which values of a slice may share a scale: what a codec's bound and its rule for NaN are about.
#pragma once

#include <algorithm>
#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "codec/codec.h"

namespace tersum {

struct BlockPlace {
  size_t begin = 0;
  size_t end = 0;
};

inline bool has_modifier(const Codec& codec, std::string_view name) {
  const std::vector<std::string>& modifiers = codec.spec().modifiers;
  return std::find(modifiers.begin(), modifiers.end(), name) != modifiers.end();
}

// False where the blocks of +adaptive may lie anywhere in a place.
inline bool places_are_blocks(const Codec& codec) { return !has_modifier(codec, "adaptive"); }

// Blocks, within rows where there are rows; with +adaptive the largest that there may be.
inline std::vector<BlockPlace> block_places(const Codec& codec, size_t count) {
  const std::vector<std::string>& modifiers = codec.spec().modifiers;
  const bool has_rows =
      std::any_of(modifiers.begin(), modifiers.end(),
                  [](const std::string& modifier) { return modifier.starts_with("rows:"); });
  const size_t row = has_rows ? codec.block() : std::max<size_t>(count, 1);
  const size_t block = places_are_blocks(codec) ? std::max<size_t>(codec.spec().block, 1) : 1024;
  std::vector<BlockPlace> places;
  for (size_t begin = 0; begin < count;) {
    const size_t row_end = std::min(count, begin / row * row + row);
    const size_t end = std::min(row_end, begin + block);
    places.push_back({begin, end});
    begin = end;
  }
  return places;
}

}  // namespace tersum
