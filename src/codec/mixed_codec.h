// The modifier +mixed: of the blocks of a section as many get one bit a value more as get one less,
// those where it pays, so that the message keeps its length.
//
// Thread safety: codecs are immutable; a thread's first call allocates its scratch. Layout of a
// section (sectioned_codec.h) of m blocks:
//
//   map       2 bits a block, the first in the lowest of its byte: 0 as the spec says, 1 one bit
//             more, 2 one bit less; ceil(m / 4) bytes
//   blocks    each a slice of its own of the format with its bits
#pragma once

#include <array>
#include <memory>

#include "codec/codec.h"
#include "codec/format_registry.h"

namespace tersum {

// `by_change`: of float32, by what the map says of a block: with the bits of spec, one more, one
// less; and with its other modifiers. `type`: float32, bfloat16 or float16.
std::unique_ptr<Codec> make_mixed_codec(const PlainSpec& spec,
                                        std::array<std::unique_ptr<const Codec>, 3> by_change,
                                        DataType type);

}  // namespace tersum
