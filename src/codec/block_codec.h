// The block formats int8 and int4: blocks of 32 to 1024 values share a bf16 scale; codes are
// -127..127 or -7..7. docs/codecs.md is the specification.
//
// A block that holds a NaN, an Inf or (in a sum) a number beyond the value type's range gets a NaN
// scale and decodes as NaN throughout.
#pragma once

#include <cstdint>
#include <memory>

#include "codec/codec.h"

namespace tersum {

// `bits`: 8 or 4. `type`: float32, bfloat16 or float16.
std::unique_ptr<Codec> make_block_codec(int bits, uint32_t block, DataType type);

}  // namespace tersum
