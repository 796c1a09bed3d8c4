// The bf16 wire: float32 or float16 values travel as bfloat16, 2 bytes each, rounded to nearest
// even.
//
// A finite value never arrives as an infinity (see DenseWire::kBFloat16); NaN arrives as NaN, Inf
// as Inf. Bfloat16 values need no codec: they take the exact path.
#pragma once

#include <memory>

#include "codec/codec.h"

namespace tersum {

// `type`: float32 or float16.
std::unique_ptr<Codec> make_bf16_codec(DataType type);

}  // namespace tersum
