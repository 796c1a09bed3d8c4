// A slice of float32 values, encoded and decoded.
#pragma once

#include <cstddef>
#include <vector>

#include "codec/codec.h"

namespace tersum {

inline std::vector<std::byte> encode(const Codec& codec, const std::vector<float>& values,
                                     const SlicePlace& place = {}) {
  std::vector<std::byte> wire(codec.wire_bytes(values.size()));
  codec.encode(values.data(), values.size(), wire.data(), place);
  return wire;
}

inline std::vector<float> decode(const Codec& codec, const std::vector<std::byte>& wire,
                                 size_t count, const SlicePlace& place = {}) {
  std::vector<float> values(count);
  codec.decode(wire.data(), count, values.data(), place);
  return values;
}

}  // namespace tersum
